# The metrics that compiled code records.

from libc.stdint cimport int64_t


cdef class SensorPair:
    cdef readonly SampledValues first
    cdef readonly SampledValues second


cdef class NodeSensors:
    cdef SampledValues outgoing
    cdef SampledValues incoming
    cdef SampledValues requests
    cdef SampledValues responses
    cdef SampledValues latency
    cdef int64_t received           # bytes
    cdef int64_t responses_received


cdef class ConnectionEvents:
    cdef SampledValues waits
    cdef SampledValues work
    cdef object new_node        # returns the NodeSensors of a node id
    cdef dict nodes             # node id -> NodeSensors
    cdef list received_from     # NodeSensors of the connections that received something in the present poll

    cdef NodeSensors node(self, str node_id)
    cpdef int sent(self, str node_id, int64_t size, int64_t request_size, double now) except -1
    cpdef int received(self, str node_id, int64_t size, int64_t responses) except -1
    cpdef int completed(self, object reply) except -1
    cpdef int exchanged(self, str node_id, double latency_ms, double now) except -1
    cpdef int polled(self, int64_t selects, double waited_ms, double busy_ms, double now) except -1


cdef class DataSensors:
    cdef readonly SensorPair requests   # bytes and records of each response
    cdef readonly SensorPair consumed   # bytes and records that a poll has taken


cdef class TopicTally:
    cdef readonly int64_t bytes
    cdef readonly int64_t records


cdef class ResponseTally:
    cdef readonly int64_t unread    # the number of partitions whose data is neither read nor dropped yet
    cdef readonly int64_t bytes
    cdef readonly int64_t records
    cdef readonly dict topics       # the TopicTally of each topic

    cpdef int expect(self) except -1
    cpdef int add(self, str topic, int64_t size, int64_t records) except -1


cdef class FetchEvents:
    cdef SensorPair responses       # latency and throttle time
    cdef DataSensors data           # of all topics
    cdef object new_topic           # returns the DataSensors of a topic; None: the topic is gone
    cdef readonly dict topics       # topic -> DataSensors
    cdef readonly dict partitions   # partition -> SensorPair of lag and lead
    cdef readonly dict returned     # partition -> timestamp (ms since 1970) of the last record that a poll returned
    cdef list taken                # partition, size and number of records of each run of the last poll
    cdef bint read_committed
    cdef public SampledValues filtered    # the number of records that a filter has dropped; None: there is no filter

    cpdef int record_filtered(self, int64_t records, double now) except -1
    cpdef int record_response(self, double latency_ms, double throttle_ms, double now) except -1
    cpdef int record_returned(self, list runs, dict positions, object states, double now) except -1
    cpdef int record_unreturned(self, object kept, double now) except -1
    cpdef int record_drained(self, ResponseTally tally, double now) except -1
    cdef DataSensors topic(self, str topic)
    cdef int record_lag(self, SensorPair sensors, object state, int64_t offset, double now) except -1


cdef class PollEvents:
    cdef SensorPair between     # the time between two polls: the mean and the maximum
    cdef SampledValues idle     # which share of the time between two polls the first of them waited
    cdef double last            # when the last poll began; NaN: there was none
    cdef double work_ms         # the time between the last poll that may have waited and the poll before it
    cdef double waited_until    # when that poll ended its wait; 0: it did not wait, or its wait is recorded

    cpdef int poll_began(self, double now) except -1
    cpdef int quick_poll(self, double now) except -1
    cpdef int wait_ended(self, double now) except -1
