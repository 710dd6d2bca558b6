"""Encodes the incremental Fetch requests of the fast path."""

from kconsumer._core.fast_connection cimport FastConnection, Update


cdef bytes next_request(FastConnection connection, list seen, Update* updates)
