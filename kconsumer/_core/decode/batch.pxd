# Record batches of magic 2: the header, followed by the records.
#
# A batch, big-endian:                        A record, after its length:
#      0  base offset        i64                  attributes        i8, unused
#      8  length             i32, of the rest     timestamp delta   zigzag varlong
#     12  leader epoch       i32                  offset delta      zigzag varint
#     16  magic              i8                   key               zigzag varint length (negative: null), bytes
#     17  crc                u32, of the rest     value             the same
#     21  attributes         i16                  header count      zigzag varint
#     23  last offset delta  i32                  each header       key and value as above; a key is never null
#     27  base timestamp     i64
#     35  max timestamp      i64
#     43  producer id        i64
#     51  producer epoch     i16
#     53  base sequence      i32
#     57  record count       i32
#     61  records, as one compressed block if the attributes name a codec
#
# Contents:
#     BatchHeader, Found     the results of next_batch
#     next_batch             reads the header of the next batch of a Span, and advances past the batch
#     Record                 pointers to the parts of a record
#     read_record            reads one record of a Span, except its headers, and advances past it
#     check_headers          checks that a record's headers are valid and end with the record
#     offset_at              adds a delta to a base offset or timestamp, with overflow as in Java

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t, uint64_t

from kconsumer._core.wire cimport Span, read_i8, read_varint, read_varlong, remaining, skip, take


cdef enum:
    # attribute bits
    CODEC = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    # sizes
    SIZE_PREFIX = 12         # bytes of base offset and length; the length field does not count them
    UP_TO_MAGIC = 17
    BEFORE_ATTRIBUTES = 21
    HEADER_BYTES = 61
    MIN_BATCH_SIZE = 14      # the smallest length in any format (an empty v0 message)


cdef enum Found:
    FOUND_BATCH            # a v2 batch
    FOUND_OLD              # a v0 or v1 message (see message_set.pxd); only base_offset, size and magic are set
    FOUND_END              # no bytes, or a batch that was cut off
    FOUND_BAD_SIZE
    FOUND_BAD_MAGIC


cdef struct BatchHeader:
    int64_t base_offset
    int32_t size
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t record_count
    Span covered             # the bytes over which the crc is computed
    Span body                # the records


cdef Found next_batch(Span* data, BatchHeader* out) noexcept nogil


cdef struct Record:
    int64_t timestamp_delta
    int64_t offset_delta
    int32_t key_size         # -1: null
    int32_t value_size
    const unsigned char* key
    const unsigned char* value
    Span headers             # the header count and the headers


cdef inline int64_t offset_at(int64_t base, int64_t delta) noexcept nogil:
    """Returns `base + delta`. Overflow wraps around as in Java; in C it would be undefined."""
    return <int64_t> (<uint64_t> base + <uint64_t> delta)


cdef inline bint read_nullable(Span* span, const unsigned char** out, int32_t* size) noexcept nogil:
    """Read the length and the bytes of a key or value. Any negative length means null, as in Java."""
    if not read_varint(span, size):
        return False
    out[0] = span.p
    if size[0] < 0:
        size[0] = -1
        return True
    return skip(span, size[0])


cdef inline bint read_record(Span* span, Record* out) noexcept nogil:
    """Read one record, except its headers, and advance `span` past it.

    Returns False if the record is malformed before its headers. The position of `span` is undefined then.
    """
    cdef int32_t size, offset_delta
    cdef int8_t attributes
    cdef Span body
    if not (
        read_varint(span, &size)
        and take(span, size, &body)
        and read_i8(&body, &attributes)
        and read_varlong(&body, &out.timestamp_delta)
        and read_varint(&body, &offset_delta)
        and read_nullable(&body, &out.key, &out.key_size)
        and read_nullable(&body, &out.value, &out.value_size)
    ):
        return False
    out.offset_delta = offset_delta
    out.headers = body
    return True


cdef inline bint check_headers(Span headers) noexcept nogil:
    """Returns whether `headers` contains a count and exactly that number of valid headers, without further bytes."""
    cdef int32_t count, size
    cdef const unsigned char* at
    if headers.end - headers.p == 1 and headers.p[0] == 0:
        return True      # no headers, as in most records
    if not read_varint(&headers, &count) or count < 0:
        return False
    for _ in range(count):
        if not read_varint(&headers, &size) or not skip(&headers, size):
            return False
        if not read_nullable(&headers, &at, &size):
            return False
    return headers.p == headers.end
