"""A group with 3,000 partitions: its rebalances take a small part of the rebalance timeout."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kconsumer import Consumer
from support.brokers.kafka import KafkaCluster
from support.harnesses.inside import parts_of

TOPICS, PARTITIONS, MEMBERS = 30, 100, 3
EVERYTHING = TOPICS * PARTITIONS
WRITTEN = (0, 50, 99)  # the partitions of each topic that have a record
REBALANCE_TIMEOUT_MS = 300_000  # max_poll_interval_ms, the default
WITHIN_S = REBALANCE_TIMEOUT_MS / 1000 / 5
# A controller that misses the broker's heartbeats for three seconds would move 3,000 leaders away and back.
STEADY = {"broker.session.timeout.ms": "60000"}

PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"assignors": ["range"]},
    "cooperative-sticky": {"assignors": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(scope="module")
def cluster(new_cluster: type[KafkaCluster]) -> Iterator[KafkaCluster]:
    """A broker for this module alone, because 3,000 partitions would slow down other tests."""
    with new_cluster(properties=STEADY) as cluster:
        cluster.coordinator_of("any")  # makes the broker create the offsets topic before all others
        # With the default size of 10 MB, the index files of 3,000 partitions would keep the disk busy.
        small = {"segment.index.bytes": "16384"}
        names = [f"many-{number:02}" for number in range(TOPICS)]
        made = cluster.admin.create_topics([NewTopic(name, PARTITIONS, 1, config=small) for name in names])
        for future in made.values():
            future.result(120)
        for name in names:
            cluster.wait_for_partitions(name, PARTITIONS)
        producer = cluster.producer()
        for name in names:
            for partition in WRITTEN:
                producer.produce(name, b"x", partition=partition)
        # Metadata has the leaders before the logs exist; a busy disk creates a few dozen logs a second.
        assert 0 == producer.flush(400)
        yield cluster


def settled(members: list[Consumer]) -> bool:
    """Returns whether the members own all partitions, evenly at least within each topic, and have all positions."""
    assignments = [member.assignment() for member in members]
    counts = list(map(len, assignments))
    return (
        sum(counts) == len(frozenset().union(*assignments)) == EVERYTHING
        and max(counts) - min(counts) <= TOPICS
        and all(parts_of(member).positions.has_all_positions() for member in members)
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go(cluster: KafkaCluster, protocol: str) -> None:
    """Three members read 3,000 partitions, one leaves and another joins. Each time all partitions are assigned with
    positions within a fifth of the rebalance timeout.
    """
    group = f"many-{uuid.uuid4().hex[:8]}"
    took: dict[str, float] = {}
    records = 0

    def timed(what: str, condition: Callable[[], object]) -> None:
        nonlocal records
        began = time.monotonic()
        deadline = began + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} not within {WITHIN_S} s; before: {took}"
            for member in members:
                records += len(member.poll(0.05))
        took[what] = time.monotonic() - began

    def member() -> Consumer:
        return Consumer(
            *(f"many-{number:02}" for number in range(TOPICS)),
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            max_poll_interval_ms=REBALANCE_TIMEOUT_MS,
            **PROTOCOLS[protocol],
        )

    members = [member() for _ in range(MEMBERS)]
    try:
        timed("join", lambda: settled(members))
        timed("read", lambda: records == TOPICS * len(WRITTEN))
        began = time.monotonic()
        members.pop().close()
        took["close"] = time.monotonic() - began
        timed("after leaving", lambda: settled(members))
        members.append(member())
        timed("after coming", lambda: settled(members))
        assert TOPICS * len(WRITTEN) == records, "what is committed is not read again"
    finally:
        for left in members:
            left.close()
    print(protocol, {what: f"{seconds:.1f} s" for what, seconds in took.items()})
