"""User mistakes: each raises one clear error that names the cause and the correction."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kconsumer import Consumer, RangeClient, TopicPartition
from kconsumer.errors import (
    StaleMetadataError,
    TimeoutError,
)
from support.brokers.kafka import Kafka
from support.harnesses.polling import read

Options = dict[str, Any]


@pytest.mark.classic_protocol
def test_topic_that_does_not_exist(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """A topic that does not exist has no partitions, and a call that needs one raises an error that says so."""
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, **engine) as consumer:
        assert () == consumer.partitions_for(topic_name)
        tp = TopicPartition(topic_name, 0)
        with pytest.raises(TimeoutError, match=rf"{topic_name}.*does not exist"):
            consumer.end_offsets([tp], timeout=1)
        consumer.assign([tp])
        assert not consumer.poll(0.5)
        assert "does not exist" in consumer.partition_states()[tp].reason
        with pytest.raises(TimeoutError, match=rf"{topic_name}.*does not exist"):
            consumer.position(tp, timeout=0.5)


@pytest.mark.classic_protocol
def test_partition_that_does_not_exist(
    kafka: Kafka, topic_name: str, engine: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls that need the partition raise at once and name the existing partitions. poll() returns nothing and logs one
    warning, until the partition is added.
    """
    kafka.create_topic(topic_name, 3)
    kafka.produce(topic_name, [b"0"], partition=0)
    there, missing = TopicPartition(topic_name, 0), TopicPartition(topic_name, 7)
    message = rf"topic {topic_name} has 3 partitions \(0 to 2\), there is no {topic_name}-7"
    servers = kafka.bootstrap_servers
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **engine) as consumer:
        for call in (
            consumer.end_offsets,
            consumer.beginning_offsets,
            lambda tps: consumer.offsets_for_times({tps[1]: 0}),
        ):
            with pytest.raises(TimeoutError, match=message) as raised:
                call([there, missing])
            assert isinstance(raised.value.__cause__, StaleMetadataError)
        consumer.assign([missing, there])
        with pytest.raises(TimeoutError, match=message):
            consumer.position(missing)
        assert [b"0"] == [record.value for record in read(consumer, 1)]
        assert re.search(message, consumer.partition_states()[missing].reason)
        assert 1 == len([entry for entry in caplog.records if re.search(message, entry.getMessage())])
        kafka.add_partitions(topic_name, 8)
        kafka.produce(topic_name, [b"7"], partition=7)
        assert [b"7"] == [record.value for record in read(consumer, 1)]
    with (
        RangeClient(bootstrap_servers=servers) as client,
        pytest.raises(TimeoutError, match=rf"there is no {topic_name}-8"),
    ):
        list(client.read_range((topic_name, 8), "earliest", "latest"))
