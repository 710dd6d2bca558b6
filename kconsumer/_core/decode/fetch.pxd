# PartitionFetch: the fetched bytes of one partition, and what is left of them.

from libc.stdint cimport int32_t, int64_t

from kconsumer._core.wire cimport Slice, Span


cdef struct OpenBatch:
    # The batch whose records are being returned.
    RunSegment segment     # the values that all its records share; `segment.span`: the records not returned yet
    Py_ssize_t left        # the number of records in `segment.span`
    int64_t last_offset
    int64_t reached        # the expected offset of the next record, for error messages
    bint control           # a control batch: none of its records is returned
    const char* defect     # describes an error in the bytes after the records in `segment.span`; NULL: none


cdef class PartitionFetch:
    cdef readonly object topic_partition
    cdef readonly int64_t next_offset
    cdef int32_t epoch                # leader epoch of next_offset; -1: none
    cdef int64_t floor                # records below this offset are skipped
    cdef bint check_crcs
    cdef bint log_bytes
    cdef Slice data
    cdef Span rest                    # batches that were not opened yet
    cdef bint begun                   # at least one complete batch was found
    cdef Slice owner                  # keeps the open batch's records alive; None: no batch is open
    cdef OpenBatch batch
    cdef AbortedIndex aborted         # None unless read_committed
    cdef readonly Py_ssize_t output_bytes  # decompressed size of all batches so far
    cdef PrefetchDecompressor prefetched  # decompresses batches before their turn; None until the first such batch
    cdef Py_ssize_t batch_limit       # maximum decompressed size of one batch; 0: depends on its compressed size
    cdef object on_decompressed       # called with each memory block that a batch was decompressed into; or None
    cdef object error                 # the error that every later take() raises; None: no error
    cdef list skipped                 # skipped batches: (first offset, offset after the last, reason); or None

    cdef RecordRun next_run(
        self, Py_ssize_t max_records, Py_ssize_t max_bytes, Py_ssize_t max_output, RecordTest test
    )
    cdef bint is_exhausted(self) noexcept
    cdef Py_ssize_t position_in_data(self)
    cdef bint open_batch(self) except -1
    cdef int note_skipped(self, const BatchHeader* header, str reason) except -1
    cdef int check_found(self, Found found, const unsigned char* start, BatchHeader* header) except -1
    cdef int check_header(self, const BatchHeader* header) except -1
    cdef int begin_batch(self, const BatchHeader* header, Py_ssize_t at) except -1
    cdef bint is_aborted(self, const BatchHeader* header) except -1
    cdef int find_records(self, const BatchHeader* header, Slice owner) except -1
    cdef int find_messages(self, const BatchHeader* header, Slice owner, const unsigned char* start) except -1
    cdef Slice decompressed(self, Slice data, const BatchHeader* header)
    cdef Slice decompressed_now(self, Slice data, const BatchHeader* header, Slice packed, Py_ssize_t limit)
    cdef int take_from_batch(self, RecordRun run, Py_ssize_t limit, Py_ssize_t size, RecordTest test) except -1
    cdef int end_batch(self) except -1
    cdef int close_batch(self) except -1
    cdef Py_ssize_t log_limit(self, Slice data) except -1
    cdef object too_large(self, Slice data, const BatchHeader* header, Py_ssize_t limit)
    cdef object corrupt(self, int64_t offset, str what, int64_t after=*)
    cdef object corrupt_batch(self, const BatchHeader* header, str what)


cdef PartitionFetch new_fetch(
    object topic_partition,
    Slice records,
    int64_t fetch_offset,
    bint check_crcs,
    bint read_committed,
    object on_decompressed,
    Py_ssize_t batch_limit,
)
