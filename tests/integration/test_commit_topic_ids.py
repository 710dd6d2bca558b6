"""Commits of KIP-848 members identify topics by id (OffsetCommit 10), so that offsets are not applied to a re-created
topic.
"""

from __future__ import annotations

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.coordinator.commit_messages import LAST_VERSION_WITH_NAMES
from kconsumer.errors import KafkaError
from kconsumer.schema.offsets import OFFSET_COMMIT, OFFSET_FETCH
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.inside import parts_of
from support.harnesses.polling import read, values

pytestmark = pytest.mark.consumer_protocol

BEFORE, AFTER = 5, 20


def member(kafka: Kafka, name: str) -> Consumer:
    return Consumer(
        name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=name,
        group_protocol="consumer",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )


def test_commits_and_look_ups_go_by_id(kafka: Kafka, topic_name: str) -> None:
    """The broker supports the versions with ids, and offsets committed by id are found by id and by name."""
    kafka.create_topic(topic_name, 1)
    kafka.produce(topic_name, [b"x"] * BEFORE)
    tp = TopicPartition(topic_name, 0)
    with member(kafka, topic_name) as consumer:
        read(consumer, BEFORE)
        group = parts_of(consumer).group
        assert group is not None
        node = group.coordinator.connection_id
        assert node is not None
        for api in (OFFSET_COMMIT, OFFSET_FETCH):
            assert parts_of(consumer).client.negotiated(node, api) > LAST_VERSION_WITH_NAMES
        consumer.commit()
        found = consumer.committed([tp])[tp]
        assert found is not None
        assert BEFORE == found.offset
    assert {0: BEFORE} == kafka.committed(topic_name, topic_name)


def test_offsets_of_a_deleted_topic_stay_out_of_its_successor(kafka: Kafka, topic_name: str) -> None:
    """A topic is deleted and created again between reading and committing. The commit fails, and the next member reads
    the new topic from its beginning.
    """
    kafka.create_topic(topic_name, 1)
    kafka.produce(topic_name, [b"old"] * BEFORE)
    with member(kafka, topic_name) as consumer:
        read(consumer, BEFORE)
        cluster = parts_of(consumer).cluster
        old = cluster.topic_id(topic_name)
        kafka.delete_topic(topic_name)
        kafka.create_topic(topic_name, 1)
        kafka.produce(topic_name, [b"new"] * AFTER)
        # The network thread refreshes metadata by itself, and no poll reads more records.
        wait_until(lambda: cluster.topic_id(topic_name) not in (None, old), 30, "the consumer to know the new topic")
        with pytest.raises(KafkaError) as failure:
            consumer.commit(timeout=20)
        assert 100 == getattr(failure.value, "code", 0), failure.value
        assert {} == kafka.committed(topic_name, topic_name)
    with member(kafka, topic_name) as consumer:
        assert [b"new"] * AFTER == values(read(consumer, AFTER))
