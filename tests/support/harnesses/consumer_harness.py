"""A member of a KIP-848 group without network or clock: tests give responses and check heartbeats and callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.config.options import ConsumerConfig
from kconsumer.coordinator.consumer_protocol.manager import ConsumerMembership
from kconsumer.coordinator.consumer_protocol.state import ConsumerMember, MemberState
from kconsumer.coordinator.rebalance_steps import CallbackKind
from kconsumer.errors import KafkaError
from kconsumer.schema.consumer_group import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.types import Node, TopicPartition
from support.harnesses.group_harness import committed
from support.harnesses.wiring import group_of, make_components

INTERVAL_MS = 5000
EVERYTHING: dict[str, int] = {"t": 4, "u": 2}


def topic_id(name: str) -> bytes:
    """Returns the id of a topic in these tests."""
    return name.encode().ljust(16, b"\x01")


class ConsumerGroupHarness:
    """The managers of one member, wired as an engine wires them; `now` moves by hand."""

    def __init__(self, *topics: str, subscribe: bool = True, **options: Any) -> None:
        merged: dict[str, Any] = {"enable_auto_commit": False, "group_protocol": "consumer"} | options
        self.config = ConsumerConfig(bootstrap_servers="broker:9092", group_id="g", **merged)
        self.now = 1000.0
        components = make_components(self.config)
        group = group_of(components)
        assert isinstance(group.member, ConsumerMember)
        assert isinstance(group.membership, ConsumerMembership)
        self.cluster, self.metadata = components.cluster, components.metadata
        self.subscription, self.assignment = components.subscription, components.assignment
        self.positions = components.positions
        self.coordinator, self.commits = group.coordinator, group.commits
        self.member, self.membership, self.heartbeat = group.member, group.membership, group.membership.heartbeat
        self.member.member_id = "me"
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.coordinator.coordinator = Node(1, "broker", 9092)
        if subscribe:
            self.subscription.subscribe(topics or ("t",))
        self.learn(EVERYTHING)

    def learn(self, topics: Mapping[str, int], ids: Mapping[str, bytes] | None = None) -> None:
        """Deliver metadata with these partition counts, and these topic ids if not the usual ones."""
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=(ids or {}).get(name, topic_id(name)),
                    partitions=[
                        MetadataResponsePartition(partition_index=i, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                        for i in range(count)
                    ],
                )
                for name, count in topics.items()
            ],
        )
        self.cluster.update(response, 12, full=True, keep=lambda _topic, _internal: True)

    # --- driving ---

    @property
    def state(self) -> MemberState:
        """Returns the member's state."""
        return self.member.state

    def poll(self) -> list[UnsentRequest]:
        """Returns the requests that the managers send when the caller polls. Callbacks do not run."""
        self.heartbeat.poll_started(self.now)
        result = self.membership.poll(self.now)
        assert result.requests == []
        return self.background()

    def background(self) -> list[UnsentRequest]:
        """Returns the heartbeats and commits that are sent without the caller."""
        return [r for manager in (self.heartbeat, self.commits) for r in manager.poll(self.now).requests]

    def beat(self) -> UnsentRequest:
        """Returns the only heartbeat of a poll."""
        requests = self.poll()
        assert ["ConsumerGroupHeartbeat"] == [r.api.name for r in requests], (requests, self.member)
        return requests[0]

    def run_callbacks(self, *, raising: Exception | None = None) -> None:
        """Run the callbacks that are due, as the engine does between steps."""
        while (callback := self.membership.due_callback) is not None:
            self.calls.append((callback.kind.value, callback.partitions))
            self.membership.callback_began(callback)
            self.membership.callback_done(callback, self.now, raising)

    def reply(self, request: UnsentRequest, message: Any) -> None:
        """Deliver a response."""
        request.handler(Reply(message, None, self.now, request.api.max_version, request.node or "1", self.now))

    def break_connection(self, request: UnsentRequest, error: KafkaError) -> None:
        """Let the request fail without a response."""
        request.handler(Reply(None, error, self.now, node=request.node or "1"))

    def respond(self, request: UnsentRequest, epoch: int = 1, assigned: Mapping[str, list[int]] | None = None) -> None:
        """Respond to a heartbeat without an error: this epoch, and this assignment if any."""
        self.reply(request, heartbeat_response(epoch, assigned))

    def refuse(self, request: UnsentRequest, code: int, text: str | None = None) -> None:
        """Respond to a heartbeat with an error code."""
        self.reply(request, ConsumerGroupHeartbeatResponse(error_code=code, error_message=text))

    # --- whole steps ---

    def until_stable(self, limit: int = 10) -> list[UnsentRequest]:
        """Poll, run callbacks, respond to commits and heartbeats until the member is stable. Returns the heartbeats."""
        sent = []
        for _ in range(limit):
            for request in self.poll():
                if request.api.name == "OffsetCommit":
                    self.reply(request, committed(request))
                else:
                    sent.append(request)
                    self.respond(request, self.member.member_epoch)
            self.run_callbacks()
            if self.state is MemberState.STABLE:
                return sent
        raise AssertionError(f"not stable: {self.member!r}")

    def joined(self, assigned: Mapping[str, list[int]] | None = None, epoch: int = 1) -> None:
        """Join and get this assignment."""
        self.respond(self.beat(), epoch, {} if assigned is None else assigned)
        self.until_stable()

    def target(self, assigned: Mapping[str, list[int]], epoch: int) -> None:
        """Respond to the next regular heartbeat with a new assignment."""
        self.now += INTERVAL_MS
        self.respond(self.beat(), epoch, assigned)


def heartbeat_response(epoch: int, assigned: Mapping[str, list[int]] | None = None) -> ConsumerGroupHeartbeatResponse:
    """Returns a response to a heartbeat without an error."""
    assignment = None
    if assigned is not None:
        assignment = ConsumerGroupHeartbeatAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id(topic), partitions=partitions)
                for topic, partitions in assigned.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id="me", member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=assignment
    )


LOST, REVOKED, ASSIGNED = CallbackKind.LOST.value, CallbackKind.REVOKED.value, CallbackKind.ASSIGNED.value
