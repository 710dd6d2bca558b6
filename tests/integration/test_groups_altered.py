"""Changes of groups from outside: the offsets of an empty group are set, and a group is deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.error_codes import Errors
from kconsumer.errors import GroupError, StaleMetadataError
from kconsumer.groups import GroupClient
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, poll_until, tps

New = Callable[..., Consumer]


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic of two partitions with ten records each."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, numbered(10), partition=partition)
    return topic_name


@pytest.mark.usefixtures("form")
def test_a_group_without_members_is_changed(kafka: Kafka, topic: str, new_consumer: New) -> None:
    """While a group has members, its offsets cannot be set and it cannot be deleted; then both are possible."""
    first, second = tps(topic, 0, 1)
    with GroupClient(kafka.bootstrap_servers) as client:
        with new_consumer(topic, group_id=topic, enable_auto_commit=False) as member:
            poll_until([member], lambda: len(member.assignment()) == 2)
            member.commit({first: 3, second: 4})
            with pytest.raises(GroupError, match="the group has members, and only they can commit") as caught:
                client.alter_offsets(topic, {first: 1})
            assert Errors.UNKNOWN_MEMBER_ID == caught.value.code
            with pytest.raises(GroupError, match="stop its members first") as caught:
                client.delete(topic)
            assert Errors.NON_EMPTY_GROUP == caught.value.code
        client.alter_offsets(topic, {first: OffsetAndMetadata(7, "by hand", 0)})
        offsets = client.offsets(client.describe(topic))
        assert [(7, "by hand", 0), (4, "", None)] == [
            (at.committed, at.metadata, at.leader_epoch) for at in (offsets[first], offsets[second])
        ]
        client.delete(topic)
        with pytest.raises(GroupError, match="does not exist") as caught:
            client.delete(topic)
        assert Errors.GROUP_ID_NOT_FOUND == caught.value.code


@pytest.mark.classic_protocol
@pytest.mark.usefixtures("form")
def test_a_new_group_reads_from_its_offsets(kafka: Kafka, topic: str, new_consumer: New) -> None:
    """Offsets of a group that does not exist create it, and its first member begins to read there."""
    with GroupClient(kafka.bootstrap_servers) as client:
        client.alter_offsets(topic, dict(zip(tps(topic, 0, 1), (8, 9), strict=True)))
        client.alter_offsets(topic, {})
        found = client.describe(topic)
    assert ("classic", "Empty") == (found.type, found.state)
    read: list[tuple[int, int]] = []
    with new_consumer(topic, group_id=topic, auto_offset_reset="none") as member:
        while len(read) < 3:
            read += [(record.partition, record.offset) for record in member.poll(1.0)]
    assert [(0, 8), (0, 9), (1, 9)] == sorted(read)


@pytest.mark.classic_protocol
def test_a_partition_that_does_not_exist(kafka: Kafka, topic: str) -> None:
    """The error names the partition at once; the offsets of other partitions are committed."""
    missing = TopicPartition(topic, 2)
    with GroupClient(kafka.bootstrap_servers) as client:
        with pytest.raises(StaleMetadataError, match=f"committing the offset of {missing}"):
            client.alter_offsets(topic, {missing: 0, **dict.fromkeys(tps(topic, 0), 5)})
        assert {tps(topic, 0)[0]: 5} == {tp: at.committed for tp, at in client.offsets(client.describe(topic)).items()}
