"""Encodes the incremental Fetch requests of the fast path."""

from kconsumer._core.fast_connection cimport FastConnection, Update


cdef enum:
    CORRELATION_ID_AT = 8              # in a request: after its size, API key and version
    EPOCH_BYTES = 4                    # of the fetch session epoch, the last field before the topics


cdef bytes next_request(FastConnection connection, list seen, Update* updates)
