# Decides which transactional batches were aborted, and parses the markers of transactions.
#
# Contents:
#     AbortedIndex       the producers whose transactional records must be skipped at the current batch
#     marker_type        returns the type of a control batch

from libc.stdint cimport int64_t

from kconsumer._core.wire cimport Span


cdef enum:
    # Results of marker_type
    NO_MARKER = -2       # the batch has no record
    BAD_MARKER = -1      # the record is malformed
    ABORT_MARKER = 0     # 1 is COMMIT; other values are not markers of transactions


cdef class AbortedIndex:
    cdef list begins             # (first offset, producer id) of all aborted transactions, in order
    cdef Py_ssize_t passed       # the number of items of `begins` up to the current batch
    cdef int64_t next_begin      # the first offset of the next aborted transaction; INT64_MAX: none
    cdef set producers           # producers in an aborted transaction at the current batch
    cdef list changes            # for `rewind`, changes of `producers`: (at, producer id, begun, was in the set before)

    cdef int set_passed(self, Py_ssize_t passed) except -1
    cpdef int advance(self, int64_t last_offset, Py_ssize_t at) except -1
    cpdef bint covers(self, int64_t producer_id) except -1
    cpdef int end(self, int64_t producer_id, Py_ssize_t at) except -1
    cpdef int rewind(self, Py_ssize_t at) except -1


cdef int marker_type(Span records) noexcept nogil
