"""ConsumerRecord: where a record's parts are, and the objects made of them so far."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kconsumer._core.wire cimport Span


cdef enum:
    # ConsumerRecord.made
    MADE_KEY = 1
    MADE_VALUE = 2
    MADE_HEADERS = 4


cdef class ConsumerRecord:
    cdef readonly object topic_partition      # one TopicPartition for all records of a run
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int32_t serialized_key_size     # -1: null
    cdef readonly int32_t serialized_value_size
    cdef int32_t epoch                        # -1: none
    cdef int8_t timestamp_kind                # a TimestampType's number
    cdef uint8_t made                         # which of the next three are there
    cdef object key_object
    cdef object value_object
    cdef object headers_object
    # The bytes that `value_object` was made with room for; 0: it is not ours to fill again.
    cdef Py_ssize_t value_room
    # The bytes the rest is made from; they are valid as long as `owner` lives.
    cdef object owner
    cdef const unsigned char* key_at
    cdef const unsigned char* value_at
    cdef Span headers_at


cdef ConsumerRecord blank_record()
cdef object changed()
cdef tuple read_headers(Span span)


cdef inline int forget(ConsumerRecord record) except -1:
    """Undo what was made of a record that will be filled again."""
    if record.made & MADE_VALUE and not record.value_room:
        record.value_object = None
    if record.made & ~MADE_VALUE:
        record.key_object = record.headers_object = None
    record.made = 0
    return 0
