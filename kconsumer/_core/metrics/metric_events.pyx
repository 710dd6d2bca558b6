"""Records the metrics of events that happen in each poll: polls, bytes and responses of connections, fetched data.

Each event is one call. The modules `metrics.py` of `kconsumer.net`, `kconsumer.fetching` and `kconsumer.engine` create
the sensors, and record the other events. `now` and durations are in ms.
"""

cimport cython
from libc.math cimport NAN, isnan
from libc.stdint cimport int64_t

from kconsumer._core.decode cimport RecordRun

cdef double NS_PER_MS = 1e6


cdef class SensorPair:
    """Two sensors that are always recorded together, at the same time."""

    def __cinit__(self, SampledValues first not None, SampledValues second not None):
        self.first, self.second = first, second

    def record(self, double first_value, double second_value, double now, int64_t count=1):
        """Record a value in each sensor. `now` and `count` are those of `SampledValues.record`, for both."""
        add_both(self, first_value, second_value, now, count)


cdef int add_both(SensorPair pair, double first_value, double second_value, double now, int64_t count) except -1:
    """Record a value in each sensor of a pair."""
    add(pair.first, first_value, now, count)
    return add(pair.second, second_value, now, count)


cdef class NodeSensors:
    """The sensors of one connection, and the bytes and responses received in the present poll."""

    def __cinit__(
        self,
        SampledValues outgoing not None,
        SampledValues incoming not None,
        SampledValues requests not None,
        SampledValues responses not None,
        SampledValues latency not None,
    ):
        self.outgoing, self.incoming, self.requests, self.responses = outgoing, incoming, requests, responses
        self.latency = latency


@cython.final
cdef class ConnectionEvents:
    """Records what is sent and received, for each connection. Parents of these sensors have the totals."""

    def __cinit__(self, SampledValues waits not None, SampledValues work not None, new_node not None):
        self.waits, self.work, self.new_node = waits, work, new_node
        self.nodes, self.received_from = {}, []

    cdef NodeSensors node(self, str node_id):
        found = self.nodes.get(node_id)
        if found is None:
            found = self.nodes[node_id] = self.new_node(node_id)
        return <NodeSensors?> found

    cpdef int sent(self, str node_id, int64_t size, int64_t request_size, double now) except -1:
        """Record `size` bytes sent. `request_size` is the size of the request that these bytes complete, or 0 if they
        do not complete one."""
        cdef NodeSensors node = self.node(node_id)
        add(node.outgoing, <double> size, now, 1)
        if request_size:
            add(node.requests, <double> request_size, now, 1)
        return 0

    cpdef int received(self, str node_id, int64_t size, int64_t responses) except -1:
        """Count `size` bytes received, and the responses that they complete. `polled` records the sums, because this
        may be called many times for one response."""
        cdef NodeSensors node = self.node(node_id)
        if not node.received:
            self.received_from.append(node)
        node.received += size
        node.responses_received += responses
        return 0

    cpdef int completed(self, object reply) except -1:
        """Record the latency of a request that has ended. Ignores a request that ended with an error."""
        if reply.error is None:
            add(self.node(reply.node).latency, reply.now - reply.sent_at, reply.now, 1)
        return 0

    cpdef int exchanged(self, str node_id, double latency_ms, double now) except -1:
        """Record the latency of a request whose response its exchange has handled."""
        add(self.node(node_id).latency, latency_ms, now, 1)
        return 0

    cpdef int polled(self, int64_t selects, double waited_ms, double busy_ms, double now) except -1:
        """Record a poll that has ended: the number of selects, how long they waited, and how long it took to handle
        their events. Also records the bytes and responses that `received` has counted."""
        cdef NodeSensors node
        add(self.waits, waited_ms * NS_PER_MS, now, selects)
        add(self.work, busy_ms * NS_PER_MS, now, selects)
        for node in self.received_from:
            add(node.incoming, <double> node.received, now, 1)
            if node.responses_received:
                add(node.responses, 0.0, now, node.responses_received)
            node.received = node.responses_received = 0
        self.received_from.clear()
        return 0


cdef class PollEvents:
    """Records when polls began, and how long they waited. Any thread may call `settle`, so the object is locked."""

    def __cinit__(self, SensorPair between not None, SampledValues idle not None):
        self.between, self.idle, self.last = between, idle, NAN

    @property
    def last_poll(self):
        """When the last poll began. None if there was none."""
        return None if isnan(self.last) else self.last

    @cython.critical_section
    cpdef int poll_began(self, double now) except -1:
        """Record a poll that may have to wait, and the time since the poll before it.

        For the first poll, this time is 0, as in Java.
        """
        record_wait(self)
        self.work_ms = begin_poll(self, now)
        return 0

    @cython.critical_section
    cpdef int quick_poll(self, double now) except -1:
        """Record a poll that does not wait."""
        record_wait(self)
        begin_poll(self, now)
        add(self.idle, 0.0, now, 1)
        return 0

    @cython.critical_section
    cpdef int wait_ended(self, double now) except -1:
        """Record when the last poll stopped waiting. If it waits several times, the last end counts."""
        self.waited_until = now
        return 0

    @cython.critical_section
    def settle(self):
        """Record how long the last poll waited. Called before metrics are read."""
        record_wait(self)


cdef double begin_poll(PollEvents polls, double now) except? -1:
    """Record the time since the last poll. Returns it."""
    cdef double pause_ms = 0.0 if isnan(polls.last) else now - polls.last
    add_both(polls.between, pause_ms, pause_ms, now, 1)
    polls.last = now
    return pause_ms


cdef int record_wait(PollEvents polls) except -1:
    """Record how long the last poll waited, unless this was recorded before."""
    cdef double until = polls.waited_until, waited_ms = until - polls.last
    polls.waited_until = 0.0
    if waited_ms > 0:  # not if `last` is NaN
        add(polls.idle, waited_ms / (waited_ms + polls.work_ms), until, 1)
    return 0


@cython.final
cdef class ResponseTally:
    """Adds up the data of one Fetch response until all of it has been read or dropped."""

    def __cinit__(self):
        self.topics = {}

    cpdef int expect(self) except -1:
        """Count a partition whose data was buffered. `add` must be called for it later."""
        self.unread += 1
        return 0

    cpdef int add(self, str topic, int64_t size, int64_t records) except -1:
        """Add the bytes and records of a partition whose data has been read or dropped."""
        cdef TopicTally totals
        self.unread -= 1
        self.bytes += size
        self.records += records
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTally.__new__(TopicTally)
        totals = <TopicTally> found
        totals.bytes += size
        totals.records += records
        return 0


@cython.final
cdef class TopicTally:
    """The data of one topic in a Fetch response."""


cdef class DataSensors:
    """The sensors of fetched data, of one topic or of all topics: sums of each response, and of each poll."""

    def __cinit__(self, SensorPair requests not None, SensorPair consumed not None):
        self.requests, self.consumed = requests, consumed


@cython.final
cdef class FetchEvents:
    """Records what Fetch responses contain, in total, for each topic and for each partition."""

    def __cinit__(
        self, SensorPair responses not None, DataSensors data not None, new_topic not None, bint read_committed
    ):
        self.responses, self.data, self.new_topic = responses, data, new_topic
        self.topics, self.partitions, self.returned, self.read_committed = {}, {}, {}, read_committed
        self.taken = []

    cpdef int record_response(self, double latency_ms, double throttle_ms, double now) except -1:
        """Record the latency and the throttle time (ms) of a Fetch response."""
        return add_both(self.responses, latency_ms, throttle_ms, now, 1)

    cpdef int record_returned(self, list runs, dict positions, object states, double now) except -1:
        """Record what a poll returns: the number and the uncompressed size of the records of each run, and the
        timestamp of the last one. Also records the lag and lead of each partition whose position the poll has moved.

        `positions`: the new positions. `states`: the PartitionStates of the assigned partitions.
        """
        cdef RecordRun run
        for item in runs:
            run = <RecordRun?> item
            self.taken.append((run.topic_partition, run.size, run.count))
            record_consumed(self.data, run.size, run.count, now)
            record_consumed(self.topic(run.topic_partition.topic), run.size, run.count, now)
            if run.count and run.topic_partition in self.partitions:
                self.returned[run.topic_partition] = run.last_timestamp()
        for tp, position in positions.items():
            sensors, state = self.partitions.get(tp), states.get(tp)
            if sensors is not None and state is not None:
                self.record_lag(<SensorPair?> sensors, state, position.offset, now)
        return 0

    cpdef int record_unreturned(self, object kept, double now) except -1:
        """Subtract what the last poll has taken of partitions that are not in `kept`, because it is not returned."""
        cdef list left = []
        for entry in self.taken:
            tp, size, count = entry
            if tp in kept:
                left.append(entry)
            else:
                record_consumed(self.data, -size, -count, now)
                record_consumed(self.topic(tp.topic), -size, -count, now)
        self.taken = left
        return 0

    def record_cut(self, RecordRun run not None, int64_t offset, double now):
        """Subtract those records of a run of the last poll that begin at `offset`, because they are taken again."""
        cdef set offsets = {record.offset for record in run if record.offset >= offset}
        cdef int64_t size = run.size_of(offsets), count = len(offsets)
        self.taken.append((run.topic_partition, -size, -count))
        record_consumed(self.data, -size, -count, now)
        record_consumed(self.topic(run.topic_partition.topic), -size, -count, now)

    cpdef int record_filtered(self, int64_t records, double now) except -1:
        """Record how many records a filter has dropped."""
        return 0 if self.filtered is None else add(self.filtered, <double> records, now, 1)

    cdef int record_lag(self, SensorPair sensors, object state, int64_t offset, double now) except -1:
        """Record the lag and lead at an offset, like `PartitionState.lag` and `lead`, unless they are unknown."""
        end = state.last_stable_offset if self.read_committed else state.high_watermark
        start = state.log_start_offset
        if end is None or start is None:
            return 0
        return add_both(sensors, <double> (<int64_t> end - offset), <double> (offset - <int64_t> start), now, 1)

    cpdef int record_drained(self, ResponseTally tally, double now) except -1:
        """Record the sums of a response, after all its data has been read or dropped."""
        cdef TopicTally totals
        cdef DataSensors sensors
        add_both(self.data.requests, <double> tally.bytes, <double> tally.records, now, 1)
        for topic, found in tally.topics.items():
            totals, sensors = <TopicTally> found, self.topic(topic)
            if sensors is not None:
                add_both(sensors.requests, <double> totals.bytes, <double> totals.records, now, 1)
        return 0

    cdef DataSensors topic(self, str topic):
        """Returns the sensors of a topic. Creates them at the first call. Returns None if the topic is gone."""
        cdef DataSensors sensors = self.topics.get(topic)
        if sensors is None:
            sensors = self.new_topic(topic)
            if sensors is not None:
                self.topics[topic] = sensors
        return sensors


cdef int record_consumed(DataSensors sensors, int64_t size, int64_t records, double now) except -1:
    """Record the bytes and records that a poll has taken. Does nothing if `sensors` is None."""
    return 0 if sensors is None else add_both(sensors.consumed, <double> size, <double> records, now, 1)
