"""Where a partition's next fetch starts, read off the batch headers of the records just received.

Decides nothing but that offset: no checksum, no decompression, no record is looked at, so that the next fetch
can leave before these records are decoded. Of each batch only size and magic are read; of the last one its offsets
and leader epoch.

    0 base offset i64 | 8 size i32 | 12 leader epoch i32 | 16 magic i8 | 17 crc | 21 attributes
    23 last offset delta i32
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from kconsumer._core.wire cimport Slice, Span, kc_load_be32, kc_load_be64

cdef enum:
    SIZE_AT = 8
    EPOCH_AT = 12            # the size counts from here
    MAGIC_AT = 16
    LAST_DELTA_AT = 23
    HEADER_BYTES = 61
    MAGIC_V2 = 2


cdef const unsigned char* last_batch(Span span) noexcept nogil:
    """The last whole v2 batch; NULL if there is none, or if anything but v2 batches is found on the way."""
    cdef const unsigned char* found = NULL
    cdef int32_t size
    while span.end - span.p >= EPOCH_AT:
        size = <int32_t> kc_load_be32(span.p + SIZE_AT)
        if size < HEADER_BYTES - EPOCH_AT:
            return NULL
        if size > span.end - span.p - EPOCH_AT:
            break                                   # cut off by the broker at the fetch size
        if span.p[MAGIC_AT] != MAGIC_V2:
            return NULL
        found = span.p
        span.p += EPOCH_AT + <Py_ssize_t> size
    return found


def next_fetch_offset(records):
    """The offset after the last whole batch and that batch's leader epoch (None if it has none).

    `records` is a Slice, any other buffer, or None. Returns None where the offset cannot be known without
    decoding: no whole batch, message formats v0 and v1, sizes or offsets that make no sense. The result is a guess
    until the records are decoded: a header may be corrupt.
    """
    cdef Slice piece
    cdef const unsigned char* batch
    cdef int64_t base
    cdef int32_t delta, epoch
    if records is None:
        return None
    piece = records if isinstance(records, Slice) else Slice(records)
    batch = last_batch(piece.span)
    if batch == NULL:
        return None
    base = <int64_t> kc_load_be64(batch)
    delta = <int32_t> kc_load_be32(batch + LAST_DELTA_AT)
    epoch = <int32_t> kc_load_be32(batch + EPOCH_AT)
    if base < 0 or delta < 0 or base >= INT64_MAX - delta:
        return None
    return base + delta + 1, (epoch if epoch >= 0 else None)
