# Runs of checked records, and the iterator that creates ConsumerRecords from them.
#
# A run is a sequence of records of one partition in offset order.
#
# Contents:
#     RunSegment        consecutive records of one batch
#     read_next         reads one record of a Span in any format, and advances past it
#     RecordRun         the segments of one run: the result of PartitionFetch.take(), or records of a user
#     RecordIterator    iterates over the records of several runs

from libc.stdint cimport int8_t, int32_t, int64_t

from kconsumer._core.wire cimport Span


cdef struct RunSegment:
    Span span                  # from the first record to the end of the last one
    Py_ssize_t count           # number of records at or above `floor`
    int64_t floor              # records below this offset are skipped
    int64_t base_offset        # a record's offset is base_offset + its offset delta
    int64_t base_timestamp
    bint one_timestamp         # True: base_timestamp applies to all records; False: add each record's timestamp delta
    int8_t timestamp_kind      # the value of a TimestampType
    int8_t magic               # the format of the records: 2, or 0 and 1 (see message_set.pxd)
    int32_t leader_epoch       # -1: none
    Py_ssize_t batch_at        # index in the fetched bytes at which the batch starts
    int64_t last_timestamp     # of the last record; unused if there is none


cdef inline bint read_next(Span* span, int magic, Record* out) noexcept nogil:
    """Read one record of this format and advance `span` past it. Returns False if it is malformed."""
    if magic == 2:
        return read_record(span, out)
    return read_message(span, magic, out)


cdef inline int64_t timestamp_of(const RunSegment* segment, int64_t delta) noexcept nogil:
    """Returns the timestamp of a record with this delta."""
    return segment.base_timestamp if segment.one_timestamp else offset_at(segment.base_timestamp, delta)


cdef class RecordRun:
    cdef readonly object topic_partition
    cdef readonly int64_t next_offset      # the position after these records
    cdef int32_t epoch                     # leader epoch of next_offset; -1: none
    cdef Py_ssize_t count
    cdef readonly Py_ssize_t size          # serialized size of the records in bytes
    cdef readonly Py_ssize_t dropped       # how many records a filter has dropped
    # Allocated by malloc and freed with the run; owners[i] keeps the bytes of segments[i] alive.
    cdef RunSegment* segments
    cdef Py_ssize_t used
    cdef Py_ssize_t room
    cdef list owners
    # Results of the deserializers, one object per record; None without a deserializer.
    cdef list keys
    cdef list values
    cdef list objects              # the records of a run that was created by run_of(), which has no segments; else None
    cdef object source             # the PartitionFetch that the run was taken from; None: the run cannot be shortened
    cdef int delivery_count        # of all records, acquired by a share consumer; 0: iteration creates ConsumerRecords
    cdef object acknowledger       # of these ShareRecords
    cdef int64_t offset_before     # the position of `source` before the run was taken
    cdef int32_t epoch_before      # leader epoch of that position; -1: none

    cdef int add(self, const RunSegment* segment, object owner) except -1
    cdef int stop_before(self, Py_ssize_t index, int64_t last_offset) except -1
    cdef RunSegment* segment_of(self, Py_ssize_t index) noexcept
    cdef int64_t last_timestamp(self)
    cdef int cut(self, Py_ssize_t count) noexcept


cdef class RecordIterator:
    cdef tuple runs
    cdef Py_ssize_t next_run
    cdef RecordRun run
    cdef Py_ssize_t next_segment
    cdef Py_ssize_t index          # index of the next record in the run
    cdef RunSegment segment        # the rest of the current segment
    cdef object owner
    cdef list objects              # the records of the current run if it was created by run_of(); else None
    cdef bint has_objects          # the run has deserialized keys or values
    cdef bint shares               # the records are ShareRecords
    # The last two records returned. When the next one is requested, a loop variable still refers to the newer one. If
    # nothing refers to the older one, it is filled again.
    cdef ConsumerRecord even
    cdef ConsumerRecord odd
    cdef bint turn                 # True: `even` is the newer one

    cdef bint advance(self) except -1
    cdef ConsumerRecord next_record(self)
    cdef ConsumerRecord take_blank(self)
    cdef int give_objects(self, ConsumerRecord record) except -1


cdef RecordRun new_run(object topic_partition, object source)
