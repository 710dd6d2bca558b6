"""The offset of a partition's next fetch, from the batch headers of the records just received.

No checksum is verified, nothing is decompressed and no record is parsed, so that the next Fetch request can be sent
before these records are decoded.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from kconsumer._core.batch cimport FOUND_BATCH, FOUND_END, BatchHeader, Found, next_batch
from kconsumer._core.wire cimport Slice, Span


def next_fetch_offset(records):
    """Return the offset after the last complete batch and that batch's leader epoch (None if it has none).

    `records` is a Slice, any other buffer, or None. Returns None if the offset is unknown without decoding: no complete
    batch, message formats v0 and v1, invalid sizes or offsets. The result is provisional until the records are decoded,
    because a header may be corrupt.
    """
    cdef BatchHeader header
    cdef Span span
    cdef int64_t base = -1
    cdef int32_t delta = -1, epoch = -1
    cdef Slice part
    cdef Found found
    if records is None:
        return None
    part = records if isinstance(records, Slice) else Slice(records)
    span = part.span
    while True:
        found = next_batch(&span, &header)
        if found != FOUND_BATCH:
            break
        base, delta, epoch = header.base_offset, header.last_offset_delta, header.leader_epoch
    if found != FOUND_END or base < 0 or delta < 0 or base >= INT64_MAX - delta:
        return None
    return base + delta + 1, (epoch if epoch >= 0 else None)
