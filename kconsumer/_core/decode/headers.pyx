"""Reads the offset of a partition's next fetch from the batch headers of received records.

It does not verify checksums, decompress batches or parse records. So the next Fetch request can be sent before the
received records are decoded.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from kconsumer._core.wire cimport Slice, Span


def next_fetch_offset(records):
    """Returns the offset after the last complete batch, and the leader epoch of that batch (None if it has none).

    `records` is a Slice, another buffer, or None. Returns None if the batch headers do not determine the offset: there
    is no complete batch, a message has format 0 or 1, or a size or offset is invalid. The result is provisional until
    the records are decoded, because the checksum may then show that a header is corrupt.
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
