"""In a cluster of three nodes, a partition leader and the group's coordinator are killed under load, and no record is
lost.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.harnesses.threads import meanwhile
from support.members import clients
from support.members.group_load import all_offsets
from support.members.members import (
    MemberProcess,
    Partition,
    assert_all_seen,
    shared_out,
    wait_for,
)

PARTITIONS = 6
DURABLE = {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 60_000}


class Load:
    """Produces records that all in-sync replicas acknowledge, until it is stopped; continues when a broker dies."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.failed: list[object] = []
        self._topic = topic
        self._producer = cluster.producer(DURABLE)

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.add((message.partition(), message.offset()))
        else:
            self.failed.append(error)

    def _run(self, ended: threading.Event) -> None:
        number = 0
        while not ended.wait(0.02):
            for _ in range(40):
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def running(self) -> AbstractContextManager[None]:
        """Produce records while the block runs, then wait for every acknowledgement."""
        return meanwhile(self._run)


def member_settings(cluster: KafkaCluster, topic: str, assignors: clients.Assignors) -> dict[str, Any]:
    """Returns the settings of a member that detects dead brokers quickly."""
    classic = {} if assignors is None else {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}
    options = {"auto_commit_interval_ms": 500, "request_timeout_ms": 5_000, "retry_backoff_ms": 50, **classic}
    return clients.settings(cluster, topic, assignors, **options)


def consumption_continues(members: list[MemberProcess], load: Load, what: str) -> None:
    """Check that records produced from now on are read from every partition."""
    target = max(offset for _, offset in load.acknowledged.copy()) + 200  # the offsets grow meanwhile

    def caught_up() -> bool:
        last: dict[Partition, int] = {}
        for member in members:
            for event in member.seen("records"):
                partition = tuple(event["partition"])
                last[partition] = max(last.get(partition, -1), event["offsets"][-1])
        return len(last) == PARTITIONS and all(offset >= target for offset in last.values())

    wait_for(caught_up, what, members, timeout_s=90)


CLASSIC = ["cooperative-sticky"]
NEW = pytest.mark.consumer_protocol


@pytest.mark.parametrize(
    ("assignors", "others"),
    [
        pytest.param(CLASSIC, (), id="classic"),
        pytest.param(None, (), id="consumer", marks=NEW),
        pytest.param(CLASSIC, ("java", "confluent"), id="classic-mixed", marks=pytest.mark.long),
        pytest.param(None, ("java", "confluent"), id="consumer-mixed", marks=(NEW, pytest.mark.long)),
    ],
)
def test_leader_and_coordinator_die_under_load(
    kafka_cluster3: KafkaCluster, topic_name: str, assignors: clients.Assignors, others: tuple[str, ...]
) -> None:
    """A leader is killed and restarted, then the coordinator is killed. Consumption continues each time and every
    record is read, also by a group that is shared with other clients.
    """
    cluster = kafka_cluster3
    topic = cluster.create_topic(topic_name, PARTITIONS, replication=3, config={"min.insync.replicas": "2"})
    chosen = member_settings(cluster, topic, assignors)
    load = Load(cluster, topic)
    with ExitStack() as stack:
        with load.running():
            members = [stack.enter_context(MemberProcess(name, chosen)) for name in ("first", "second")]
            for name in others:
                members.append(stack.enter_context(clients.start(name, name, cluster, topic, assignors)))
            partitions = [(topic, partition) for partition in range(PARTITIONS)]
            wait_for(lambda: shared_out(members, partitions), "the members to share", members)
            wait_for(lambda: load.acknowledged, "the first acknowledged record", members)
            consumption_continues(members, load, "reading to start")

            coordinator = cluster.coordinator_of(topic)
            leaders = {partition: cluster.leader_of(topic, partition) for partition in range(PARTITIONS)}
            leader = next(node for node in leaders.values() if node != coordinator)
            cluster.node(leader).kill()
            consumption_continues(members, load, f"reading to continue without leader {leader}")
            cluster.node(leader).start()
            wait_until(lambda: in_sync(cluster, topic), 60, "all replicas in sync again")

            cluster.node(coordinator).kill()
            consumption_continues(members, load, f"reading to continue without coordinator {coordinator}")
            cluster.node(coordinator).start()
            wait_until(lambda: in_sync(cluster, topic), 60, "all replicas in sync again")
        assert [] == load.failed
        ends: dict[Partition, int] = {}
        for partition, offset in load.acknowledged:
            ends[topic, partition] = max(ends.get((topic, partition), 0), offset + 1)
        wait_for(lambda: all_offsets(members, ends), "every acknowledged record", members, timeout_s=60)
        for member in members:
            member.stop()
        assert_all_seen(members, ends, once=False)


def in_sync(cluster: KafkaCluster, topic: str) -> bool:
    """Returns whether every replica of the topic is in sync."""
    partitions = cluster.metadata(topic).topics[topic].partitions.values()
    return all(len(partition.isrs) == 3 for partition in partitions)
