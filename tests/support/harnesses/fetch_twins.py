"""Two fetch managers with the same state and the same events: one with the fetch cycle, and one that decodes every
response. Nothing happens unless the test calls it. `check` compares the two.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any

from kconsumer._core.codec import decode_request, decode_response, encode_request, encode_response
from kconsumer._core.lock import EngineLock
from kconsumer._core.net import InFlight, RequestQueue
from kconsumer._core.wire import Frame, FrameBuffer
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer._internal.managers import Reply
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import KafkaError, ProtocolError
from kconsumer.fetching.metrics import GROUP
from kconsumer.schema.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.testing.cluster.fetch_sessions import FetchSessionCache
from kconsumer.types import TopicPartition
from support.harnesses.fetching import Log
from support.harnesses.wiring import make_components

Change = Callable[[FetchResponse], None]


class CycleConnection(RequestQueue):
    """What the fetch cycle uses of a connection."""

    def __init__(self) -> None:
        super().__init__("twin", None, None, None, FrameBuffer())
        self.blocked = False

    def encode(self, api: Any, version: int, message: Any) -> bytes:
        """Returns the bytes of a request with the correlation id 0."""
        return encode_request(api, version, 0, "twin", message)

    def may_continue(self, now: float) -> bool:
        """Returns whether the next request may be sent now."""
        return not self.blocked


def make_frame(data: bytes) -> Frame:
    """Returns a frame as a connection receives it."""
    buffer = FrameBuffer()
    data = len(data).to_bytes(4, "big") + data
    frames: list[Frame] = []
    while data:
        view = buffer.recv_view()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        frames += buffer.received(count)
        data = data[count:]
    return frames[0]


class Side:
    """One of the two: its managers, and its requests in flight by connection."""

    def __init__(self, config: ConsumerConfig, *, cycle: bool) -> None:
        self.components = make_components(config)
        self.manager, self.buffer = self.components.fetch, self.components.buffer
        self.subscription, self.cluster = self.components.subscription, self.components.cluster
        self.assignment, self.positions = self.components.assignment, self.components.positions
        self.connections: defaultdict[str, CycleConnection] = defaultdict(CycleConnection)
        self.in_flight: dict[str, InFlight] = {}
        self.notes: list[str] = []
        self.outcomes: list[str] = []
        if cycle:
            notes = self.notes
            lock = EngineLock(threading.RLock(), SIGNALS)
            self.manager.use_cycle(lock, lambda: notes.append("records"), lambda: notes.append("ended"))
            self.manager.continue_until = float("inf")  # the user polls

    def state(self) -> dict[str, Any]:
        """Returns everything that must be the same on both sides after a poll."""
        manager, buffer, memory = self.manager, self.buffer, self.buffer.memory
        chains = {state.topic_partition: buffer.find(state.topic_partition) for state in self.states()}
        return {
            "partitions": [_partition_values(state) for state in self.states()],
            "chains": {tp: None if chain is None else _chain_values(chain) for tp, chain in chains.items()},
            "brokers": {broker.node.id: _broker_values(broker) for broker in manager.planner},
            "flights": {n: _flight_values(flight) for n, flight in manager.in_flight.items()},
            "expedited": {n: _flight_values(flight) for n, flight in manager._expedited.items()},
            "expedited offsets": {tp: offset for tp, (_, offset) in manager.expedited_offsets.items()},
            "waits": (dict(manager._waits_for_memory), dict(manager.node_failures), manager.needs_poll),
            "memory": (memory.reserved, memory.decompressed, memory.least_response),
            "turns": [(f.chain.topic_partition, f.fetch_offset) for f in buffer.turns if f.in_turn_queue],
            "buffer": (buffer.waiting, buffer.waiting_bytes, list(buffer.paused)),
            "metrics": {
                name: value
                for name, value in self.components.metrics.snapshot(self.assignment.changes.now).items()
                if name.group == GROUP and not isnan(value)
            },
        }

    def blocks(self) -> tuple[int, int]:
        """Returns the bytes in memory, and those that only returned batches refer to."""
        return self.buffer.memory.total, self.buffer.memory.held_by_caller

    def untouched(self) -> dict[str, Any]:
        """Returns more than `state`: all that a response that is not ordinary must leave unchanged."""
        manager, buffer = self.manager, self.buffer
        changed = {broker.node.id: list(broker.changed) for broker in manager.planner}
        chains = [buffer.find(state.topic_partition) for state in self.states()]
        drained, responded = len(buffer.finished), (manager._responded, manager._expedited_response)
        return {
            "freed": buffer.memory.has_freed,
            "state": self.state(),
            "dirty": list(buffer.dirty),
            "changed": changed,
            "objects": list(map(id, chains)),
            "planner": (drained, responded, manager.planner.changed),
            "notes": len(self.notes),
            "requested": [id(r) for broker in manager.planner for r in broker.session.requested.values()],
        }

    def states(self) -> list[Any]:
        """Returns the states of the assigned partitions, in the order in which they are requested."""
        return list(self.assignment.states().values())

    def decode(self, entry: InFlight, frame: Frame, now: float) -> None:
        """Decode a response, and pass it to the manager."""
        self.reply(entry, *_decode(entry.version, frame), now)

    def reply(self, entry: InFlight, message: Any, error: KafkaError | None, now: float) -> None:
        """Pass a decoded response, or an error, to the manager."""
        request = entry.request
        request.handler(Reply(message, error, now, entry.version, request.node or ""))


def _partition_values(state: Any) -> tuple[Any, ...]:
    offsets = state.high_watermark, state.last_stable_offset, state.log_start_offset
    return (
        state.topic_partition,
        state.position,
        offsets,
        state.fetch_state,
        state.paused,
        state.out_of_range,
        state.topic_id,
    )


def _chain_values(chain: Any) -> tuple[Any, ...]:
    fetches = [
        (f.fetch_offset, f.position, f.size, f.error_code, f.arrived_at, f.topic_id, f.failure, f.records)
        for f in chain.fetches
    ]
    place = chain.position, chain.next_offset, chain.leader, chain.leader_changed, chain.set_aside
    return place, chain.failures, chain.failure, chain.fetches and chain.buffered_since, fetches


def _broker_values(broker: Any) -> tuple[Any, ...]:
    session = broker.session
    requested = {tp: _requested_values(r) for tp, r in session.requested.items()}
    ids = session.id, session.epoch, dict(session.topic_names), session._by_id
    return ids, requested, set(broker.chains), set(broker.full), set(broker.leader_only), broker.responded_at


def _requested_values(requested: Any) -> tuple[Any, ...]:
    return requested.offset, requested.leader, requested.topic_id, requested.chain.topic_partition


def _flight_values(flight: Any) -> tuple[Any, ...]:
    requested = {tp: _requested_values(r) for tp, r in flight.requested.items()}
    return flight.max_bytes, flight.reserved, flight.sent_at, flight.full, flight.leader_only, requested


def _defaults(row: FetchPartition) -> tuple[int, ...]:
    """Returns what is the same in all rows of a request."""
    return row.last_fetched_epoch, row.log_start_offset, row.partition_max_bytes


def _sent(message: FetchRequest, version: int) -> FetchRequest:
    """Returns a request as a broker decodes it."""
    frame = encode_request(FETCH, version, 0, "twin", message)[4:]
    sent: FetchRequest = decode_request({FETCH.key: FETCH}, frame)[4]
    return sent


def _message_values(message: FetchRequest, node: str) -> tuple[Any, ...]:
    """Returns what a request says. The order of partitions matters only if the request is full."""
    rows = [
        (topic.topic or topic.topic_id, row.partition, row.current_leader_epoch, row.fetch_offset, *_defaults(row))
        for topic in message.topics
        for row in topic.partitions
    ]
    forgotten = [(t.topic or t.topic_id, number) for t in message.forgotten_topics_data for number in t.partitions]
    limits = message.max_wait_ms, message.min_bytes, message.max_bytes, message.isolation_level
    session = message.session_id, message.session_epoch, message.rack_id, message.replica_id, message.cluster_id
    ordered = rows if message.session_epoch <= 0 else sorted(rows)
    return node, limits, session, ordered, sorted(forgotten)


class FetchTwins:
    """The two sides, and the brokers that both fetch from. Broker p % brokers leads partition p of each topic.

    `sessions` is the number of fetch sessions that each broker keeps, and `version` the highest version of Fetch that
    it supports.
    """

    def __init__(
        self,
        topics: int = 1,
        partitions: int = 1,
        brokers: int = 1,
        *,
        version: int = FETCH.max_version,
        sessions: int = 4,
        **options: Any,
    ) -> None:
        options.setdefault("auto_offset_reset", "earliest")
        config = ConsumerConfig(bootstrap_servers="localhost:9092", **options)
        self.now = 1000.0
        self.version, self.brokers = version, brokers
        self.cycle, self.plain = Side(config, cycle=True), Side(config, cycle=False)
        self.sides = (self.cycle, self.plain)
        names = [f"t{n}" for n in range(topics)]
        self.topic_ids: dict[str, bytes | None] = {name: bytes([n + 1]) * 16 for n, name in enumerate(names)}
        self.tps = [TopicPartition(name, p) for name in names for p in range(partitions)]
        self.logs = {tp: Log() for tp in self.tps}
        self.leaders = {tp: tp.partition % brokers for tp in self.tps}
        self.epochs = dict.fromkeys(self.tps, 0)
        ids = itertools.count(100)
        self.caches = defaultdict[str, FetchSessionCache](lambda: FetchSessionCache(sessions, ids.__next__))
        self.update_metadata()
        self.assign(self.tps)

    # --- events, which happen on both sides ----------------------------------------------------------------

    def wait(self, ms: float) -> None:
        """Advance the clock."""
        self.now += ms
        for side in self.sides:
            side.assignment.changes.set_now(self.now)

    def update_metadata(self) -> None:
        """Deliver a full metadata response with the present leaders and topic ids."""
        topics = []
        replicas = list(range(self.brokers))
        for name, topic_id in self.topic_ids.items():
            partitions = [
                MetadataResponsePartition(
                    partition_index=tp.partition,
                    leader_id=leader,
                    leader_epoch=self.epochs[tp],
                    replica_nodes=replicas,
                    isr_nodes=replicas,
                )
                for tp, leader in self.leaders.items()
                if tp.topic == name
            ]
            topic = MetadataResponseTopic(name=name, partitions=partitions)
            if topic_id is not None:
                topic.topic_id = topic_id
            topics.append(topic)
        brokers = [MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in replicas]
        for side in self.sides:
            side.cluster.update(MetadataResponse(brokers=brokers, topics=topics), 12, full=True)
            side.positions.validate_all(side.cluster)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions. New ones start at offset 0."""
        for side in self.sides:
            before = set(side.assignment.assigned())
            side.assignment.changes.set_now(self.now)
            side.subscription.assign(dict.fromkeys(partitions))
            for tp in partitions:
                if tp not in before:
                    side.positions.seek(tp, 0)
            side.positions.validate_all(side.cluster)

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Returns whether a partition is assigned."""
        return self.plain.assignment.is_assigned(tp)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Seek as `Consumer.seek` does."""
        for side in self.sides:
            side.positions.seek(tp, offset)
            side.positions.validate_all(side.cluster)

    def pause(self, tp: TopicPartition, *, paused: bool = True) -> None:
        """Pause or resume a partition."""
        for side in self.sides:
            (side.assignment.pause if paused else side.assignment.resume)(tp)

    def validate(self) -> None:
        """Complete the validation of positions that wait for it, without a truncation."""
        for side in self.sides:
            for tp in side.positions.partitions_to_validate(self.now):
                side.assignment.get(tp).complete_validation()

    def find_offsets(self) -> None:
        """Complete the resets of positions, to offset 0."""
        for side in self.sides:
            for tp in side.positions.partitions_to_reset(float("inf")):
                side.positions.seek(tp, 0)
            side.positions.validate_all(side.cluster)

    def collect(self, limit: int, *, rollback: bool = False) -> list[Any]:
        """Collect records. Returns what each side has taken, which refers to memory of the responses."""
        taken = [_collect(side, limit, rollback=rollback) for side in self.sides]
        assert taken[1][1] == taken[0][1]
        return [records for records, _ in taken]

    # --- requests and responses ----------------------------------------------------------------------------

    def poll(self) -> list[str]:
        """Send the requests that both managers create. Returns the connections that they are sent on."""
        return self._send([], [])

    def _send(self, sent: list[Any], timeouts: list[float]) -> list[str]:
        """Poll both sides, and compare the requests. `sent` are those of the cycle."""
        created: list[list[Any]] = [sent, []]
        nodes: list[str] = [node for _, node in sent]
        for side, out in zip(self.sides, created, strict=True):
            result = side.manager.poll(self.now)
            timeouts.append(result.wait_ms)
            for request in result.requests:
                node = request.node or ""
                assert node not in side.in_flight
                version = min(self.version, request.max_version)
                side.in_flight[node] = InFlight(self._next_id(side, node), FETCH, version, self.now, self.now, request)
                out.append((_sent(request.message, version), node))
        ours, theirs = ([_message_values(message, node) for message, node in out] for out in created)
        assert sorted(theirs, key=str) == sorted(ours, key=str)
        self.check()
        return [*nodes, *(node for _, node in created[1] if node not in nodes)]

    def _next_id(self, side: Side, node: str) -> int:
        connection = side.connections[node]
        connection.next_correlation_id += 1
        return connection.next_correlation_id - 1

    def message(self, node: str) -> FetchRequest:
        """Returns the message of the request in flight, as a manager without a cycle has created it."""
        message: FetchRequest = self.plain.in_flight[node].request.message
        return message

    def response(self, node: str, include: Callable[[TopicPartition], bool] = lambda _: True) -> FetchResponse:
        """Returns the response of a broker to the request in flight. `include` chooses the partitions with records."""
        version, message = self.plain.in_flight[node].version, self.message(node)
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        context = self.caches[node.lstrip("*")].open(message, version, names.get, self.now)
        results = {}
        for key, row in context.rows.items():
            tp = TopicPartition(row.topic or "", row.index)
            results[key] = self._read(tp, row, include=include(tp))
        error, session_id, results = context.finish(results, self.now)
        topics: dict[Any, FetchableTopicResponse] = {}
        for (name, _), data in results.items():
            if name not in topics:
                topics[name] = FetchableTopicResponse()
                setattr(topics[name], "topic_id" if version > 12 else "topic", name)
            topics[name].partitions.append(data)
        return FetchResponse(error_code=error, responses=list(topics.values()), session_id=session_id)

    def _read(self, tp: TopicPartition, row: Any, *, include: bool) -> FetchPartitionData:
        log = self.logs.get(tp)
        if log is None:
            return FetchPartitionData(partition_index=row.index, error_code=100)
        return FetchPartitionData(
            partition_index=row.index,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=log.read(row.asked.fetch_offset, row.asked.partition_max_bytes) if include else b"",
        )

    def respond(
        self, node: str = "0", response: FetchResponse | None = None, damage: Callable[[bytes], bytes] = bytes
    ) -> list[str]:
        """Deliver a response to both sides, then poll both. Returns the connections that requests were sent on.

        `damage` changes the bytes behind the correlation id.
        """
        self.plain.outcomes.append("")
        version = self.plain.in_flight[node].version
        body = encode_response(FETCH, version, 0, response or self.response(node))[8:]
        body = damage(body)
        sent = self._receive(node, body)
        plain = self.plain.in_flight.pop(node)
        self.plain.decode(plain, make_frame(bytes(4) + body), self.now)
        timeouts: list[float] = []
        requests = self._send([(message, node) for message in sent], timeouts)
        assert timeouts[1] == timeouts[0]
        return requests

    def _receive(self, node: str, body: bytes) -> list[FetchRequest]:
        """Deliver a response to the side with the cycle. Returns the next request, if the cycle has created it."""
        side, entry = self.cycle, self.cycle.in_flight[node]
        frame = make_frame(entry.correlation_id.to_bytes(4, "big", signed=True) + body)
        exchange, connection = entry.request.exchange, side.connections[node]
        following: bytes | None = None
        if exchange is not None:
            before = side.untouched()
            following = exchange.receive(connection, entry, frame, self.now)
            if following is None:
                assert before == side.untouched()
            else:
                exchange.notify()
        side.outcomes.append("manager" if following is None else "cycle" if following else "cycle, ended")
        if not following:
            del side.in_flight[node]
        if following is None:
            side.decode(entry, frame, self.now)
        if not following:
            return []
        size = int.from_bytes(following[:4], "big")
        assert len(following) - 4 == size
        api, version, correlation_id, client_id, message = decode_request({FETCH.key: FETCH}, following[4:])
        assert (FETCH, entry.version, self._next_id(side, node), "twin") == (api, version, correlation_id, client_id)
        side.in_flight[node] = InFlight(correlation_id, api, version, self.now, self.now, entry.request)
        self.plain_message(message)
        return [message]

    def plain_message(self, message: FetchRequest) -> None:
        """Check what no message of a manager contains, and so is not compared."""
        rows = [row for topic in message.topics for row in topic.partitions]
        assert len(rows) == len({(t.topic_id, row.partition) for t in message.topics for row in t.partitions})
        assert len(message.topics) == len({topic.topic_id for topic in message.topics})

    def fail(self, node: str, error: KafkaError) -> list[str]:
        """Complete a request with an error, without a response. Then polls both sides."""
        for side in self.sides:
            side.reply(side.in_flight.pop(node), None, error, self.now)
        return self.poll()

    # --- comparison ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that both sides have the same state. To be called after a poll."""
        cycle, plain = ({**side.state(), "blocks": side.blocks()} for side in self.sides)
        for key, value in plain.items():
            assert value == cycle[key], key

    @property
    def outcomes(self) -> list[str]:
        """How the side with the cycle has handled each response: "cycle", "cycle, ended" or "manager"."""
        return self.cycle.outcomes


def _decode(version: int, frame: Frame) -> tuple[FetchResponse | None, KafkaError | None]:
    try:
        return decode_response(FETCH, version, frame)[1], None
    except ProtocolError as error:
        return None, ProtocolError(f"garbage: {error}")


def _collect(side: Side, limit: int, *, rollback: bool) -> tuple[Any, Mapping[str, Any]]:
    """Returns the records of a collect, and what must be the same on both sides."""
    collector = side.components.collector
    try:
        records = collector.collect(limit)
    except KafkaError as error:
        side.positions.delivery.open = False
        return None, {"error": f"{type(error).__name__}: {error}"}
    if rollback:
        collector.rollback()
    side.positions.delivery.open = False
    return records, {"records": [(r.topic, r.partition, r.offset, r.value) for r in records]}
