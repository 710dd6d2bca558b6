# ConsumerRecord: pointers to the serialized parts of a record, and the Python objects created from them so far.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kconsumer._core.wire cimport Span


cdef enum:
    # Bits of ConsumerRecord.made
    MADE_KEY = 1
    MADE_VALUE = 2
    MADE_HEADERS = 4


cdef class ConsumerRecord:
    cdef readonly object topic_partition      # one TopicPartition for all records of a run
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int32_t serialized_key_size     # -1: null
    cdef readonly int32_t serialized_value_size
    cdef int32_t epoch                        # leader epoch; -1: none
    cdef int8_t timestamp_kind                # the value of a TimestampType
    cdef uint8_t made                         # which of the next three objects are set
    cdef object key_object
    cdef object value_object
    cdef object headers_object
    # The allocated size of `value_object` in bytes if it may be reused for another value (see refill.h); otherwise 0.
    cdef Py_ssize_t value_room
    # The serialized parts; valid as long as `owner` lives.
    cdef object owner
    cdef const unsigned char* key_at
    cdef const unsigned char* value_at
    cdef Span headers_at


cdef ConsumerRecord blank_record()
cdef object changed_error()
cdef tuple read_headers(Span span)


cdef inline int forget(ConsumerRecord record) except -1:
    """Drop the objects of a record before it is filled again. Keeps a `value_object` that may be reused."""
    if record.made & MADE_VALUE and not record.value_room:
        record.value_object = None
    if record.made & ~MADE_VALUE:
        record.key_object = record.headers_object = None
    record.made = 0
    return 0
