"""The ordinary fetch cycle: handles a Fetch response without message objects, and encodes the next request.

It works on the objects of the fetch manager (see `kconsumer/fetching/manager.py`), which have no other copy, and holds
the engine's lock. A response is ordinary if it has no error, no throttle time, no aborted transaction, no other tagged
fields, and only partitions that are read from their leaders without an earlier failure. For any other response,
`receive` changes nothing and returns None. The response is then decoded, and the manager handles it.

After an ordinary response, the next request follows at once if only offsets have changed since the last one, and if
there is room for the response. In all other cases the manager creates the next request when it is polled.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kconsumer._core.net cimport InFlight, RequestQueue
from kconsumer._core.lock cimport EngineLock
from kconsumer._core.decode cimport new_fetch
from kconsumer._core.metrics cimport FetchEvents, ResponseTally
from kconsumer._core.wire cimport (
    Frame,
    Slice,
    Span,
    kc_store_be32,
    kc_store_be64,
    read_i16,
    read_i32,
    read_i64,
    read_uvarint,
    slice_of,
    take,
)

from kconsumer._core.decode import next_fetch_offset


cdef enum:
    FIRST_VERSION = 13                 # the first version of Fetch with topic ids: no other format is known here
    MAX_PARTITIONS = 256               # of one response; one with more is not ordinary
    TOPIC_ID_BYTES = 16
    PARTITION_BYTES = 33               # one partition of a request
    CORRELATION_ID_AT = 8              # in a request: after its size, API key and version
    EPOCH_BYTES = 4                    # of the fetch session epoch, the last field before the topics


cdef bint parse(Span span, int32_t correlation_id, int32_t session_id, ResponseRow* rows, int* count) noexcept:
    """Parse a response, and store what it reports of its partitions. Returns False if it is not ordinary."""
    cdef int32_t found_id, throttle_ms, found_session, replica
    cdef int16_t code
    cdef uint32_t topics, partitions, size
    cdef Span topic_id
    cdef ResponseRow* row
    count[0] = 0
    if not (
        read_i32(&span, &found_id)
        and found_id == correlation_id
        and read_no_tags(&span)
        and read_i32(&span, &throttle_ms)
        and throttle_ms == 0
        and read_i16(&span, &code)
        and code == 0
        and read_i32(&span, &found_session)
        and found_session == session_id
        and session_id != 0
        and read_uvarint(&span, &topics)
        and topics > 0
    ):
        return False
    while topics > 1:
        topics -= 1
        if not (take(&span, TOPIC_ID_BYTES, &topic_id) and read_uvarint(&span, &partitions) and partitions > 0):
            return False
        while partitions > 1:
            partitions -= 1
            if count[0] == MAX_PARTITIONS:
                return False
            row = &rows[count[0]]
            row.topic_id = topic_id
            if not (
                read_i32(&span, &row.number)
                and read_i16(&span, &code)
                and code == 0
                and read_i64(&span, &row.high_watermark)
                and read_i64(&span, &row.last_stable_offset)
                and read_i64(&span, &row.log_start_offset)
                and read_no_rows(&span)
                and read_i32(&span, &replica)
                and replica < 0
                and read_uvarint(&span, &size)
                and take(&span, <Py_ssize_t> size - 1 if size else 0, &row.records)
                and read_no_tags(&span)
            ):
                return False
            count[0] += 1
        if not read_no_tags(&span):
            return False
    return read_no_tags(&span) and span.p == span.end


cdef inline bint read_no_tags(Span* span) noexcept:
    """Read the number of tagged fields. Returns False if there are any."""
    cdef uint32_t count
    return read_uvarint(span, &count) and count == 0


cdef inline bint read_no_rows(Span* span) noexcept:
    """Read the size of an array. Returns False unless it is null or empty."""
    cdef uint32_t size
    return read_uvarint(span, &size) and size <= 1


@cython.final
cdef class FoundPartition:
    """What a response has of one partition: what was requested, its data or None, and the offset behind that."""


@cython.final
cdef class Unpacker:
    """Counts the memory into which batches of a fetch are decompressed."""

    def __call__(self, output):
        self.buffer.unpack(self.fetch, output)


@cython.final
cdef class InFlightFetch:
    """A Fetch request in flight, and the session as it was when the request was created.

    `requested` has all partitions of the session, and `topic_names` their names by topic id. `full` is True if the
    request contains all of them, and `leader_only` if it has no rack, so that the leader names no read replica.
    `sent_at` is in ms, `max_bytes` is the limit in the request, and `reserved` are the bytes of memory reserved for the
    response.
    """

    def __init__(
        self,
        BrokerFetchState broker not None,
        Py_ssize_t max_bytes,
        Py_ssize_t reserved,
        double sent_at,
        bint full,
        dict requested not None,
        dict topic_names not None,
        bint leader_only,
        Py_ssize_t active_brokers=0,
        FetchCycle cycle=None,
        limits=None,
    ):
        self.broker, self.max_bytes, self.reserved, self.sent_at = broker, max_bytes, reserved, sent_at
        self.full, self.requested, self.topic_names, self.leader_only = full, requested, topic_names, leader_only
        self.active_brokers, self.partitions = active_brokers, len(broker.chains)
        self.cycle, self.limits = cycle, limits

    @property
    def node(self):
        """The broker that the request was sent to."""
        return self.broker.node

    def receive(self, RequestQueue connection not None, InFlight entry not None, Frame frame not None, double now):
        """Handle the response to this fetch if it is ordinary. Returns None, without a change, if it is not.

        Returns the next request, without its correlation id, or b"" if the manager must create it. `entry` is the
        request in flight on the `connection`.
        """
        if self.cycle is None or self.full or entry.version < FIRST_VERSION:
            return None
        return self.cycle.respond(self, connection, entry, frame, now)

    def notify(self):
        """Notify those who wait for what `receive` has handled. Called after the next request was sent."""
        if self.ended:
            self.cycle.on_ended()
        if self.has_records:
            self.cycle.on_records()

    def __repr__(self):
        return f"<InFlightFetch of {len(self.requested)} partitions from {self.node}, at most {self.max_bytes} bytes>"


@cython.final
cdef class FetchCycle:
    """Handles the ordinary responses to the fetches of one consumer. `lock` guards the state of `manager`."""

    def __init__(
        self,
        FetchState manager not None,
        EngineLock lock not None,
        FetchEvents events,
        *,
        bint check_crcs,
        bint read_committed,
        Py_ssize_t batch_limit,
    ):
        self.manager, self.lock, self.events = manager, lock, events
        self.check_crcs, self.read_committed, self.batch_limit = check_crcs, read_committed, batch_limit
        self.on_records = self.on_ended = bool

    cdef object respond(
        self, InFlightFetch flight, RequestQueue connection, InFlight entry, Frame frame, double now
    ):
        cdef ResponseRow rows[MAX_PARTITIONS]
        cdef int count = 0
        cdef list found, changes
        cdef bytes request = b""
        cdef Span span
        cdef SessionState session
        span.p, span.end = frame.data, frame.data + frame.size
        self.lock.take(True, -1)
        try:
            session = flight.broker.session
            if not parse(span, entry.correlation_id, session.id, rows, &count):
                return None
            found = self.find(flight, rows, count, frame, now)
            if found is None:
                return None
            self.apply(flight, rows, found, frame, now)
            changes = self.changes(flight, connection, now)
            if changes is not None:
                request = encode(flight, connection, entry, session, changes)
                flight.sent_at = now
            else:
                self.manager.end_flight(flight)
        finally:
            self.lock.drop()
        flight.ended, flight.has_records = changes is None, count > 0
        return request

    cdef list find(self, InFlightFetch flight, ResponseRow* rows, int count, Frame frame, double now):
        """Returns a FoundPartition for each partition of the response, or None if the response is not ordinary."""
        cdef int index
        cdef ResponseRow* row
        cdef list found = []
        cdef RequestedPartition requested
        cdef FetchState manager = self.manager
        node_id = flight.broker.node.id
        if manager.in_flight.get(node_id) is not flight or node_id in manager.node_failures:
            return None
        for index in range(count):
            row = &rows[index]
            key = flight.topic_names.get(row.topic_id.p[:TOPIC_ID_BYTES]), row.number  # equals a TopicPartition
            requested = flight.requested.get(key)
            if requested is None or not is_continued(manager.buffer, requested, node_id):
                return None
            found.append(requested)
        if count > 1 and len(set(found)) < count:   # a partition twice
            return None
        # A fetch and its data refer to each other, so nothing is created before the whole response is known to be
        # ordinary.
        tally = ResponseTally()
        for index in range(count):
            found[index] = self.found_partition(found[index], &rows[index], tally, frame, now)
        return found

    cdef FoundPartition found_partition(
        self, RequestedPartition requested, ResponseRow* row, ResponseTally tally, Frame frame, double now
    ):
        """Returns what a response has of one partition."""
        cdef FoundPartition found = FoundPartition.__new__(FoundPartition)
        cdef Py_ssize_t size = row.records.end - row.records.p
        cdef Slice records
        cdef CompletedFetch fetch
        cdef Unpacker unpacker
        found.requested = requested
        if not size:
            return found
        records = slice_of(frame, row.records.p, size)
        unpacker = Unpacker.__new__(Unpacker)
        fetch = CompletedFetch.__new__(CompletedFetch)
        fetch.chain, fetch.fetch_offset, fetch.failure = requested.chain, requested.offset, ""
        fetch.size, fetch.tally, fetch.arrived_at, fetch.topic_id = size, tally, now, requested.topic_id
        fetch.data = new_fetch(
            requested.chain.topic_partition,
            records,
            requested.offset,
            self.check_crcs,
            self.read_committed,
            unpacker,
            self.batch_limit,
        )
        unpacker.buffer, unpacker.fetch = self.manager.buffer, fetch
        end = next_fetch_offset(records)
        found.fetch = fetch
        found.end = None if end is None or end[0] <= requested.offset else end[0]
        return found

    cdef int apply(self, InFlightFetch flight, ResponseRow* rows, list found, Frame frame, double now) except -1:
        """Store what an ordinary response reports, and buffer its records."""
        cdef int index
        cdef object block = None
        cdef FoundPartition part
        cdef FetchState manager = self.manager
        cdef BufferQueue buffer = manager.buffer
        cdef SessionState session = flight.broker.session
        session.epoch = <int32_t> next_epoch(session.epoch)
        flight.broker.responded_at = now
        if manager.expedited_offsets:
            manager.expedited_offsets.clear()
        if self.events is not None:
            self.events.record_response(now - flight.sent_at, 0.0, now)
        for index in range(len(found)):
            part = found[index]
            self.update_offsets(part.requested.chain, &rows[index])
            if part.fetch is None:
                continue
            if block is None:
                block = buffer.memory.track(frame, frame.capacity)
                buffer.memory.record_response(frame.capacity, flight.max_bytes + flight.max_bytes // 4)
            part.fetch.block = block
            part.fetch.tally.expect()
            manager.assignment.move_last(part.requested.chain.topic_partition)
            buffer.append(part.fetch, part.end)
        if buffer.finished:
            buffer.account(self.events, now)
        return 0

    cdef int update_offsets(self, BufferedChain chain, ResponseRow* row) except -1:
        """Store the offsets that a response reports of a partition."""
        cdef PartitionPosition state = chain.state
        if row.high_watermark >= 0:
            state.high_watermark = row.high_watermark
        if row.last_stable_offset >= 0:
            state.last_stable_offset = row.last_stable_offset
        if row.log_start_offset >= 0:
            state.log_start_offset = row.log_start_offset
        if self.events is not None and chain.topic_partition not in self.events.partitions:
            self.manager.add_metrics(chain.topic_partition)
        return 0

    cdef list changes(self, InFlightFetch flight, RequestQueue connection, double now):
        """Returns the partitions that the next request contains, because their offset has changed.

        Returns None if the manager must decide what the next request contains, or when it is sent.
        """
        cdef list changed = []
        cdef RequestedPartition requested
        cdef FetchState manager = self.manager
        cdef BrokerFetchState broker = flight.broker
        cdef dict dirty = manager.buffer.dirty
        if not self.may_continue(flight, now) or not connection.may_continue(now):
            return None
        for tp in {**broker.changed, **dirty} if broker.changed else dirty:
            if tp not in broker.chains:
                if tp in broker.changed:
                    return None
                continue
            requested = self.continued(broker, tp)
            if requested is None:
                return None
            if requested.offset != requested.chain.next_offset:
                changed.append(requested)
        for requested in changed:
            requested.offset = requested.chain.next_offset
        for tp in [tp for tp in dirty if tp in broker.chains]:
            del dirty[tp]
        if manager.planner.active_brokers > 1:
            manager.planner.mark_sent(broker)
        else:
            broker.changed.clear()
        return changed

    cdef bint may_continue(self, InFlightFetch flight, double now) except -1:
        """Returns True if the next request can have the same limits and partitions as this one."""
        cdef FetchState manager = self.manager
        cdef BrokerFetchState broker = flight.broker
        cdef Memory memory = manager.buffer.memory
        return (
            flight.limits is manager.limits
            and len(broker.chains) == flight.partitions
            and not broker.full
            and bool(broker.leader_only) == flight.leader_only
            and manager.planner.active_brokers == flight.active_brokers
            and memory.reserve_for(flight.max_bytes) == flight.reserved
            and memory.room_bytes() >= 0
            and manager.may_continue(now)
        )

    cdef RequestedPartition continued(self, BrokerFetchState broker, object tp):
        """Returns what the session requests of a partition, or None if the manager must decide that again."""
        cdef BufferedChain chain = broker.chains[tp]
        cdef RequestedPartition requested = broker.session.requested.get(tp)
        if requested is None or requested.chain is not chain or self.manager.buffer.chains.get(tp) is not chain:
            return None
        if requested.leader is not chain.leader or chain.failures or chain.has_error() or not chain.may_grow():
            return None
        if tp in broker.changed and requested.topic_id != self.manager.topic_id(tp.topic):
            return None
        return requested


cdef bint is_continued(BufferQueue buffer, RequestedPartition requested, object node_id) except -1:
    """Returns True if the response to a request of a partition continues its buffered data."""
    cdef BufferedChain chain = requested.chain
    cdef CompletedFetch last
    leader = requested.leader
    if leader.leader is None or leader.leader.id != node_id or chain.failures or chain.state.out_of_range:
        return False
    if buffer.chains.get(chain.topic_partition) is not chain or chain.next_offset != requested.offset:
        return False
    if not chain.follows(leader) or chain.has_error():
        return False
    if not chain.fetches:
        read = chain.state.topic_id
    else:
        last = <CompletedFetch> chain.fetches[len(chain.fetches) - 1]
        read = last.topic_id
    return read is None or read == requested.topic_id


cpdef int64_t next_epoch(int64_t epoch) noexcept:
    """Returns the next fetch session epoch. After the largest epoch, this is 1, because 0 starts a session."""
    return epoch + 1 if epoch < INT32_MAX else 1


# --- the next request -------------------------------------------------------------------------------------------------


cdef bytes encode(InFlightFetch flight, RequestQueue connection, InFlight entry, SessionState session, list changes):
    """Returns the next request of the session, with the rows of the partitions in `changes`."""
    if flight.key is not connection:
        flight.head, flight.tail = split(connection.encode(entry.api, entry.version, empty_request(entry)), entry)
        flight.key = connection
    if len(changes) > 1:
        changes.sort(key=topic_id_of)
    cdef Py_ssize_t index = 0, first, at, topics = 0
    cdef bytes topic_id = b""
    cdef RequestedPartition requested
    for requested in changes:
        if requested.topic_id != topic_id:
            topics += 1
            topic_id = requested.topic_id
    cdef Py_ssize_t room = (
        len(flight.head) + len(flight.tail) + 5 + topics * (TOPIC_ID_BYTES + 6) + len(changes) * PARTITION_BYTES
    )
    cdef bytes data = PyBytes_FromStringAndSize(NULL, room)
    cdef unsigned char* start = <unsigned char*> PyBytes_AS_STRING(data)
    cdef unsigned char* p = start + len(flight.head)
    memcpy(start, PyBytes_AS_STRING(flight.head), <size_t> len(flight.head))
    kc_store_be32(start + CORRELATION_ID_AT, <uint32_t> <int32_t> connection.next_correlation_id)
    kc_store_be32(p - EPOCH_BYTES, <uint32_t> <int32_t> session.epoch)
    p = store_uvarint(p, <uint32_t> topics + 1)
    while index < len(changes):
        first = index
        topic_id = (<RequestedPartition> changes[first]).topic_id
        while index < len(changes) and (<RequestedPartition> changes[index]).topic_id == topic_id:
            index += 1
        memcpy(p, PyBytes_AS_STRING(topic_id), TOPIC_ID_BYTES)
        p = store_uvarint(p + TOPIC_ID_BYTES, <uint32_t> (index - first) + 1)
        for at in range(first, index):
            p = store_partition(p, changes[at], session.max_bytes)
        p[0] = 0     # no tagged fields of the topic
        p += 1
    memcpy(p, PyBytes_AS_STRING(flight.tail), <size_t> len(flight.tail))
    p += len(flight.tail)
    kc_store_be32(start, <uint32_t> (p - start - 4))
    return data[:p - start]


def topic_id_of(requested):
    """Returns the topic id of a RequestedPartition."""
    return requested.topic_id


cdef object empty_request(InFlight entry):
    """Returns a request like that of `entry`, without partitions."""
    message = entry.request.message
    return type(message)(
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=message.max_bytes,
        isolation_level=message.isolation_level,
        session_id=message.session_id,
        session_epoch=message.session_epoch,
        rack_id=message.rack_id,
    )


cdef tuple split(bytes data, InFlight entry):
    """Returns the bytes of a request without topics before and after the size of the array of topics.

    It is followed by the forgotten topics (an empty array), the rack id, and the number of tagged fields.
    """
    cdef Py_ssize_t rack = len(entry.request.message.rack_id.encode())
    cdef Py_ssize_t tail = len(data) - (rack + max(1, (int(rack + 1).bit_length() + 6) // 7) + 2)
    return data[:tail - 1], data[tail:]


cdef inline unsigned char* store_uvarint(unsigned char* p, uint32_t value) noexcept:
    """Store an unsigned varint at `p`. Returns the address after it."""
    while value >= 0x80:
        p[0] = <unsigned char> ((value & 0x7F) | 0x80)
        value >>= 7
        p += 1
    p[0] = <unsigned char> value
    return p + 1


cdef unsigned char* store_partition(unsigned char* p, RequestedPartition requested, int32_t max_bytes) except NULL:
    """Store the part of a Fetch request for one partition at `p`. Returns the address after it."""
    epoch = requested.leader.epoch
    kc_store_be32(p, <uint32_t> <int32_t> requested.chain.topic_partition.partition)
    kc_store_be32(p + 4, <uint32_t> <int32_t> (-1 if epoch is None else epoch))
    kc_store_be64(p + 8, <uint64_t> <int64_t> requested.offset)
    kc_store_be32(p + 16, 0xFFFFFFFFu)                   # last fetched epoch: none
    kc_store_be64(p + 20, 0xFFFFFFFFFFFFFFFFu)           # log start offset: only followers send it
    kc_store_be32(p + 28, <uint32_t> max_bytes)
    p[32] = 0                                           # no tagged fields
    return p + PARTITION_BYTES
