"""Runs of checked records, and the iterator that makes ConsumerRecords of them.

Contents:
    Segment           records of one batch, in one piece of memory
    read_next         take one record off the front of a Span, whatever its format
    RecordRun         segments of one partition, in order: what one take() returns
    RecordIterator    walks over the records of several runs
"""

from libc.stdint cimport int8_t, int32_t, int64_t

from kconsumer._core.batch cimport Record, read_record
from kconsumer._core.message_set cimport read_message
from kconsumer._core.record cimport ConsumerRecord
from kconsumer._core.wire cimport Span


cdef struct Segment:
    Span span                  # from the first record to the end of the last one
    Py_ssize_t count           # records in it at or above `floor`
    int64_t floor              # records below are passed over
    int64_t base_offset        # what a record's offset delta is added to
    int64_t base_timestamp
    bint one_timestamp         # base_timestamp is that of every record; otherwise deltas are added to it
    int8_t timestamp_kind      # a TimestampType's number
    int8_t magic               # the format of the records: 2, or 0 and 1 as in `legacy`
    int32_t leader_epoch       # -1: none
    Py_ssize_t batch_at        # where the batch starts in the fetched bytes


cdef inline bint read_next(Span* span, int magic, Record* out) noexcept nogil:
    """Take one record of that format off the front of the span; False, and `span` anywhere, if it is malformed."""
    if magic == 2:
        return read_record(span, out)
    return read_message(span, magic, out)


cdef class RecordRun:
    cdef readonly object topic_partition
    cdef readonly int64_t next_offset      # the position after these records
    cdef int32_t epoch                     # of that position; -1: none
    cdef Py_ssize_t count
    cdef readonly Py_ssize_t size          # bytes of the records when they were taken
    # Segments are malloc'd here and freed when the run dies; owners[i] keeps the bytes of segments[i] alive.
    cdef Segment* segments
    cdef Py_ssize_t used
    cdef Py_ssize_t room
    cdef list owners
    # What deserializers made, one object a record; None where there is no deserializer.
    cdef list keys
    cdef list values
    # The fetch the run was taken from, until it is certain that it will not be taken again, and where that
    # fetch stood before.
    cdef object source
    cdef int64_t offset_before
    cdef int32_t epoch_before

    cdef int add(self, const Segment* segment, object owner) except -1
    cdef int stop_before(self, Py_ssize_t index, int64_t last_offset) except -1
    cdef Segment* segment_of(self, Py_ssize_t index) noexcept
    cdef int cut(self, Py_ssize_t count) noexcept


cdef class RecordIterator:
    cdef tuple runs
    cdef Py_ssize_t next_run
    cdef RecordRun run
    cdef Py_ssize_t next_segment
    cdef Py_ssize_t index          # of the next record in the run
    cdef Segment segment           # what is left of the segment being walked
    cdef object owner
    cdef bint has_objects          # deserializers made keys or values of the run
    # The last two records given out. When the next one is asked for, a loop variable still holds the newer,
    # but often nobody the older, and then it is used again.
    cdef ConsumerRecord even
    cdef ConsumerRecord odd
    cdef bint turn                 # whether `even` is the newer

    cdef bint advance(self) except -1
    cdef ConsumerRecord next_record(self)
    cdef ConsumerRecord take_blank(self)
    cdef int give_objects(self, ConsumerRecord record) except -1


cdef RecordRun new_run(object topic_partition, object source)
