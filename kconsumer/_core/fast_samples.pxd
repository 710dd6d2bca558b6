"""The metrics of polls and responses of the fast path that are not recorded yet."""

from libc.stdint cimport int64_t

from kconsumer._core.fast_connection cimport FastConnection, FastPartition
from kconsumer._core.metric_events cimport ConnectionEvents, FetchEvents, PollEvents


cdef enum:
    MAX_SAMPLES = 64                   # responses, and polls, that are recorded together


cdef struct ResponseSample:
    double now                         # ms, as the next two
    double latency_ms
    double waited_ms
    int64_t received                   # bytes of the response
    int64_t sent                       # bytes of the next request that the socket has taken
    Py_ssize_t partitions              # how many samples of partitions belong to it


cdef struct PartitionSample:
    int64_t bytes
    int64_t records
    int64_t lag                        # records
    int64_t lead
    bint has_lag                       # lag and lead are known
    bint counted                       # in the sums of its topic


cdef struct PollSample:
    double began                       # ms, as the next one
    double ended                       # the end of the wait; 0: unknown


cdef class FastSamples:
    cdef ResponseSample responses[MAX_SAMPLES]
    cdef readonly int response_count
    cdef list connections              # of the responses; None in unused places, as in `sources`
    cdef PartitionSample* partitions
    cdef Py_ssize_t partition_count
    cdef Py_ssize_t room               # for samples of partitions
    cdef list sources                  # the FastPartitions of these
    cdef PollSample polls[MAX_SAMPLES]
    cdef readonly int poll_count
    cdef int64_t recorded              # how often samples were recorded

    cdef int reserve(self, Py_ssize_t partitions) except -1
    cdef int add_partition(self, FastPartition partition, const PartitionSample* sample) noexcept
    cdef int add_response(self, FastConnection connection, const ResponseSample* sample) noexcept
    cdef int set_sent(self, int64_t recorded, int64_t sent) noexcept
    cdef int begin_poll(self, double now) noexcept
    cdef int end_poll(self, double now) noexcept
    cdef int record(self, ConnectionEvents network, FetchEvents fetches, PollEvents polls) except -1
    cdef int record_partitions(self, FetchEvents fetches, Py_ssize_t begin, Py_ssize_t end, double now) except -1
