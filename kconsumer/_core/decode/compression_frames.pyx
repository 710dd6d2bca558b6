"""Parses the compression frames of batches: finds the compressed block in a frame, and its maximum decompressed size.

Decides which lz4, zstd and xerial frames are ordinary. The block of an ordinary frame can be decompressed by one
function call instead of a stream reader. An ordinary frame has exactly one block (a zstd frame may have several), and
its batch has no other frame. For all other frames, the functions return False, None or -1 without a reason. The caller
then uses the stream reader of a library, which also reports errors. This module does not decompress and applies no
limits.
"""

from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from kconsumer._core.wire cimport Slice, Span, kc_load_be32, remaining, slice_of


cdef enum:
    # An lz4 frame: magic, flags, sizes, header checksum; then blocks, each preceded by its size; then an empty block.
    LZ4_HEADER_BYTES = 7
    LZ4_ORDINARY = 0x60          # version 1, independent blocks; no checksums, content size or dictionary
    LZ4_MIN_BLOCK_BYTES = 1 << 16
    LZ4_MAX_RATIO = 255          # one compressed byte can add at most 255 to the length of the output

    # A zstd frame: magic, descriptor, window, dictionary, content size; then blocks, with a flag in the last one; then
    # a checksum.
    ZSTD_BLOCK_HEADER_BYTES = 3
    ZSTD_MAX_BLOCK_BYTES = 1 << 17
    ZSTD_SINGLE_SEGMENT = 0x20
    ZSTD_UNUSUAL = 0x0B          # a reserved bit, or a dictionary
    ZSTD_CHECKSUM = 0x04
    ZSTD_MAX_WINDOW = 17 << 3    # 128 MB; streams with a larger window are refused

    XERIAL_HEADER_BYTES = 16
    SNAPPY_SIZE_BYTES = 5        # the longest varint of 32 bits

cdef uint32_t LZ4_MAGIC = 0x184D2204
cdef uint32_t ZSTD_MAGIC = 0xFD2FB528
cdef uint32_t LZ4_STORED = 0x80000000   # the block is not compressed

# The header checksum of an ordinary frame, by its block size: 64 KB, 256 KB, 1 MB and 4 MB.
cdef unsigned char[4] LZ4_CHECKSUMS = [0x82, 0xFB, 0x51, 0x73]


cdef inline uint32_t load_le32(const unsigned char* p) noexcept nogil:
    return p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24


cdef Slice as_slice(object data):
    return <Slice> data if isinstance(data, Slice) else Slice(data)


cdef bint find_lz4_block(Span frame, Span* block, Py_ssize_t* max_size) noexcept nogil:
    """Find the block of an lz4 frame, and the maximum decompressed size of the block.

    If the block is stored uncompressed, sets `max_size` to 0. Returns True, or False if the frame is malformed, has
    several blocks or has optional fields.
    """
    cdef const unsigned char* p = frame.p
    cdef Py_ssize_t left = remaining(&frame) - LZ4_HEADER_BYTES - 8, size, largest
    cdef uint32_t sized
    cdef int kind
    if left < 1 or load_le32(p) != LZ4_MAGIC or p[4] != LZ4_ORDINARY:
        return False
    kind = (p[5] >> 4) - 4
    if kind < 0 or kind > 3 or p[5] & 0x0F or p[6] != LZ4_CHECKSUMS[kind]:
        return False
    sized = load_le32(p + LZ4_HEADER_BYTES)
    size = sized & ~LZ4_STORED
    largest = LZ4_MIN_BLOCK_BYTES << 2 * kind
    if size == 0 or size > largest or size > left or load_le32(p + LZ4_HEADER_BYTES + 4 + size) != 0:
        return False
    max_size[0] = 0 if sized & LZ4_STORED else min(largest, LZ4_MAX_RATIO * size)
    block.p = p + LZ4_HEADER_BYTES + 4
    block.end = block.p + size
    return True


def lz4_block(data):
    """Returns the block that `find_lz4_block` finds, and its maximum decompressed size.

    Returns None for frames for which `find_lz4_block` returns False.
    """
    cdef Slice frame = as_slice(data)
    cdef Span block
    cdef Py_ssize_t max_size = 0
    if not find_lz4_block(frame.span, &block, &max_size):
        return None
    return slice_of(frame.owner, block.p, remaining(&block)), max_size


cdef Py_ssize_t zstd_max_size(Span frame) noexcept nogil:
    """Returns the maximum decompressed size of a zstd frame in bytes, or -1 if the frame is not ordinary.

    The size is the content size in the frame header. If the header has none, it is the sum of the maximum sizes of the
    blocks. Returns -1 if the bytes are not exactly one valid frame, if the frame needs a dictionary or more than 128 MB
    of memory, or if the content size exceeds that sum.
    """
    cdef const unsigned char* p = frame.p
    cdef const unsigned char* end = frame.end
    cdef uint64_t announced = 0
    cdef uint32_t header = 0, size, kind
    cdef int64_t max_size = 0     # may exceed a Py_ssize_t of 32 bits
    cdef unsigned char flags
    cdef int announcing, i
    if end - p < 6 or load_le32(p) != ZSTD_MAGIC:
        return -1
    flags = p[4]
    if flags & ZSTD_UNUSUAL:
        return -1
    if not flags & ZSTD_SINGLE_SEGMENT and p[5] > ZSTD_MAX_WINDOW:
        return -1
    announcing = 1 << (flags >> 6)   # bytes of the content size
    if announcing == 1 and not flags & ZSTD_SINGLE_SEGMENT:
        announcing = 0
    p += 5 if flags & ZSTD_SINGLE_SEGMENT else 6
    if end - p < announcing:
        return -1
    for i in range(announcing):
        announced |= <uint64_t> p[i] << (8 * i)
    if announcing == 2:
        announced += 256
    p += announcing
    while not header & 1:
        if end - p < ZSTD_BLOCK_HEADER_BYTES:
            return -1
        header = p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16
        p += ZSTD_BLOCK_HEADER_BYTES
        kind = header >> 1 & 3
        size = header >> 3
        if kind == 3 or size > ZSTD_MAX_BLOCK_BYTES:
            return -1
        max_size += ZSTD_MAX_BLOCK_BYTES if kind == 2 else size
        if kind == 1:    # one byte, repeated
            size = 1
        if end - p < <Py_ssize_t> size:
            return -1
        p += size
    if end - p != (4 if flags & ZSTD_CHECKSUM else 0):
        return -1
    if announcing and announced > <uint64_t> max_size or max_size > PY_SSIZE_T_MAX:
        return -1
    return <Py_ssize_t> announced if announcing else <Py_ssize_t> max_size


def max_zstd_size(data):
    """Returns the maximum decompressed size of a zstd frame in bytes, or -1; see `zstd_max_size`."""
    cdef Slice frame = as_slice(data)
    return zstd_max_size(frame.span)


def xerial_block(data):
    """Returns the raw snappy block in a xerial frame, or None if it is not a xerial frame with exactly one block."""
    cdef Slice frame = as_slice(data)
    cdef const unsigned char* p = frame.span.p
    cdef Py_ssize_t size = remaining(&frame.span) - XERIAL_HEADER_BYTES - 4
    if size < 0 or memcmp(p, b"\x82SNAPPY\x00", 8) or kc_load_be32(p + XERIAL_HEADER_BYTES) != <uint64_t> size:
        return None
    return slice_of(frame.owner, p + XERIAL_HEADER_BYTES + 4, size)


def snappy_size(data):
    """Returns the decompressed size that is stored at the start of a raw snappy block, or -1 if it is incomplete."""
    cdef Slice block = as_slice(data)
    cdef const unsigned char* p = block.span.p
    cdef Py_ssize_t max_size = min(remaining(&block.span), SNAPPY_SIZE_BYTES), i
    cdef uint64_t size = 0
    for i in range(max_size):
        size |= <uint64_t> (p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            return size
    return -1
