"""Measures the steps of a rebalance in its leader: `python benchmarks/assignors/run.py --steps`.

Without broker and Java: it turns the bytes of a JoinGroup response into those of a SyncGroup request, with the code of
a consumer (`kconsumer/coordinator/classic_protocol/leader.py`), so user data and owned partitions are real. It measures
CPU time, the best of several rounds, so other work on the machine hardly counts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kconsumer._core.codec import decode, encode
from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, load, validate
from kconsumer.coordinator.classic_protocol.leader import (
    LeaderAssignment,
    assignment_bytes,
    encode_own_subscription,
    parse_assignment,
)
from kconsumer.schema.classic_group import (
    JOIN_GROUP,
    SYNC_GROUP,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.state.cluster import Cluster
from kconsumer.types import GroupMetadata

TOPICS, PARTITIONS, MEMBERS, LEAVE, JOIN = 60, 50, 300, 10, 30
BROKERS = 6
JOIN_VERSION, SYNC_VERSION, METADATA_VERSION = 9, 5, 12
STEPS = ("response", "subscriptions", "view", "assign", "check", "encode", "request")
NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


@dataclass
class Member:
    """One member: its own assignor, and its last assignment."""

    assignor: Assignor
    generation: int = -1
    given: Assignment = field(default_factory=lambda: Assignment(()))

    def subscription(self, topics: list[str]) -> bytes:
        """Return the subscription with which it joins. Eager members have revoked all partitions before."""
        keeps = RebalanceProtocol.COOPERATIVE in self.assignor.protocols
        owned = self.given.partitions if keeps else ()
        return encode_own_subscription(self.assignor, frozenset(topics), owned, self.generation, "")

    def receive(self, member_id: str, data: bytes, generation: int) -> None:
        """Take over the assignment of a SyncGroup response."""
        self.given, self.generation = parse_assignment(data), generation
        self.assignor.on_assignment(self.given, GroupMetadata("bench", generation, member_id))


def new_cluster() -> tuple[Cluster, list[str]]:
    """Return a cluster from a Metadata response, and the names of its topics."""
    topics = [f"topic-{number:03}" for number in range(TOPICS)]
    cluster = Cluster()
    brokers = [MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092) for node in range(BROKERS)]
    rows = []
    for topic in topics:
        partitions = []
        for index in range(PARTITIONS):
            held = [(index + copy) % BROKERS for copy in range(3)]
            partitions.append(
                MetadataResponsePartition(
                    partition_index=index, leader_id=held[0], replica_nodes=held, isr_nodes=held, leader_epoch=1
                )
            )
        rows.append(MetadataResponseTopic(name=topic, partitions=partitions))
    cluster.update(MetadataResponse(brokers=brokers, topics=rows), METADATA_VERSION, full=True)
    return cluster, topics


def new_ids(count: int, seed: int) -> list[str]:
    """Return member ids as coordinators create them."""
    rng = random.Random(seed)
    return [f"consumer-bench-{number:03}-{rng.randbytes(16).hex()}" for number in range(count)]


class Group:
    """A group with one assignor, and its rebalances."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leader = load(name)
        self.members = {member_id: Member(load(name)) for member_id in new_ids(MEMBERS, 1)}
        self.generation = 0

    def events(self) -> Iterator[str]:
        """Yield the event before each rebalance."""
        yield "first"
        for member_id in random.Random(3).sample(sorted(self.members), LEAVE):
            del self.members[member_id]
        yield f"{LEAVE} leave"
        self.members.update({member_id: Member(load(self.name)) for member_id in new_ids(JOIN, 2)})
        yield f"{JOIN} join"

    def join_response(self, topics: list[str]) -> bytes:
        """Return the bytes of the JoinGroup response to the leader."""
        self.generation += 1
        rows = [
            JoinGroupResponseMember(member_id=member_id, metadata=member.subscription(topics))
            for member_id, member in self.members.items()
        ]
        leader = next(iter(self.members))
        message = JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self.name,
            leader=leader,
            member_id=leader,
            members=rows,
        )
        return encode(JOIN_GROUP.response_plan(JOIN_VERSION), message)

    def receive(self, given: dict[str, bytes]) -> None:
        """Pass each member its assignment."""
        for member_id, data in given.items():
            self.members[member_id].receive(member_id, data, self.generation)


def _request(group: Group, given: dict[str, bytes]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="bench",
        generation_id=group.generation,
        member_id=next(iter(given)),
        protocol_type="consumer",
        protocol_name=group.name,
        assignments=[SyncGroupRequestAssignment(member_id=key, assignment=data) for key, data in given.items()],
    )


class Stopwatch:
    """Records the minimum CPU time (ms) of each step over all rounds."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def __call__(self, step: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run and time a step. Returns its result."""
        began = time.process_time_ns()
        result = call(*arguments)
        took = (time.process_time_ns() - began) / 1e6
        self.best[step] = min(took, self.best.get(step, took))
        return result


def one_round(group: Group, data: bytes, cluster: Cluster, watch: Stopwatch) -> dict[str, bytes]:
    """Run the steps of `LeaderAssignment`. Returns the encoded assignments by member id."""
    joined = watch("response", decode, JOIN_GROUP.response_plan(JOIN_VERSION), data)
    leader = watch("subscriptions", LeaderAssignment, group.leader, joined, "")
    subscriptions = leader.subscriptions
    view = watch("view", lambda: ClusterView(cluster.partition_infos(leader.topics)))
    given = watch("assign", group.leader.assign, view, subscriptions)
    watch("check", validate, group.leader, view, subscriptions, given)
    watch("encode", lambda: {key: assignment_bytes(assignment) for key, assignment in given.items()})
    encoded: dict[str, bytes] = watch("whole assign()", leader.assign, cluster)
    watch("request", encode, SYNC_GROUP.request_plan(SYNC_VERSION), _request(group, encoded))
    return encoded


def measure(rounds: int) -> None:
    """Print a line for each assignor and event."""
    cluster, topics = new_cluster()
    print(f"{TOPICS} topics of {PARTITIONS} partitions, {MEMBERS} members; ms of CPU time, the best of {rounds}")
    print(f"{'assignor':19} {'event':9} {'KB':>5}" + "".join(f" {step:>13}" for step in (*STEPS, "all")))
    for name in NAMES:
        group = Group(name)
        for event in group.events():
            data, watch = group.join_response(topics), Stopwatch()
            for _ in range(rounds):
                given = one_round(group, data, cluster, watch)
            group.receive(given)
            figures = [watch.best[step] for step in STEPS]
            columns = "".join(f" {figure:13.2f}" for figure in (*figures, sum(figures)))
            print(f"{name:19} {event:9} {len(data) // 1024:5}{columns}", flush=True)
