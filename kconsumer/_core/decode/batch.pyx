"""Splits fetched bytes into batches and reads their headers. batch.pxd shows the layout.

Checks sizes only. Checksums, codecs and offsets are checked in fetch.pyx.
"""

from kconsumer._core.wire cimport kc_load_be16, kc_load_be32, kc_load_be64


cdef Found next_batch(Span* data, BatchHeader* out) noexcept nogil:
    """Read the header at the front of `data`. Returns what was found.

    If this is FOUND_BATCH or FOUND_OLD, `data` is advanced past the batch, which is complete. For any other result,
    `data` does not change. As in Java, an invalid size or magic number (FOUND_BAD_SIZE, FOUND_BAD_MAGIC) is found even
    if the batch is not complete.
    """
    cdef const unsigned char* p = data.p
    if remaining(data) < SIZE_PREFIX:
        return FOUND_END
    out.base_offset = <int64_t> kc_load_be64(p)
    out.size = <int32_t> kc_load_be32(p + 8)
    if out.size < MIN_BATCH_SIZE:
        return FOUND_BAD_SIZE
    if remaining(data) < UP_TO_MAGIC:
        return FOUND_END
    out.magic = <int8_t> p[16]
    if out.magic < 0 or out.magic > 2:
        return FOUND_BAD_MAGIC
    if remaining(data) - SIZE_PREFIX < out.size:
        return FOUND_END
    if out.magic < 2:
        data.p = p + SIZE_PREFIX + out.size
        return FOUND_OLD
    if out.size < HEADER_BYTES - SIZE_PREFIX:
        return FOUND_BAD_SIZE
    out.leader_epoch = <int32_t> kc_load_be32(p + 12)
    out.crc = kc_load_be32(p + UP_TO_MAGIC)
    out.attributes = <int16_t> kc_load_be16(p + BEFORE_ATTRIBUTES)
    out.last_offset_delta = <int32_t> kc_load_be32(p + 23)
    out.base_timestamp = <int64_t> kc_load_be64(p + 27)
    out.max_timestamp = <int64_t> kc_load_be64(p + 35)
    out.producer_id = <int64_t> kc_load_be64(p + 43)
    out.record_count = <int32_t> kc_load_be32(p + 57)
    data.p = p + SIZE_PREFIX + out.size
    out.covered.p = p + BEFORE_ATTRIBUTES
    out.covered.end = data.p
    out.body.p = p + HEADER_BYTES
    out.body.end = data.p
    return FOUND_BATCH
