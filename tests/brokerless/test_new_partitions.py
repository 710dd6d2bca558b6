"""`auto_offset_reset_new_partitions` on FakeCluster: where partitions begin that appeared after the subscription."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, SubscriptionPattern, TopicPartition
from kconsumer.errors import ConfigError
from kconsumer.share.config import ShareConsumerConfig
from kconsumer.testing import FakeCluster

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset_new_partitions": "earliest",
    "metadata_max_age_ms": 300,
    "value_deserializer": "str",
}
FIRST, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
LIMIT_S = 20.0


def made(cluster: FakeCluster, protocol: str, *topics: str, **options: Any) -> Consumer:
    """Returns a member of the group, which starts at the end."""
    if protocol == "classic":
        options["heartbeat_interval_ms"] = 50
    return Consumer(
        *topics, bootstrap_servers=cluster.bootstrap_servers, group_protocol=protocol, **{**OPTIONS, **options}
    )


def until(condition: Callable[[], bool], *members: Consumer, into: list[str] | None = None) -> list[str]:
    """Poll the members in turn until the condition is true. Returns the values of all records."""
    values: list[str] = [] if into is None else into
    limit = members[0]._clock.now() + LIMIT_S * 1000
    while not condition():
        assert members[0]._clock.now() < limit
        for member in members:
            values += [record.value for record in member.poll(0.02)]
    return values


def placed(consumer: Consumer, *partitions: TopicPartition) -> Callable[[], bool]:
    """Returns a condition: the consumer has these partitions and their positions."""
    states = consumer.partition_states
    return lambda: all(tp in states() and states()[tp].position is not None for tp in partitions)


@pytest.fixture
def cluster() -> Any:
    """A cluster with a topic of one partition, which has a record."""
    with FakeCluster(group_initial_rebalance_delay_ms=0) as started:
        started.create_topic("t")
        started.produce("t", ["old"], partition=0)
        yield started


def grow(cluster: FakeCluster) -> None:
    """Add a partition with a record, of which no member knows yet."""
    cluster.add_partitions("t", 1)
    cluster.produce("t", ["early"], partition=1)


@PROTOCOLS
@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, ["early"]),
        ({"auto_offset_reset": "none"}, ["early"]),
        ({"auto_offset_reset_new_partitions": None}, []),
        ({"auto_offset_reset": "earliest", "auto_offset_reset_new_partitions": "latest"}, []),
    ],
)
def test_a_topic_that_grows(cluster: FakeCluster, protocol: str, options: dict[str, Any], read: list[str]) -> None:
    """The records of a new partition that were written before the member learned of it are read by the option."""
    with made(cluster, protocol, "t", **options) as consumer:
        if options.get("auto_offset_reset") == "none":
            with made(cluster, protocol) as other:
                other.assign([FIRST])
                other.commit({FIRST: 1})
        until(placed(consumer, FIRST), consumer)
        grow(cluster)
        found = until(placed(consumer, NEW), consumer)
        assert read == found + until(lambda: consumer.position(NEW) == 1, consumer)


@PROTOCOLS
def test_partitions_of_the_first_metadata_are_not_new(cluster: FakeCluster, protocol: str) -> None:
    """A member that starts after a topic has grown does not distinguish its partitions."""
    grow(cluster)
    with made(cluster, protocol, "t") as consumer:
        assert [] == until(placed(consumer, FIRST, NEW), consumer)


@PROTOCOLS
def test_a_committed_offset_wins(cluster: FakeCluster, protocol: str) -> None:
    """A new partition continues at the offset that another member has committed."""
    with made(cluster, protocol, "t") as consumer:
        until(placed(consumer, FIRST), consumer)
        grow(cluster)
        cluster.produce("t", ["next"], partition=1)
        consumer.commit({NEW: 1})
        assert ["next"] == until(lambda: placed(consumer, NEW)() and consumer.position(NEW) == 2, consumer)


@PROTOCOLS
def test_a_partition_that_another_member_had_first(cluster: FakeCluster, protocol: str) -> None:
    """A member that gets a new partition later, without a committed offset, reads it from its start."""
    added, options = TopicPartition("two", 2), {"enable_auto_commit": False}
    cluster.create_topic("two", partitions=2)
    with made(cluster, protocol, "two", **options) as first, made(cluster, protocol, "two", **options) as second:
        members = (first, second)
        until(lambda: all(len(member.assignment()) == 1 for member in members), *members)
        cluster.add_partitions("two", 1)
        cluster.produce("two", ["early"], partition=2)
        until(lambda: any(placed(member, added)() and member.position(added) == 1 for member in members), *members)
        owner, other = members if added in first.assignment() else members[::-1]
        owner.close()
        assert ["early"] == until(lambda: placed(other, added)() and other.position(added) == 1, other)


@pytest.mark.parametrize(
    ("protocol", "pattern"),
    [(protocol, pattern) for protocol in ("classic", "consumer") for pattern in (None, re.compile("t.*"))]
    + [("consumer", SubscriptionPattern("t.*"))],
)
def test_topics_that_are_created_later(cluster: FakeCluster, protocol: str, pattern: Any) -> None:
    """All partitions of a topic are new that did not exist when it was subscribed, by its name or by a pattern."""
    with made(cluster, protocol, allow_auto_create_topics=False) as consumer:
        consumer.subscribe(pattern or ["t", "t2"])
        assert [] == until(placed(consumer, FIRST), consumer)
        cluster.create_topic("t2")
        cluster.produce("t2", ["early"])
        assert ["early"] == until(lambda: TopicPartition("t2", 0) in consumer.assignment(), consumer) + until(
            lambda: placed(consumer, ("t2", 0))() and consumer.position(("t2", 0)) == 1, consumer
        )
        grow(cluster)
        assert ["early"] == until(lambda: placed(consumer, NEW)() and consumer.position(NEW) == 1, consumer)


@PROTOCOLS
@pytest.mark.parametrize("reads", [False, True])
def test_a_topic_that_is_created_again(cluster: FakeCluster, protocol: str, reads: bool) -> None:
    """Its partitions are new, whether the member has read the old one or not."""
    with made(cluster, protocol, "t", allow_auto_create_topics=False) as consumer:
        until(placed(consumer, FIRST), consumer)
        read: list[str] = []
        if reads:
            cluster.produce("t", ["last"], partition=0)
            until(lambda: bool(read), consumer, into=read)
            read.clear()
        cluster.delete_topic("t")
        cluster.create_topic("t")
        cluster.produce("t", ["early"] * 2)
        until(lambda: bool(read), consumer, into=read)
        assert ["early"] * 2 == read + until(lambda: consumer.position(FIRST) == 2, consumer)


def test_share_consumers_refuse_the_option() -> None:
    """A share group has no such positions."""
    with pytest.raises(ConfigError, match="auto_offset_reset_new_partitions"):
        ShareConsumerConfig(bootstrap_servers="a:1", group_id="g", auto_offset_reset_new_partitions="earliest")
