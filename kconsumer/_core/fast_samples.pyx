"""Stores the metrics of polls and responses of the fast path until they are recorded together.

The sensors of a consumer are spread over its memory, and a cycle at a low rate finds little of it in the processor's
caches. So a cycle writes into one array, and the sensors are updated once for up to MAX_SAMPLES responses. No Python
code runs here. Only `reserve` and `record` can fail.
"""

cimport cython
from libc.stdlib cimport free, realloc

from kconsumer._core.metric_events cimport (
    DataSensors,
    add_both,
    add_received,
    record_exchange,
    record_fetch_latency,
    record_poll,
)


@cython.final
cdef class FastSamples:
    """The samples of one fast path.

    For each response, `reserve` is called first, then `add_partition` for each partition with records, and then
    `add_response`.
    """

    def __cinit__(self):
        self.connections, self.sources = [None] * MAX_SAMPLES, []

    def __dealloc__(self):
        free(self.partitions)

    cdef int reserve(self, Py_ssize_t partitions) except -1:
        """Make room for the samples of this number of partitions. The caller has made room for the response."""
        cdef Py_ssize_t room = self.partition_count + partitions
        cdef PartitionSample* grown
        if room <= self.room:
            return 0
        room = max(room, 2 * self.room)
        self.sources += [None] * (room - len(self.sources))
        grown = <PartitionSample*> realloc(self.partitions, <size_t> room * sizeof(PartitionSample))
        if grown == NULL:
            raise MemoryError()
        self.partitions, self.room = grown, room
        return 0

    cdef int add_partition(self, FastPartition partition, const PartitionSample* sample) noexcept:
        """Add the records of one partition of a response."""
        self.sources[self.partition_count] = partition
        self.partitions[self.partition_count] = sample[0]
        self.partition_count += 1
        return 0

    cdef int add_response(self, FastConnection connection, const ResponseSample* sample) noexcept:
        """Add a response. Its partitions were added before."""
        self.connections[self.response_count] = connection
        self.responses[self.response_count] = sample[0]
        self.response_count += 1
        return 0

    cdef int set_sent(self, int64_t recorded, int64_t sent) noexcept:
        """Set how many bytes of the next request the socket has taken, unless the last response was recorded since
        `self.recorded` had this value."""
        if self.recorded == recorded and self.response_count:
            self.responses[self.response_count - 1].sent = sent
        return 0

    cdef int begin_poll(self, double now) noexcept:
        """Add a poll. The caller has made room for it."""
        self.polls[self.poll_count].began, self.polls[self.poll_count].ended = now, 0.0
        self.poll_count += 1
        return 0

    cdef int end_poll(self, double now) noexcept:
        """Set when the last poll has stopped waiting, unless it was recorded meanwhile."""
        if self.poll_count:
            self.polls[self.poll_count - 1].ended = now
        return 0

    cdef int record(self, ConnectionEvents network, FetchEvents fetches, PollEvents polls) except -1:
        """Record all samples, and forget them. Without metrics, `network` and `fetches` are None."""
        cdef int index, responses = self.response_count, poll_count = self.poll_count
        cdef Py_ssize_t begin = 0
        cdef ResponseSample* sample
        cdef FastConnection connection
        self.response_count = self.poll_count = 0
        self.partition_count = 0
        self.recorded += 1
        for index in range(responses):
            sample = &self.responses[index]
            if fetches is not None:
                record_fetch_latency(fetches, sample.latency_ms, sample.now)
                self.record_partitions(fetches, begin, begin + sample.partitions, sample.now)
            begin += sample.partitions
            connection = self.connections[index]
            self.connections[index] = None
            if network is not None:
                record_exchange(
                    network,
                    connection.sensors,
                    sample.latency_ms,
                    sample.waited_ms,
                    sample.received,
                    sample.sent,
                    sample.now,
                )
        for index in range(poll_count):
            record_poll(polls, self.polls[index].began, self.polls[index].ended)
        return 0

    cdef int record_partitions(self, FetchEvents fetches, Py_ssize_t begin, Py_ssize_t end, double now) except -1:
        """Record the partitions of one response: the lag of each, and the sums of each topic and of the response."""
        cdef Py_ssize_t index, other
        cdef int64_t size = 0, records = 0, topic_size, topic_records
        cdef PartitionSample* sample
        cdef FastPartition partition
        cdef DataSensors topic
        for index in range(begin, end):
            partition, sample = self.sources[index], &self.partitions[index]
            if sample.has_lag and partition.lags is not None:
                add_both(partition.lags, <double> sample.lag, <double> sample.lead, now, 1)
            size, records = size + sample.bytes, records + sample.records
            if sample.counted or partition.consumed is None:    # None: the topic is gone
                continue
            topic, topic_size, topic_records = partition.consumed, 0, 0
            for other in range(index, end):     # a response may contain a topic several times
                partition, sample = self.sources[other], &self.partitions[other]
                if partition.consumed is topic:
                    sample.counted = True
                    topic_size, topic_records = topic_size + sample.bytes, topic_records + sample.records
            add_received(fetches, topic, topic_size, topic_records, now)
        if begin < end:
            add_received(fetches, fetches.data, size, records, now)
        for index in range(begin, end):
            self.sources[index] = None
        return 0
