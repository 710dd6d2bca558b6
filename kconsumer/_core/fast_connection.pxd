"""The copies of state that the fast path of fetching changes.

Contents:
    Update                    what a response reports of one partition
    EmptyResponse             the metrics of a response without partitions
    FastPartition             the copy of the state of one partition
    FastConnection            the copy of the state of one connection
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t

from kconsumer._core.metric_events cimport DataSensors, NodeSensors, SensorPair
from kconsumer._core.wire cimport FrameBuffer, Slice, Span


cdef enum:
    TOPIC_ID_BYTES = 16
    MAX_PARTITIONS = 256               # of one response; one with more is handed over
    MAX_EMPTY = 16                     # empty responses of a connection whose metrics are recorded together


cdef struct Update:
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t next_offset                # equal to the position if there are no records
    int64_t bytes                      # of the records; 0 if there are none, as in the next one
    int64_t records                    # without control records
    int64_t record_bytes               # the uncompressed size of these


cdef struct EmptyResponse:
    double now                         # ms, as the others
    double latency_ms
    double waited_ms


cdef class FastPartition:
    cdef readonly object requested
    cdef readonly object topic_partition
    cdef bytes topic_id
    cdef int32_t number
    cdef int32_t leader_epoch
    cdef int32_t max_bytes
    cdef readonly int64_t offset             # the position, and the offset in the fetch in flight
    cdef readonly object offset_epoch        # the leader epoch of the record before `offset`, or None
    cdef readonly int64_t offset_before      # the position before the last poll that has moved it
    cdef readonly object epoch_before
    cdef readonly bint advanced              # the position has moved since the fast path was armed
    cdef readonly int64_t high_watermark     # -1: not reported since then, as the next two
    cdef readonly int64_t last_stable_offset
    cdef readonly int64_t log_start_offset
    cdef Slice records                       # while a response is processed: its records, as the next one
    cdef DataSensors consumed                # of the topic; None without metrics or before the first records, as `lags`
    cdef SensorPair lags                     # of the partition
    cdef object next_epoch                   # the leader epoch of the record before the next offset, or None
    cdef int64_t moved_in                    # the number of the last poll that has moved the position
    cdef int64_t seen_in                     # the number of the last response that contained the partition


cdef class FastConnection:
    cdef readonly object flight              # the InFlightFetch with which the fast path was armed
    cdef readonly object unsent              # the UnsentRequest of that fetch
    cdef readonly object node                # its NodeConnection
    cdef readonly int descriptor
    cdef FrameBuffer frames
    cdef object recv_into
    cdef object send
    cdef object find
    cdef object blocked
    cdef bytes head
    cdef bytes tail
    cdef int32_t session_id
    cdef readonly int32_t epoch              # of the request in flight, as the next two
    cdef readonly int32_t correlation_id
    cdef readonly double sent_at             # ms
    cdef readonly double responded_at        # ms; 0: there was no response since the fast path was armed
    cdef Py_ssize_t received                 # bytes of the response to the request in flight
    cdef readonly dict partitions            # FastPartitions by topic id and number (bytes)
    cdef readonly bytes request              # the last request, if the socket has not taken all of it; None: it has
    cdef readonly Py_ssize_t sent            # the number of bytes of `request` that the socket has taken
    cdef readonly object error               # the exception of the last recv or send; None: there was none
    cdef NodeSensors sensors                 # None without metrics
    cdef bint is_socket                      # `recv_into` and `send` only call the system
    cdef bytes empty_request                 # what follows an empty response; None: it is not sent by `exchange_empty`
    cdef uint32_t max_wait_ms                # in `head`: how long the broker may wait for records
    cdef bint expects_empty                  # the last response was empty
    cdef EmptyResponse unrecorded[MAX_EMPTY]  # the empty responses whose metrics are not recorded yet
    cdef int unrecorded_count
    cdef int low_water                       # how many bytes the socket must have before it is reported

    cdef FastPartition partition(self, Span* topic_id, int32_t number)
    cdef Py_ssize_t receive(self) except -2
    cdef Py_ssize_t send_bytes(self, bytes data) except -1
    cdef int send_request(self) except -1
    cdef int wait_for_rest(self) noexcept
    cpdef void wait_for_any(self) noexcept


cdef inline int32_t following_epoch(int32_t epoch) noexcept:
    """Returns the next fetch session epoch. After the largest epoch, this is 1, because 0 starts a session."""
    return <int32_t> (epoch + 1) if epoch < INT32_MAX else 1
