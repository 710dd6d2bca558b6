"""Consumers against a broker of the 3.9 line: reading, groups, commits and look-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, OffsetAndMetadata, OffsetAndTimestamp, groups
from kconsumer.errors import BrokerError
from kconsumer.groups import GroupClient
from support.brokers.kafka import Kafka
from support.harnesses.polling import Recorder, await_assignment, numbered, poll_until, read, tps, values
from support.members.java_groups import GROUPS, ask

pytestmark = pytest.mark.classic_protocol


@pytest.fixture
def old_consumer(kafka39: Kafka, new_consumer: Callable[..., Consumer]) -> Callable[..., Consumer]:
    """Returns a function that makes consumers of the old broker."""

    def make(*topics: str, **options: Any) -> Consumer:
        return new_consumer(*topics, bootstrap_servers=kafka39.bootstrap_servers, **options)

    return make


@pytest.fixture
def topic(kafka39: Kafka, topic_name: str) -> str:
    """A topic of two partitions, with the values 0 to 9 in the first."""
    kafka39.create_topic(topic_name, 2)
    kafka39.produce(topic_name, numbered(10), partition=0, timestamps=[1000 + n for n in range(10)])
    return topic_name


def test_assign_seek_and_look_up(topic: str, old_consumer: Callable[..., Consumer]) -> None:
    """Reading assigned partitions, seeking, end offsets, offsets by time, lag and metadata work."""
    zero, one = tps(topic, 0, 1)
    consumer = old_consumer()
    consumer.assign([zero, one])
    assert numbered(10) == values(read(consumer, 10))
    consumer.seek(zero, OffsetAndMetadata(8, "", 0))
    assert numbered(2, 8) == values(read(consumer, 2))
    assert {zero: 0, one: 0} == consumer.beginning_offsets([zero, one])
    assert {zero: 10, one: 0} == consumer.end_offsets([zero, one])
    assert {zero: OffsetAndTimestamp(5, 1005, 0), one: None} == consumer.offsets_for_times({zero: 1005, one: 0})
    assert 0 == consumer.current_lag(zero)
    assert 2 == len(consumer.partitions_for(topic))
    assert topic in consumer.list_topics()


def test_group_commit_and_second_member(kafka39: Kafka, topic: str, old_consumer: Callable[..., Consumer]) -> None:
    """A member joins, commits with metadata, shares the partitions with a second member, and leaves."""
    zero, one = tps(topic, 0, 1)
    listener = Recorder()
    first = old_consumer(group_id=topic, enable_auto_commit=False)
    first.subscribe([topic], listener=listener)
    read(first, 10)
    first.commit()
    first.commit({one: OffsetAndMetadata(0, "note")})
    assert {zero: OffsetAndMetadata(10, "", 0), one: OffsetAndMetadata(0, "note")} == first.committed([zero, one])
    second = old_consumer(topic, group_id=topic)
    poll_until([first, second], lambda: [1, 1] == [len(c.assignment()) for c in (first, second)])
    assert ["assigned", "revoked", "assigned"] == listener.kinds
    second.close()
    await_assignment(first, zero, one)
    first.close()
    assert "EMPTY" == kafka39.group_state(topic)


def test_group_health_is_as_java_says(kafka39: Kafka, topic: str, old_consumer: Callable[..., Consumer]) -> None:
    """GroupClient lists groups by state and type and describes them as Java's tool does."""
    servers = kafka39.bootstrap_servers
    member = old_consumer(topic, group_id=topic, client_id="me", enable_auto_commit=False)
    zero, one = tps(topic, 0, 1)
    await_assignment(member, zero, one)
    member.commit({zero: 3})
    with GroupClient(servers) as client:
        listed = {found.group_id: found for found in client.list(states=["Stable"], types=["classic"])}
        found = client.describe(topic)
        offsets = client.offsets(found)
    assert ("classic", "Stable", "consumer") == (listed[topic].type, listed[topic].state, listed[topic].protocol_type)
    assert ("classic", "Stable", "range", "me") == (found.type, found.state, found.protocol, found.members[0].client_id)
    theirs = {int(row["PARTITION"]): row for row in ask(GROUPS, servers, "--describe", "--group", topic)}
    assert {zero.partition, one.partition} == theirs.keys()
    for tp, offset in offsets.items():
        row = theirs[tp.partition]
        known = [
            None if cell == "-" else int(cell) for cell in (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"])
        ]
        assert [*known, row["CONSUMER-ID"]] == [offset.committed, offset.end, offset.lag, offset.owner]
    assert [(3, 7), (None, None)] == [(at.committed, at.lag) for at in offsets.values()]
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        groups.describe(f"{topic}-none", servers)
