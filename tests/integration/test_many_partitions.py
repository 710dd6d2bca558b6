"""A group over 3,000 partitions: its rebalances take a small part of the time that a group has for them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kconsumer import Consumer
from support.kafka import KafkaCluster
from support.polling import poll_until

TOPICS, PARTITIONS, MEMBERS = 30, 100, 3
EVERYTHING = TOPICS * PARTITIONS
REBALANCE_TIMEOUT_MS = 300_000  # max_poll_interval_ms, the default
WITHIN_S = REBALANCE_TIMEOUT_MS / 1000 / 10

PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"assignors": ["range"]},
    "cooperative-sticky": {"assignors": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker of its own: so many partitions would slow down everybody else's."""
    with KafkaCluster() as cluster:
        # Of the usual 10 MB, the index files of 3,000 partitions would keep the disk busy.
        small = {"segment.index.bytes": "16384"}
        names = [f"many-{number:02}" for number in range(TOPICS)]
        made = cluster.admin.create_topics([NewTopic(name, PARTITIONS, 1, config=small) for name in names])
        for future in made.values():
            future.result(120)
        for name in names:
            cluster.wait_for_partitions(name, PARTITIONS)
            cluster.produce(name, [b"x"] * PARTITIONS)
        yield cluster


def settled(members: list[Consumer]) -> bool:
    """Whether the members share everything evenly and know where to read."""
    assignments = [member.assignment() for member in members]
    share = EVERYTHING // len(members)
    return (
        [share] * len(members) == list(map(len, assignments))
        and len(frozenset().union(*assignments)) == EVERYTHING
        and all(member._engine.parts.subscription.has_all_positions() for member in members)
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go(cluster: KafkaCluster, protocol: str) -> None:
    """Three members share 3,000 partitions, read, one leaves and one comes: each time all is shared out again, with
    positions, within a tenth of the rebalance timeout."""
    group = f"many-{uuid.uuid4().hex[:8]}"
    took: dict[str, float] = {}

    def timed(what: str, members: list[Consumer], condition: Callable[[], object]) -> int:
        began = time.monotonic()
        records = poll_until(members, condition, timeout_s=4 * WITHIN_S)
        took[what] = time.monotonic() - began
        return len(records)

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
        read = timed("join", members, lambda: settled(members))
        lag = lambda: all(  # noqa: E731
            member.current_lag(tp) == 0 for member in members for tp in member.assignment()
        )
        read += timed("read", members, lag)
        assert EVERYTHING == read
        began = time.monotonic()
        members.pop().close()
        took["close"] = time.monotonic() - began
        again = timed("after leaving", members, lambda: settled(members))
        members.append(member())
        again += timed("after coming", members, lambda: settled(members))
        assert 0 == again, "everything read had been committed"
    finally:
        for left in members:
            left.close()
    print({what: f"{seconds:.1f} s" for what, seconds in took.items()})
    assert max(took.values()) < WITHIN_S, took
