"""All managers of one consumer on virtual time, driven as a network thread does, against a cluster of two brokers.

Broker 1 leads all partitions and coordinates the group, unless the consumer is sent from one broker to the other (see
`Redirects`). Every request gets its response after `LATENCY_MS`; a `Fault` replaces the responses of one API. What is
counted are requests and rounds per simulated second: a manager that retries without a backoff is seen at once.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.components import Components
from kconsumer.errors import KafkaError
from kconsumer.schema.classic_group import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from kconsumer.schema.dsl import Message
from kconsumer.schema.fetch import FetchableTopicResponse, FetchPartitionData, FetchResponse, LeaderIdAndEpoch
from kconsumer.schema.metadata import Coordinator, FindCoordinatorResponse, MetadataResponsePartition
from kconsumer.schema.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kconsumer.share.components import ShareComponents
from kconsumer.testing.clock import VirtualClock
from kconsumer.types import TopicPartition
from support.harnesses.consumer_harness import heartbeat_response, topic_id
from support.harnesses.group_harness import FirstTakesAll, committed_by
from support.harnesses.manager_driver import metadata, partition, topic
from support.harnesses.wiring import make_components

LATENCY_MS = 1.0
HEARTBEAT_MS = 500
TOPIC = "t"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
COMMITTED = {0: 5, 1: -1}  # the first position of one comes from a commit, of the other from the reset policy


class Fault(NamedTuple):
    """The fault of every response of one API: an error code in the messages at this depth (0: the response itself, 1:
    the messages in its lists, …), or an error in place of the response. With `broker`, only that broker's responses
    have it.
    """

    api: str
    depth: int = 0
    code: int = 0
    error: KafkaError | None = None
    broker: int | None = None

    def concerns(self, api: str, broker: int) -> bool:
        """Returns whether a response of this broker has the fault."""
        return self.api == api and self.broker in (None, broker)

    def apply(self, message: Message) -> None:
        """Put the error code into a response."""
        for depth, part in coded(message):
            if depth == self.depth:
                part.error_code = self.code
                if isinstance(part, MetadataResponsePartition):
                    part.leader_id = -1


class Redirects(NamedTuple):
    """How brokers send the consumer to each other."""

    #: By broker, the replica that its Fetch responses name as preferred, instead of returning records (KIP-392).
    replicas: Mapping[int, int] = {}
    stubborn: bool = False  # a replica is named even if the request contains no rack
    #: Each response that names a leader or a coordinator names another broker than the one before, with a higher leader
    #: epoch.
    alternating: bool = False


NO_REDIRECTS = Redirects()


class Polled:
    """A consumer on virtual time that polls without pause."""

    parts: Components | ShareComponents

    def __init__(self, fault: Fault | None) -> None:
        self.clock = VirtualClock(1000.0)
        self.fault = fault
        self.depths: dict[str, set[int]] = {}  # at which error codes are found in the responses of each API
        self.sent: list[tuple[float, str]] = []
        self.raised: list[tuple[float, KafkaError]] = []  # the errors that the caller got, and when (ms)
        self._pending: list[tuple[float, UnsentRequest, Any]] = []
        self._began = self.clock.now()

    def run(self, seconds: int) -> Self:
        """Simulate this much time."""
        end = self.clock.now() + 1000.0 * seconds
        try:
            while self.clock.now() < end:
                self._round()
        finally:
            self.parts.client.abandon()
        return self

    def requests(self, second: int) -> Counter[str]:
        """Returns the number of requests of each API in this second of the run, counted from 0."""
        start = self._began + 1000.0 * second
        return Counter(api for at, api in self.sent if start <= at < start + 1000.0)

    def _round(self) -> None:
        """One iteration of the network thread, and of a caller who polls."""
        raise NotImplementedError

    def _send(self, request: UnsentRequest, now: float) -> None:
        raise NotImplementedError

    def _poll(self, managers: Iterable[Any], now: float) -> float:
        """Send what the managers ask for. Returns how long they wait (ms)."""
        wait_ms = 1000.0
        for manager in managers:
            result = manager.poll(now)
            if result.disconnect is not None:
                self._pending = [entry for entry in self._pending if entry[1].node != result.disconnect]
            for request in result.requests:
                self._send(request, now)
            wait_ms = min(wait_ms, result.wait_ms)
        return wait_ms

    def _pass(self, now: float, wait_ms: float) -> None:
        """Let time pass until the next response, which is delivered, or until a manager waits no longer."""
        due = min((at for at, _, _ in self._pending), default=now + wait_ms)
        self.clock.advance(max(0.2, min(due, now + wait_ms) - now))
        now = self.clock.now()
        arrived = [entry for entry in self._pending if entry[0] <= now]
        self._pending = [entry for entry in self._pending if entry[0] > now]
        for at, request, response in arrived:
            message, error = (None, response) if isinstance(response, KafkaError) else (response, None)
            version = min(request.api.max_version, request.max_version)
            request.handler(Reply(message, error, now, version, request.node or "1", at - LATENCY_MS))


class Simulation(Polled):
    """A consumer that polls without pause, and starts a lookup of each kind as soon as the last one has ended."""

    parts: Components

    def __init__(
        self,
        fault: Fault | None = None,
        *,
        subscribe: bool = True,
        redirects: Redirects = NO_REDIRECTS,
        **options: Any,
    ) -> None:
        merged: dict[str, Any] = {"auto_commit_interval_ms": 1000, "auto_offset_reset": "earliest"} | options
        if merged.get("group_protocol") == "classic":
            merged.setdefault("heartbeat_interval_ms", HEARTBEAT_MS)
        self.config = ConsumerConfig(bootstrap_servers="broker:9092", group_id="g", **merged)
        super().__init__(fault)
        self.parts = make_components(self.config, assignors=[FirstTakesAll()], clock=self.clock)
        self.responses: dict[str, Callable[[Any], Any]] = {}  # in place of those of `RESPONSES`
        self.redirects = redirects
        self._named = itertools.count(1)  # how often a response named a leader or coordinator, if they alternate
        self.rounds: Counter[int] = Counter()  # by second
        self._questions: dict[str, Any] = {}
        subscription = self.parts.subscription
        if subscribe:
            subscription.subscribe([TOPIC])
        else:
            subscription.assign(PARTITIONS)

    # --- running -----------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """One iteration of the network thread, and of a caller who polls."""
        parts, group, now = self.parts, self.parts.group, self.clock.now()
        assert group is not None
        self.rounds[int((now - self._began) // 1000)] += 1
        parts.changes.set_now(now)
        group.heartbeat.poll_started(now)
        group.commits.maybe_auto_commit(now)
        self._ask(now)
        wait_ms = self._poll((*parts.managers, group.membership, parts.fetch), now)
        if parts.metadata.needs_rebootstrap:
            parts.metadata.rebootstrapped()
        if self._call_back(now):
            wait_ms = 0.0
        self._take_errors()
        self._pass(now, wait_ms)

    def _call_back(self, now: float) -> bool:
        """Run the callbacks that are due. Returns whether there were any."""
        group, ran = self.parts.group, False
        assert group is not None
        while (callback := group.membership.due_callback) is not None:
            group.membership.callback_began(callback)
            group.membership.callback_done(callback, now)
            ran = True
        return ran

    def _take_errors(self) -> None:
        """Catch the errors that the caller would get, and poll again."""
        parts, group = self.parts, self.parts.group
        assert group is not None
        now = self.clock.now()
        raising = (
            parts.metadata,
            parts.offsets,
            parts.initial_positions,
            group.coordinator,
            group.heartbeat,
            group.commits,
        )
        for manager in (*raising, group.membership):
            if (error := manager.take_error()) is not None:
                self.raised.append((now, error))
        try:
            parts.collector.collect(500)
        except KafkaError as error:
            self.raised.append((now, error))

    def _ask(self, now: float) -> None:
        """Start look-ups as a caller does; the next one of a kind starts half a second after the last one has ended."""
        parts, group, deadline = self.parts, self.parts.group, now + 60_000
        assert group is not None
        kinds: dict[str, Callable[[], Any]] = {
            "committed": lambda: group.commits.committed(PARTITIONS, deadline),
            "list offsets": lambda: parts.offsets.list_offsets(dict.fromkeys(PARTITIONS, -1), deadline),
            "topics": lambda: parts.metadata.fetch(None, deadline),
        }
        for kind, ask in kinds.items():
            promise, asked_at = self._questions.get(kind, (None, -1000.0))
            if (promise is None or promise.done) and now >= asked_at + 500.0:
                if promise is not None and promise.error is not None:
                    self.raised.append((now, promise.error))
                self._questions[kind] = ask(), now

    # --- the network -------------------------------------------------------------------------------------------------

    def _send(self, request: UnsentRequest, now: float) -> None:
        self.sent.append((now, request.api.name))
        response = self._respond(request)
        took = float(self.config.fetch_max_wait_ms) if request.api.name == "Fetch" and _waits(response) else LATENCY_MS
        self._pending.append((now + took, request, response))

    def _respond(self, request: UnsentRequest) -> Any:
        name, fault, broker = request.api.name, self.fault, _broker_of(request)
        message = (self.responses.get(name) or RESPONSES[name])(request.message)
        levels = list(coded(message))
        self.depths.setdefault(name, set()).update(depth for depth, _ in levels)
        self._redirect(name, message, request.message, broker)
        if fault is None or not fault.concerns(name, broker):
            return message
        if fault.error is not None:
            return copy.copy(fault.error)
        fault.apply(message)
        return message

    def _redirect(self, name: str, message: Any, request: Any, broker: int) -> None:
        """Make a response send the consumer to another broker."""
        replica = self.redirects.replicas.get(broker)
        if name == "Fetch" and replica is not None and (request.rack_id or broker != 1 or self.redirects.stubborn):
            for part in partitions_of(message):
                part.preferred_read_replica = replica
        if self.redirects.alternating:
            self._alternate(name, message, broker)

    def _alternate(self, name: str, message: Any, broker: int) -> None:
        """Name another broker than the last response did."""
        if name == "Metadata":
            epoch = next(self._named)
            for part in (part for row in message.topics for part in row.partitions):
                part.leader_id, part.leader_epoch = 1 + epoch % 2, epoch
        elif name == "FindCoordinator":
            (found,) = message.coordinators
            message.node_id = found.node_id = 1 + next(self._named) % 2
        elif name == "Fetch":
            for part in partitions_of(message):
                part.current_leader = LeaderIdAndEpoch(leader_id=3 - broker, leader_epoch=next(self._named))


def partitions_of(message: FetchResponse) -> Iterator[FetchPartitionData]:
    """The partitions of a Fetch response."""
    return (part for row in message.responses for part in row.partitions)


def _broker_of(request: UnsentRequest) -> int:
    """The broker that responds; requests to the coordinator or to any broker go to broker 1."""
    node = (request.node or "1").lstrip("*")
    return int(node) if node.isdigit() else 1


def _waits(response: Any) -> bool:
    """Returns whether a broker would wait for records before it sends this response to a fetch."""
    if isinstance(response, KafkaError) or response.error_code:
        return False
    return all(part.error_code == 0 and part.preferred_read_replica < 0 for part in partitions_of(response))


def coded(message: Message, depth: int = 0) -> Iterator[tuple[int, Any]]:
    """The messages in a response that have an error code, and how deep they are."""
    if hasattr(message, "error_code"):
        yield depth, message
    for field in message.FIELDS:
        value = getattr(message, field.name)
        for part in value if isinstance(value, list) else ():
            if isinstance(part, Message):
                yield from coded(part, depth + 1)


# --- the broker -------------------------------------------------------------------------------------------------------


def _metadata(request: Any) -> Any:
    rows = [partition(tp.partition, 1, 0, replica_nodes=[1, 2], isr_nodes=[1, 2]) for tp in PARTITIONS]
    return metadata(topic(TOPIC, *rows, topic_id=topic_id(TOPIC)), nodes=(1, 2))


def _coordinator(request: Any) -> FindCoordinatorResponse:
    found = Coordinator(key="g", node_id=1, host="host1", port=9092)
    return FindCoordinatorResponse(node_id=1, host="host1", port=9092, coordinators=[found])


def _epoch_heartbeat(request: Any) -> Any:
    joins = request.member_epoch == 0
    response = heartbeat_response(max(1, request.member_epoch), {TOPIC: [0, 1]} if joins else None)
    response.heartbeat_interval_ms = HEARTBEAT_MS
    return response


def _join(request: Any) -> JoinGroupResponse:
    (protocol,) = request.protocols
    return JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name=protocol.name,
        leader="me",
        member_id="me",
        members=[JoinGroupResponseMember(member_id="me", metadata=protocol.metadata)],
    )


def _sync(request: Any) -> SyncGroupResponse:
    (own,) = request.assignments
    return SyncGroupResponse(
        protocol_type="consumer", protocol_name=request.protocol_name, assignment=bytes(own.assignment)
    )


def _offset_fetch(request: Any) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopics(
            name=row.name,
            topic_id=row.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=COMMITTED[index], committed_leader_epoch=0
                )
                for index in row.partition_indexes
            ],
        )
        for row in request.groups[0].topics
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def _list_offsets(request: Any) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopicResponse(
            name=row.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=10, leader_epoch=0)
                for p in row.partitions
            ],
        )
        for row in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _leader_epochs(request: Any) -> OffsetForLeaderEpochResponse:
    topics = [
        OffsetForLeaderTopicResult(
            topic=row.topic,
            partitions=[EpochEndOffset(partition=p.partition, leader_epoch=0, end_offset=10) for p in row.partitions],
        )
        for row in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _fetch(request: Any) -> FetchResponse:
    responses = [
        FetchableTopicResponse(
            topic=row.topic,
            topic_id=row.topic_id,
            partitions=[
                FetchPartitionData(
                    partition_index=p.partition,
                    high_watermark=10,
                    last_stable_offset=10,
                    log_start_offset=0,
                    records=b"",
                )
                for p in row.partitions
            ],
        )
        for row in request.topics
    ]
    return FetchResponse(responses=responses)


RESPONSES: dict[str, Callable[[Any], Any]] = {
    "Metadata": _metadata,
    "FindCoordinator": _coordinator,
    "ConsumerGroupHeartbeat": _epoch_heartbeat,
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": lambda request: HeartbeatResponse(),
    "OffsetFetch": _offset_fetch,
    "OffsetCommit": committed_by,
    "ListOffsets": _list_offsets,
    "OffsetForLeaderEpoch": _leader_epochs,
    "Fetch": _fetch,
}
