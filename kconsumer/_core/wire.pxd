"""Bounded reads of bytes: Span, its inline readers, and the classes that own or reference memory.

Contents:
    Span                      a position in a buffer, and the buffer's end
    read_i8 … read_varlong    read one value and advance the Span
    take, skip                advance the Span by a number of bytes
    Frame                     the bytes of one network frame, and their memory
    Slice                     a part of another object's buffer, with a reference to that object
    FrameBuffer               splits a byte stream into frames

The readers, `take` and `skip` never read past `end` and never raise. If the Span is too short, they return False and do
not advance it. The caller then raises an error with the topic and the offset. All functions may run without the GIL,
except those that use Frame or Slice.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t


cdef extern from "endian.h" nogil:
    uint16_t kc_load_be16(const unsigned char* p) noexcept
    uint32_t kc_load_be32(const unsigned char* p) noexcept
    uint64_t kc_load_be64(const unsigned char* p) noexcept
    void kc_store_be16(unsigned char* p, uint16_t value) noexcept
    void kc_store_be32(unsigned char* p, uint32_t value) noexcept
    void kc_store_be64(unsigned char* p, uint64_t value) noexcept


cdef extern from "varint.h" nogil:
    int kc_long_varint(const unsigned char* p, Py_ssize_t left, int max_size, uint64_t* out) noexcept


ctypedef struct Span:
    const unsigned char* p
    const unsigned char* end


cdef inline Py_ssize_t remaining(const Span* span) noexcept nogil:
    """Returns the number of bytes left."""
    return span.end - span.p


cdef inline bint take(Span* span, Py_ssize_t size, Span* out) noexcept nogil:
    """Set `out` to the first `size` bytes of `span`, and advance `span` past them.

    Returns False, without a change, if `size` is negative or beyond the end.
    """
    if size < 0 or size > span.end - span.p:
        return False
    out.p = span.p
    out.end = span.p + size
    span.p = out.end
    return True


cdef inline bint skip(Span* span, Py_ssize_t size) noexcept nogil:
    """Advance `span` by `size` bytes. Returns False, without a change, if `size` is negative or beyond the end."""
    if size < 0 or size > span.end - span.p:
        return False
    span.p += size
    return True


cdef inline bint read_i8(Span* span, int8_t* out) noexcept nogil:
    if span.end - span.p < 1:
        return False
    out[0] = <int8_t> span.p[0]
    span.p += 1
    return True


cdef inline bint read_i16(Span* span, int16_t* out) noexcept nogil:
    if span.end - span.p < 2:
        return False
    out[0] = <int16_t> kc_load_be16(span.p)
    span.p += 2
    return True


cdef inline bint read_u16(Span* span, uint16_t* out) noexcept nogil:
    if span.end - span.p < 2:
        return False
    out[0] = kc_load_be16(span.p)
    span.p += 2
    return True


cdef inline bint read_i32(Span* span, int32_t* out) noexcept nogil:
    if span.end - span.p < 4:
        return False
    out[0] = <int32_t> kc_load_be32(span.p)
    span.p += 4
    return True


cdef inline bint read_u32(Span* span, uint32_t* out) noexcept nogil:
    if span.end - span.p < 4:
        return False
    out[0] = kc_load_be32(span.p)
    span.p += 4
    return True


cdef inline bint read_i64(Span* span, int64_t* out) noexcept nogil:
    if span.end - span.p < 8:
        return False
    out[0] = <int64_t> kc_load_be64(span.p)
    span.p += 8
    return True


cdef inline bint read_uvarint(Span* span, uint32_t* out) noexcept nogil:
    """Read an unsigned varint of at most five bytes (seven bits per byte, lowest first).

    Drops bits beyond 32, as Java does. Returns False, without advancing, if the varint does not end within these bytes.
    """
    cdef const unsigned char* p = span.p
    cdef Py_ssize_t left = span.end - p
    cdef uint64_t value
    cdef int size
    if left >= 1 and p[0] < 0x80:
        out[0] = p[0]
        span.p = p + 1
        return True
    if left >= 2 and p[1] < 0x80:
        out[0] = <uint32_t> (p[0] & 0x7F) | <uint32_t> p[1] << 7
        span.p = p + 2
        return True
    size = kc_long_varint(p, left, 5, &value)
    if size == 0:
        return False
    out[0] = <uint32_t> value
    span.p = p + size
    return True


cdef inline bint read_uvarlong(Span* span, uint64_t* out) noexcept nogil:
    """Read an unsigned varint of 64 bits and at most ten bytes, like `read_uvarint`."""
    cdef const unsigned char* p = span.p
    cdef Py_ssize_t left = span.end - p
    cdef uint64_t value
    cdef int size
    if left >= 1 and p[0] < 0x80:
        out[0] = p[0]
        span.p = p + 1
        return True
    if left >= 2 and p[1] < 0x80:
        out[0] = <uint64_t> (p[0] & 0x7F) | <uint64_t> p[1] << 7
        span.p = p + 2
        return True
    size = kc_long_varint(p, left, 10, &value)
    if size == 0:
        return False
    out[0] = value
    span.p = p + size
    return True


cdef inline bint read_varint(Span* span, int32_t* out) noexcept nogil:
    """Read a zigzag-encoded int32. Zigzag encodes 0, -1, 1, -2… as the unsigned varints 0, 1, 2, 3…"""
    cdef uint32_t raw
    if not read_uvarint(span, &raw):
        return False
    out[0] = <int32_t> ((raw >> 1) ^ (0 - (raw & 1)))
    return True


cdef inline bint read_varlong(Span* span, int64_t* out) noexcept nogil:
    """Read a zigzag-encoded int64."""
    cdef uint64_t raw
    if not read_uvarlong(span, &raw):
        return False
    out[0] = <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))
    return True


cdef class Frame:
    # `data` is a block from malloc or from the pool of wire.pyx. When the Frame is deallocated, the block is put into
    # the pool or freed. Its address does not change before that, so a reference to the Frame keeps pointers into the
    # block valid.
    cdef object __weakref__       # memory accounting uses it to detect deallocation
    cdef unsigned char* data
    cdef Py_ssize_t size          # number of bytes in this frame
    cdef readonly Py_ssize_t capacity      # size of the block in bytes, at least `size`
    cdef bint filling             # True while the frame is received; then Python code can write to the buffer


cdef class Slice:
    # A Frame, or a memoryview of the underlying buffer. This reference keeps the bytes alive.
    cdef readonly object owner
    cdef Span span


cdef class FrameBuffer:
    cdef readonly Py_ssize_t max_frame_bytes
    cdef Frame scratch            # the scratch block, for prefixes and small frames
    cdef object scratch_view      # a memoryview of all of it
    cdef Py_ssize_t scratched     # number of received bytes in `scratch`
    cdef Frame partial            # the incomplete frame that is received into its own block, or None
    cdef Py_ssize_t filled        # number of received bytes in `partial`
    cdef Frame prefetch           # the block of `prefetch_view`, or None
    cdef readonly Py_ssize_t expected      # estimated size in bytes of the next frame, from those of the last frames

    cpdef object recv_view(self)
    cpdef list received(self, Py_ssize_t count)
    cpdef object prefetch_view(self, Py_ssize_t min_bytes)
    cpdef list received_prefetched(self, bytes prefix, Py_ssize_t count)
    cdef int cut(self, list frames) except -1
    cdef int finish_partial(self, list frames) except -1
    cdef int complete(self, Frame frame, list frames) except -1
    cdef Py_ssize_t size_of(self, const unsigned char* prefix) except -1


cdef Frame new_frame(Py_ssize_t size)


cdef inline Slice slice_of(object owner, const unsigned char* p, Py_ssize_t size):
    """Returns a Slice of `size` bytes at `p` in the memory of `owner`. The Slice keeps a reference to `owner`."""
    cdef Slice made = Slice.__new__(Slice)
    made.owner = owner
    made.span.p = p
    made.span.end = p + size
    return made
