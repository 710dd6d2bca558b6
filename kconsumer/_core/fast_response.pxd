"""Parses the Fetch responses of the fast path, and takes their records."""

from libc.stdint cimport int64_t

from kconsumer._core.fast_connection cimport MAX_PARTITIONS, FastConnection, Update
from kconsumer._core.wire cimport Slice


cdef class ResponseParser:
    cdef object track                  # `track(memory)` counts received memory
    cdef bint check_crcs
    cdef bint read_committed
    cdef Py_ssize_t batch_limit
    cdef int64_t parsed                # the number of responses that were parsed
    cdef Update updates[MAX_PARTITIONS]

    cdef bint parse(self, FastConnection connection, Slice frame, list seen) except -1
    cdef bint take_records(
        self, list seen, Py_ssize_t max_records, Py_ssize_t max_bytes, list runs, dict skipped
    ) except -1
