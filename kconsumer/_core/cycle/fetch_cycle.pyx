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

from functools import partial

from kconsumer._core.net cimport InFlight, RequestQueue
from kconsumer._core.decode cimport new_fetch
from kconsumer._core.metrics cimport FetchEvents
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
from kconsumer._core.metrics import ResponseTally
from kconsumer.types import TopicPartition


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
cdef class InFlightFetch:
    """A Fetch request in flight, and the session as it was when the request was created.

    `requested` has all partitions of the session, and `topic_names` their names by topic id. `full` is True if the
    request contains all of them, and `leader_only` if it has no rack, so that the leader names no read replica.
    `sent_at` is in ms, `max_bytes` is the limit in the request, and `reserved` are the bytes of memory reserved for the
    response.
    """

    def __init__(
        self,
        broker,
        Py_ssize_t max_bytes,
        Py_ssize_t reserved,
        double sent_at,
        bint full,
        requested,
        topic_names,
        bint leader_only,
        Py_ssize_t active_brokers=0,
        FetchCycle cycle=None,
    ):
        self.broker, self.max_bytes, self.reserved, self.sent_at = broker, max_bytes, reserved, sent_at
        self.full, self.requested, self.topic_names, self.leader_only = full, requested, topic_names, leader_only
        self.active_brokers, self.partitions, self.cycle = active_brokers, len(broker.chains), cycle

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
        self, manager, lock, FetchEvents events, *, bint check_crcs, bint read_committed, Py_ssize_t batch_limit
    ):
        self.manager, self.lock, self.events = manager, lock, events
        self.check_crcs, self.read_committed, self.batch_limit = check_crcs, read_committed, batch_limit
        self.on_records = self.on_ended = bool

    cdef object respond(self, InFlightFetch flight, RequestQueue connection, InFlight entry, Frame frame, double now):
        cdef ResponseRow rows[MAX_PARTITIONS]
        cdef int count = 0
        cdef list found, changes
        cdef bytes request = b""
        cdef Span span
        span.p, span.end = frame.data, frame.data + frame.size
        with self.lock:
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
        flight.ended, flight.has_records = changes is None, count > 0
        return request

    cdef list find(self, InFlightFetch flight, ResponseRow* rows, int count, Frame frame, double now):
        """Returns a tuple for each partition of the response: what was requested, its buffered data, and the offset
        behind that. Returns None if the response is not ordinary."""
        cdef int index
        cdef ResponseRow* row
        cdef Py_ssize_t size
        cdef dict seen = {}
        cdef list found = []
        cdef Slice records
        tally = ResponseTally()
        cdef CompletedFetch fetch
        manager, node_id = self.manager, flight.broker.node.id
        cdef BufferQueue buffer = manager.buffer
        if manager.in_flight.get(node_id) is not flight or node_id in manager.node_failures:
            return None
        for index in range(count):
            row = &rows[index]
            name = flight.topic_names.get(row.topic_id.p[:TOPIC_ID_BYTES])
            tp = TopicPartition(name, row.number)
            requested = flight.requested.get(tp)
            if requested is None or tp in seen or not is_continued(buffer, tp, requested, node_id):
                return None
            seen[tp] = requested
        # A fetch and its data refer to each other, so nothing is created before the whole response is known to be
        # ordinary.
        for index, (tp, requested) in enumerate(seen.items()):
            row = &rows[index]
            size = row.records.end - row.records.p
            if not size:
                found.append((requested, None, None))
                continue
            records = slice_of(frame, row.records.p, size)
            offset = requested.offset
            fetch = CompletedFetch(requested.chain, offset)
            fetch.size, fetch.tally, fetch.arrived_at, fetch.topic_id = size, tally, now, requested.topic_id
            fetch.data = new_fetch(
                tp,
                records,
                offset,
                self.check_crcs,
                self.read_committed,
                partial(buffer.unpack, fetch),
                self.batch_limit,
            )
            next_offset = next_fetch_offset(records)
            end = None if next_offset is None or next_offset[0] <= offset else next_offset[0]
            found.append((requested, fetch, end))
        return found

    cdef int apply(self, InFlightFetch flight, ResponseRow* rows, list found, Frame frame, double now) except -1:
        """Store what an ordinary response reports, and buffer its records."""
        cdef int index
        cdef ResponseRow* row
        cdef object block = None
        cdef CompletedFetch fetch
        cdef BufferedChain chain
        manager, broker = self.manager, flight.broker
        cdef BufferQueue buffer = manager.buffer
        session = broker.session
        session.epoch = next_epoch(session.epoch)
        broker.responded_at = now
        if manager.expedited_offsets:
            manager.expedited_offsets.clear()
        if self.events is not None:
            self.events.record_response(now - flight.sent_at, 0.0, now)
        for index in range(len(found)):
            row = &rows[index]
            requested, fetch, end = found[index]
            chain = requested.chain
            state, tp = chain.state, chain.topic_partition
            if row.high_watermark >= 0:
                state.high_watermark = row.high_watermark
            if row.last_stable_offset >= 0:
                state.last_stable_offset = row.last_stable_offset
            if row.log_start_offset >= 0:
                state.log_start_offset = row.log_start_offset
            if self.events is not None and tp not in self.events.partitions:
                manager.add_metrics(tp)
            if fetch is None:
                continue
            if block is None:
                block = buffer.memory.track(frame, frame.capacity)
                buffer.memory.record_response(frame.capacity, flight.max_bytes + flight.max_bytes // 4)
            fetch.block = block
            fetch.tally.expect()
            manager.assignment.move_to_end(tp)
            buffer.append(fetch, end)
        if buffer.finished:
            buffer.account(self.events, now)
        return 0

    cdef list changes(self, InFlightFetch flight, RequestQueue connection, double now):
        """Returns the partitions that the next request contains, because their offset has changed.

        Returns None if the manager must decide what the next request contains, or when it is sent.
        """
        cdef list changed = []
        cdef BufferedChain chain
        manager, broker = self.manager, flight.broker
        cdef BufferQueue buffer = manager.buffer
        cdef Memory memory = buffer.memory
        cdef dict chains = broker.chains, requested_partitions = broker.session.requested
        planner = manager.planner
        if (
            len(chains) != flight.partitions
            or broker.full
            or bool(broker.leader_only) != flight.leader_only
            or planner.active_brokers != flight.active_brokers
            or memory.reserve_for(flight.max_bytes) != flight.reserved
            or memory.room_bytes() < 0
            or now >= manager.continue_until
            or planner.next_change <= now
            or not manager.steady
            or not connection.may_continue(now)
        ):
            return None
        for tp in {**broker.changed, **buffer.dirty}:
            chain = chains.get(tp)
            if chain is None:
                if tp in broker.changed:
                    return None
                continue
            requested = requested_partitions.get(tp)
            if requested is None or requested.chain is not chain or buffer.chains.get(tp) is not chain:
                return None
            if requested.leader is not chain.leader or chain.failures or chain.has_error() or not chain.may_grow():
                return None
            if tp in broker.changed and requested.topic_id != manager.topic_id(tp.topic):
                return None
            if requested.offset != chain.next_offset:
                changed.append(requested)
        for requested in changed:
            chain = requested.chain
            requested.offset = chain.next_offset
        for tp in [tp for tp in buffer.dirty if tp in chains]:
            del buffer.dirty[tp]
        if planner.active_brokers > 1:
            planner.mark_sent(broker)
        else:
            broker.changed.clear()
        return changed


cdef bint is_continued(BufferQueue buffer, object tp, object requested, object node_id) except -1:
    """Returns True if the response to a request of a partition continues its buffered data."""
    cdef BufferedChain chain = requested.chain
    cdef CompletedFetch last
    leader = requested.leader
    if leader.leader is None or leader.leader.id != node_id or chain.failures or chain.state.out_of_range:
        return False
    if buffer.chains.get(tp) is not chain or chain.next_offset != requested.offset:
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


cdef bytes encode(InFlightFetch flight, RequestQueue connection, InFlight entry, object session, list changes):
    """Returns the next request of the session, with the rows of the partitions in `changes`."""
    if flight.key is not connection:
        flight.head, flight.tail = split(connection.encode(entry.api, entry.version, empty_request(entry)), entry)
        flight.key = connection
    if len(changes) > 1:
        changes.sort(key=topic_id_of)
    cdef Py_ssize_t index = 0, first, at, topics = 0
    cdef bytes topic_id = b""
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
        topic_id = changes[first].topic_id
        while index < len(changes) and changes[index].topic_id == topic_id:
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


cdef unsigned char* store_partition(unsigned char* p, object requested, int32_t max_bytes) except NULL:
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
