"""A classic member leaves while its SyncGroup waits. It joins again at once, though SyncGroup gets no response."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.coordinator.classic_protocol.embedded import encode_assignment, encode_subscription
from kconsumer.coordinator.classic_protocol.state import MemberState
from kconsumer.schema.classic_group import (
    HEARTBEAT,
    JOIN_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kconsumer.schema.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartitions
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient
from support.simulation.scheduler import Process
from support.simulation.short_run import run_simulated
from support.simulation.simulation import Simulation

TOPIC, GROUP = "t", "g"
LIMIT_MS = 60_000


class Leader:
    """The leader of a group, whose requests the test sends one by one."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._client = ClusterClient(simulation.cluster, simulation.clock, client_id="leader")
        self._joined: Any = None

    def _call(self, api: Any, version: int, message: Any) -> Any:
        """Send a request. Returns its response."""
        number = self._client.send(api, version, message)
        self._simulation.network.pump()
        while (response := self._client.response(number)) is None:
            self._simulation.sleep(1)
        return response

    def join(self) -> None:
        """Join the group, or join it again."""
        metadata = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC]))
        message = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=LIMIT_MS,
            rebalance_timeout_ms=LIMIT_MS,
            member_id="" if self._joined is None else self._joined.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self._joined = self._call(JOIN_GROUP, 3, message)
        assert self._joined.leader == self._joined.member_id

    def await_rebalance(self) -> None:
        """Wait until the coordinator requires that the leader joins again, and join."""
        message = HeartbeatRequest(
            group_id=GROUP, generation_id=self._joined.generation_id, member_id=self._joined.member_id
        )
        while self._call(HEARTBEAT, 3, message).error_code == 0:
            self._simulation.sleep(10)
        self.join()

    def follow(self) -> None:
        """Take part in each rebalance, without end."""
        while True:
            self.await_rebalance()
            self.sync()

    def sync(self) -> None:
        """Assign the partition to the other member, if there is one."""
        others = [row.member_id for row in self._joined.members if row.member_id != self._joined.member_id]
        assigned = ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])])
        rows = [SyncGroupRequestAssignment(member_id=other, assignment=encode_assignment(assigned)) for other in others]
        message = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._joined.generation_id,
            member_id=self._joined.member_id,
            assignments=rows,
        )
        self._call(SYNC_GROUP, 3, message)


class Case:
    """A follower whose SyncGroup waits, because the leader has not assigned."""

    def __init__(self, simulation: Simulation, *, asyncio: bool, **options: Any) -> None:
        self.simulation = simulation
        self.leader = Leader(simulation)
        self.leader.join()
        self.leader.sync()
        self.follower: Consumer = simulation.consumer(
            Process("follower"), TOPIC, asyncio=asyncio, group_id=GROUP, assignors=["range"], **options
        )
        self._membership: Any = self.follower._engine.components.group.membership
        self._member = self._membership._member
        simulation.spawn(Process("leader"), "rebalance", self.leader.await_rebalance)
        while not (self._member.state is MemberState.SYNCING and self._membership.in_flight):
            self.follower.poll(0.05)
        simulation.sleep(100)  # so that the coordinator has received SyncGroup

    def join_again(self) -> None:
        """Let the leader take part in rebalances. Check that the follower gets its partition, and soon."""
        self.simulation.spawn(Process("leader"), "rebalances", self.leader.follow)
        began = self.simulation.now
        while not self.follower.assignment():
            self.follower.poll(0.1)
            assert self.simulation.now < began + 5_000
        self.follower.close()


pytestmark = pytest.mark.parametrize("asyncio", [False, True], ids=["blocking", "asyncio"])


def run(function: Any) -> None:
    """Call a function in a simulation of one broker, and wait for its end."""
    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 1)
    run_simulated(function, cluster, LIMIT_MS)


def test_a_new_subscription(asyncio: bool) -> None:
    """unsubscribe() closes the connection on which SyncGroup waits, and the next subscription joins over another."""

    def test(simulation: Simulation) -> None:
        case = Case(simulation, asyncio=asyncio)
        case.follower.unsubscribe()
        case.follower.subscribe([TOPIC])
        case.join_again()

    run(test)


def test_an_idle_caller(asyncio: bool) -> None:
    """A member that leaves after max_poll_interval_ms joins again with the next poll."""

    def test(simulation: Simulation) -> None:
        case = Case(simulation, asyncio=asyncio, max_poll_interval_ms=10_000)
        simulation.sleep(15_000)
        case.join_again()

    run(test)
