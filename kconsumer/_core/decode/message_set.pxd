# Message sets, magic 0 and 1: the format before Kafka 0.11, which old log segments may still have.
#
# A message, big-endian:                      A message whose attributes name a codec is a wrapper: its value is a
#      0  offset             i64              compressed message set, its key is ignored.
#      8  size               i32, of the rest
#     12  crc                u32 (IEEE), of the rest
#     16  magic              i8, 0 or 1
#     17  attributes         i8
#     18  timestamp          i64, magic 1 only
#         key                i32 length (negative: null), bytes
#         value              the same; further bytes are ignored
#
# Contents:
#     read_message           reads one message of a Span as a Record, and advances past it
#     read_outer             reads the remaining header fields of a message that `batch.next_batch` found
#     Messages               checked messages: the result of the next two functions
#     find_uncompressed      finds consecutive uncompressed messages
#     find_wrapped           finds the messages inside a wrapper

from libc.stdint cimport int32_t, int64_t

from kconsumer._core.wire cimport Span, kc_load_be32, kc_load_be64, read_i32, remaining, skip, take


cdef enum:
    # offsets of fields in a message
    CRC_AT = 12
    MAGIC_AT = 16
    ATTRIBUTES_AT = 17
    TIMESTAMP_AT = 18
    # the smallest values of the field `size`
    MIN_V0_SIZE = 14
    MIN_V1_SIZE = 22


cdef inline bint read_sized(Span* span, const unsigned char** out, int32_t* size) noexcept nogil:
    """Read the length and the bytes of a key or value. Any negative length means null, as in Java."""
    if not read_i32(span, size):
        return False
    out[0] = span.p
    if size[0] < 0:
        size[0] = -1
        return True
    return skip(span, size[0])


cdef inline bint read_message(Span* span, int magic, Record* out) noexcept nogil:
    """Read one message and advance `span` past it.

    The deltas of `out` are the message's offset and timestamp (-1 in format 0). Returns False if the message is
    malformed. The position of `span` is undefined then.
    """
    cdef const unsigned char* p = span.p
    cdef Span body
    cdef int32_t size
    if remaining(span) < CRC_AT:
        return False
    size = <int32_t> kc_load_be32(p + 8)
    if size < 0 or size > remaining(span) - CRC_AT or not take(span, CRC_AT + <Py_ssize_t> size, &body):
        return False
    if not skip(&body, TIMESTAMP_AT if magic == 0 else TIMESTAMP_AT + 8):
        return False
    out.offset_delta = <int64_t> kc_load_be64(p)
    out.timestamp_delta = -1 if magic == 0 else <int64_t> kc_load_be64(p + TIMESTAMP_AT)
    if not read_sized(&body, &out.key, &out.key_size) or not read_sized(&body, &out.value, &out.value_size):
        return False
    out.headers.p = out.headers.end = body.end
    return True


cdef bint read_outer(Span message, BatchHeader* header) noexcept nogil


cdef struct Messages:
    Span span                # the valid messages
    Py_ssize_t count         # the number of valid messages
    int64_t base_offset      # must be added to each message's offset
    int64_t first_offset     # offset of the first message, which may be invalid; without base_offset
    int64_t last_offset      # offset of the last message
    const char* defect       # describes the error in the first invalid message; NULL: no error


cdef int find_uncompressed(Span* data, int64_t floor, bint check_crcs, Messages* out) except -1
cdef int find_wrapped(Span plain, const BatchHeader* wrapper, int64_t floor, bint check_crcs, Messages* out) except -1
