# Taking records from the buffer. `kconsumer/fetching/collector.py` has the rest of this class.

from kconsumer._core.decode cimport RecordTest
from kconsumer._core.metrics cimport FetchEvents


cdef class RecordTaker:
    cdef readonly AssignedPartitions _assignment
    cdef readonly ChangeLog _changes
    cdef readonly Delivery _delivery
    cdef readonly BufferQueue _buffer
    cdef readonly FetchEvents _metrics       # or None
    cdef readonly type _batch                # ConsumerRecords
    cdef readonly bint _deserializes         # `collect` runs deserializers
    cdef readonly bint _selects              # there is a `_test` or a `_filter`
    cdef readonly RecordTest _test           # selects records, or None
    cdef readonly object _filter             # selects records, and is user code; or None
    cdef readonly bint _unlocks              # `collect` runs user code
    cdef dict _passed                        # positions behind dropped records that no batch contains yet
    cdef Py_ssize_t _dropped                 # records that filters have dropped in the running call
    cdef readonly bint _auto_store           # `_pass_over` need not be called
    cdef readonly bint deferred              # the caller runs deserializers between `collect` and `finish`
    cdef public object collected             # what the last `collect` has taken, if `deferred`
    cdef public dict _skipped
    cdef public Py_ssize_t _output_left      # bytes that the running call may still decompress
    cdef public bint positions_advanced      # the last call moved a position, but returned no record
    cdef public bint out_of_memory           # the last call raised MemoryError; the data it was taking is unchanged
    cdef public bint busy                    # deserializers are running, so no records can be taken

    cdef object take(self, Py_ssize_t max_records, object max_bytes)
    cdef Py_ssize_t take_from(
        self, CompletedFetch fetch, Py_ssize_t limit, Py_ssize_t room, list runs, dict moved_to, dict skipped
    ) except -1
    cdef object may_take(self, CompletedFetch fetch)
    cdef object run_of(self, CompletedFetch fetch, object position, Py_ssize_t limit, Py_ssize_t room)
    cdef int count_dropped(self, Py_ssize_t count) except -1
    cdef int return_passed(self) except -1
    cdef dict take_passed(self)
    cdef int advance(self, CompletedFetch fetch, object position, dict moved_to, dict skipped) except -1
    cdef int record(self, list runs, dict moved_to) except -1
