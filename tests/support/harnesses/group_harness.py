"""A member of a group without network or clock: tests give responses and check requests, callbacks and state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription
from kconsumer.config.options import ConsumerConfig
from kconsumer.coordinator.classic_protocol.embedded import encode_assignment, encode_subscription
from kconsumer.coordinator.classic_protocol.heartbeat import HeartbeatManager
from kconsumer.coordinator.classic_protocol.manager import ClassicMembership
from kconsumer.coordinator.classic_protocol.state import Member
from kconsumer.coordinator.rebalance_steps import CallbackKind
from kconsumer.errors import KafkaError
from kconsumer.schema.classic_group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from kconsumer.schema.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartitions
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kconsumer.types import Node, TopicPartition
from support.harnesses.wiring import group_of, make_components

COORDINATOR = Node(1, "broker", 9092)


class FirstTakesAll(Assignor):
    """An assignor that gives all partitions to the member whose id sorts first."""

    name = "first-takes-all"
    protocols = (RebalanceProtocol.EAGER,)

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        first = min(subscriptions)
        infos = [info for topic in sorted(subscriptions[first].topics) for info in cluster.partitions(topic)]
        return {first: Assignment(tuple(TopicPartition(info.topic, info.partition) for info in infos))}


class FirstTakesAllCooperative(FirstTakesAll):
    """The same assignor for the cooperative protocol."""

    name = "first-takes-all-cooperative"
    protocols = (RebalanceProtocol.COOPERATIVE,)


def tps(topic: str, *partitions: int) -> tuple[TopicPartition, ...]:
    """Returns partitions of one topic."""
    return tuple(TopicPartition(topic, partition) for partition in partitions)


class GroupHarness:
    """The managers of one member, wired as the engine wires them; `now` moves by hand."""

    def __init__(self, *, assignor: Assignor | None = None, topics: Iterable[str] = ("t",), **options: Any) -> None:
        self.config = ConsumerConfig(bootstrap_servers="broker:9092", group_id="g", **options)
        self.now = 1000.0
        components = make_components(self.config, assignors=(assignor or FirstTakesAll(),))
        group = group_of(components)
        assert isinstance(group.member, Member)
        assert isinstance(group.heartbeat, HeartbeatManager)
        assert isinstance(group.membership, ClassicMembership)
        self.cluster, self.metadata = components.cluster, components.metadata
        self.subscription, self.assignment = components.subscription, components.assignment
        self.positions = components.positions
        self.metrics = components.metrics
        self.coordinator, self.commits = group.coordinator, group.commits
        self.member, self.heartbeat, self.membership = group.member, group.heartbeat, group.membership
        self.calls: list[tuple[CallbackKind, tuple[TopicPartition, ...]]] = []
        self.find_coordinator()
        self.subscription.subscribe(topics)
        self.learn(dict.fromkeys(topics, 2))

    def find_coordinator(self) -> None:
        """Deliver a response with the coordinator."""
        self.coordinator.coordinator = COORDINATOR

    def learn(self, topics: Mapping[str, int]) -> None:
        """Deliver metadata with these partition counts."""
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(partition_index=i, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                        for i in range(count)
                    ],
                )
                for name, count in topics.items()
            ],
        )
        self.cluster.update(response, 9, full=True, keep=lambda _topic, _internal: True)

    # --- driving ---

    def poll(self) -> list[UnsentRequest]:
        """Returns the requests that the managers send when the caller polls. Callbacks do not run."""
        self.heartbeat.poll_started(self.now)
        requests: list[UnsentRequest] = []
        for manager in (self.heartbeat, self.membership, self.commits):
            requests += manager.poll(self.now).requests
        return requests

    def background(self) -> list[UnsentRequest]:
        """Returns the heartbeats and commits that are sent while the caller is not in poll."""
        return [r for manager in (self.heartbeat, self.commits) for r in manager.poll(self.now).requests]

    def request(self) -> UnsentRequest:
        """Returns the only request of a poll."""
        requests = self.poll()
        assert [1] == [len(requests)], [r.api.name for r in requests]
        return requests[0]

    def run_callbacks(self) -> None:
        """Run the callbacks that are due, as the engine does between steps."""
        while (callback := self.membership.due_callback) is not None:
            self.calls.append((callback.kind, callback.partitions))
            self.membership.callback_done(callback, self.now)

    def respond(self, request: UnsentRequest, message: Any, version: int | None = None, took_ms: float = 0) -> None:
        """Deliver a response, `took_ms` from now."""
        spoken = min(request.api.max_version, request.max_version) if version is None else version
        sent_at, self.now = self.now, self.now + took_ms
        request.handler(Reply(message, None, self.now, spoken, request.node or "1", sent_at))

    def break_connection(self, request: UnsentRequest, error: KafkaError) -> None:
        """Let the request fail without a response."""
        request.handler(Reply(None, error, self.now, node=request.node or "1"))

    # --- whole steps ---

    def join(self, *, leader: bool = False, member_id: str = "me", generation: int = 1) -> UnsentRequest:
        """Respond to the JoinGroup. Returns the SyncGroup that follows."""
        join = self.until("JoinGroup")
        self.respond(join, self.joined(leader=leader, member_id=member_id, generation=generation))
        return self.until("SyncGroup")

    def until(self, api: str) -> UnsentRequest:
        """Poll, run callbacks and respond to commits until a request of this API is sent. Returns that request."""
        for _ in range(5):
            for request in self.poll():
                if request.api.name == api:
                    return request
                if request.api.name == "OffsetCommit":
                    self.respond(request, committed(request))
            self.run_callbacks()
        raise AssertionError(f"no {api} was sent; {self.member!r}")

    def joined(self, *, leader: bool, member_id: str = "me", generation: int = 1) -> JoinGroupResponse:
        """Returns a JoinGroup response; the leader sees itself as the only member."""
        name = next(iter(self.membership._assignors))
        topics = sorted(self.subscription.subscribed_topics())
        metadata = encode_subscription(ConsumerProtocolSubscription(topics=topics))
        members = [JoinGroupResponseMember(member_id=member_id, metadata=metadata)] if leader else []
        return JoinGroupResponse(
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=name,
            leader=member_id if leader else "other",
            member_id=member_id,
            members=members,
        )

    def synced(self, *partitions: TopicPartition) -> SyncGroupResponse:
        """Returns a SyncGroup response with this assignment."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        assigned = [TopicPartitions(topic=topic, partitions=ids) for topic, ids in by_topic.items()]
        data = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned))
        name = self.member.generation.protocol
        return SyncGroupResponse(protocol_type="consumer", protocol_name=name, assignment=data)

    def stable(self, *partitions: TopicPartition, generation: int = 1) -> None:
        """Join and get these partitions, with callbacks."""
        sync = self.join(generation=generation)
        self.respond(sync, self.synced(*partitions))
        self.poll()
        self.run_callbacks()
        self.poll()

    def consume(self, tp: TopicPartition, offset: int) -> None:
        """Advance the position, as if records up to this offset were returned."""
        self.positions.seek(tp, offset)


def committed(request: UnsentRequest, code: int = 0) -> OffsetCommitResponse:
    """Returns the response to a commit, with this error code for every partition."""
    return committed_by(request.message, code)


def committed_by(message: OffsetCommitRequest, code: int = 0) -> OffsetCommitResponse:
    """Returns the response to this OffsetCommit, with this error code for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
