"""Handles Fetch responses without partitions, which brokers send to idle consumers."""

from kconsumer._core.fast_connection cimport FastConnection
from kconsumer._core.metric_events cimport ConnectionEvents, FetchEvents


cdef int prepare_exchange(FastConnection connection) except -1
cdef int record_empty(FastConnection connection, ConnectionEvents network, FetchEvents fetches) except -1
cdef bint exchange_empty(
    FastConnection connection,
    double now,
    double waited_ms,
    ConnectionEvents network,
    FetchEvents fetches,
    bint align,
) except -1
