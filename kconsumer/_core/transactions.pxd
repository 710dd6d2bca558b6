"""Which producers are in an aborted transaction, as one walks up the batches of a partition.

Contents:
    AbortedIndex       told how far one is, says whose records are not to be given out
    marker_type        what the first record of a control batch says
"""

from libc.stdint cimport int64_t

from kconsumer._core.wire cimport Span


cdef enum:
    # marker_type
    NO_MARKER = -2       # there is no record
    BAD_MARKER = -1
    ABORT_MARKER = 0     # 1 is COMMIT; higher ones are not of transactions


cdef class AbortedIndex:
    cdef list begins             # (first offset, producer id) of every aborted transaction, in order
    cdef Py_ssize_t passed       # how many of them have begun
    cdef int64_t next_begin      # the first offset of the next one; INT64_MAX: there is none
    cdef set producers           # those in an aborted transaction here
    cdef list changes            # what was done at which place in the fetched bytes, so that it can be undone

    cdef int go_to(self, Py_ssize_t passed) except -1
    cpdef int reach(self, int64_t last_offset, Py_ssize_t at) except -1
    cpdef bint covers(self, int64_t producer_id) except -1
    cpdef int end(self, int64_t producer_id, Py_ssize_t at) except -1
    cpdef int rewind(self, Py_ssize_t at) except -1


cdef int marker_type(Span records) noexcept nogil
