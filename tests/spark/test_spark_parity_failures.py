"""A query that fails in Spark's own Kafka source fails in ours, with the same key phrases."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered
from support.spark.spark_parity import OURS, THEIRS, failure, has_words

# The name of the topic, in each process that runs tests of this module.
NAME = f"failing-{uuid.uuid4().hex[:8]}"
T = {"subscribe": NAME}
T0 = 1_700_000_000_000  # the time of the first remaining record


def offsets(first: int, second: int) -> str:
    """Returns offsets or times for both partitions."""
    return json.dumps({NAME: {"0": first, "1": second}})


# name -> (mode, options, words in both)
CASES: dict[str, tuple[str, dict[str, str], str]] = {
    "no topics": ("batch", {}, "One of the following options must be specified for Kafka source"),
    "two ways": (
        "batch",
        {**T, "assign": json.dumps({NAME: [0]})},
        "Only one of the following options can be specified",
    ),
    "blank topics": ("batch", {"subscribe": " ,"}, "No topics to subscribe to"),
    "blank pattern": ("batch", {"subscribePattern": " "}, "Pattern to subscribe is empty"),
    "assign is no JSON": ("batch", {"assign": NAME}, "No topicpartitions to assign"),
    "assign is bad JSON": ("batch", {"assign": f'{{"{NAME}":3'}, "Expected e.g."),
    "no servers": ("batch", {**T, "kafka.bootstrap.servers": None}, "kafka.bootstrap.servers"),  # type: ignore[dict-item]
    "latest start": ("batch", {**T, "startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
    "-1 at the start": (
        "batch",
        {**T, "startingOffsets": json.dumps({NAME: {"0": -1, "1": 0}})},
        "can't be latest for batch",
    ),
    "earliest end": ("batch", {**T, "endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
    "-2 at the end": (
        "batch",
        {**T, "endingOffsets": json.dumps({NAME: {"0": -2, "1": 0}})},
        "can't be earliest for batch",
    ),
    "offsets in bad JSON": ("batch", {**T, "startingOffsets": f'{{"{NAME}"'}, "Expected e.g."),
    "a time that is none": ("batch", {**T, "startingTimestamp": "noon"}, "Expected a single long value"),
    "no tasks": ("batch", {**T, "minPartitions": "0"}, "minPartitions must be positive"),
    "no records": ("batch", {**T, "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive"),
    "reset": ("batch", {**T, "kafka.auto.offset.reset": "latest"}, "auto.offset.reset.*not supported"),
    "key deserializer": ("batch", {**T, "kafka.key.deserializer": "x"}, "key.deserializer.*not supported"),
    "value deserializer": ("batch", {**T, "kafka.value.deserializer": "x"}, "value.deserializer.*not supported"),
    "auto commit": ("batch", {**T, "kafka.enable.auto.commit": "true"}, "enable.auto.commit.*not supported"),
    "interceptors": ("batch", {**T, "kafka.interceptor.classes": "x"}, "interceptor.classes.*not supported"),
    "some partitions only": ("batch", {**T, "startingOffsets": json.dumps({NAME: {"0": 0}})}, "specified.*assigned"),
    "too many partitions": (
        "batch",
        {**T, "endingOffsets": json.dumps({NAME: {"0": 1, "1": 1, "2": 1}})},
        "specified.*assigned",
    ),
    "no such topic": ("batch", {"subscribe": f"{NAME}-not-there"}, f"UnknownTopicOrPartition|{NAME}-not-there"),
    "no record of that time": ("batch", {**T, "startingTimestamp": "99999999999999"}, "No offset matched from request"),
    "retention passed": (
        "batch",
        {**T, "startingOffsets": json.dumps({NAME: {"0": 2, "1": 0}})},
        "Some data may have been lost because they are not available in Kafka any more",
    ),
    "start beyond the end": (
        "batch",
        {**T, "startingOffsets": offsets(18, 0), "endingOffsets": offsets(15, 0)},
        f"specified start offset 18 is greater than the end offset 15 for topic {NAME} partition 0",
    ),
    "start beyond the end, in tasks, tolerated": (
        "batch",
        {
            **T,
            "startingOffsets": offsets(18, 0),
            "endingOffsets": offsets(15, 0),
            "minPartitions": "5",
            "failOnDataLoss": "false",
        },
        f"specified start offset 18 is greater than the end offset 15 for topic {NAME} partition 0",
    ),
    "start beyond the end, by timestamps": (
        "batch",
        {**T, "startingOffsetsByTimestamp": offsets(9, 0), "endingOffsetsByTimestamp": offsets(5, 0)},
        f"specified start timestamp 9 is greater than the end timestamp 5 for topic {NAME} partition 0",
    ),
    "start beyond the latest offset": (
        "batch",
        {**T, "startingOffsets": offsets(25, 0)},
        f"resolved start offset 25 is greater than the resolved end offset 20 for topic {NAME} partition 0",
    ),
    "start beyond the latest offset, tolerated": (
        "batch",
        {**T, "startingOffsets": offsets(25, 0), "failOnDataLoss": "false"},
        f"resolved start offset 25 is greater than the resolved end offset 20 for topic {NAME} partition 0",
    ),
    "start of a timestamp beyond the end": (
        "batch",
        {**T, "startingTimestamp": str(T0 + 5), "startingOffsetsByTimestampStrategy": "latest", "endingTimestamp": "1"},
        f"resolved start offset 15 is greater than the resolved end offset 10 for topic {NAME} partition 0",
    ),
    "earliest beyond the end": (
        "batch",
        {**T, "endingOffsets": offsets(5, 0)},
        f"resolved start offset 10 is greater than the resolved end offset 5 for topic {NAME} partition 0",
    ),
    "strategy": ("batch", {**T, "startingOffsetsByTimestampStrategy": "guess"}, "guess"),
    "stream: ending offsets": ("stream", {**T, "endingOffsets": "latest"}, "ending offset not valid in streaming"),
    "stream: ending timestamps": (
        "stream",
        {**T, "endingOffsetsByTimestamp": json.dumps({NAME: {"0": 1, "1": 1}})},
        "ending timestamp not valid in streaming",
    ),
    "stream: min over max": (
        "stream",
        {**T, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
        "is higher than the maxOffsetsPerTrigger",
    ),
    "stream: some partitions only": (
        "stream",
        {**T, "startingOffsets": json.dumps({NAME: {"0": 0}})},
        "specified.*assigned",
    ),
    "stream: no such topic": ("stream", {"subscribe": f"{NAME}-not-there"}, "UnknownTopicOrPartition"),
    "stream: retention passed": (
        "stream",
        {**T, "startingOffsets": json.dumps({NAME: {"0": 2, "1": 0}})},
        "Some data may have been lost because they are not available in Kafka any more",
    ),
}


@pytest.fixture(scope="module")
def servers(kafka: Kafka) -> str:
    """A broker with a topic whose first records were deleted."""
    kafka.create_topic(NAME, 2, config={"retention.ms": "-1"})  # keeps old records
    kafka.produce(NAME, numbered(20), partition=0, timestamps=[T0 - 10 + number for number in range(20)])
    kafka.delete_records(NAME, {0: 10})
    return kafka.bootstrap_servers


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_same_failures(spark: Any, servers: str, name: str, tmp_path: Any) -> None:
    """Both sources fail the query with the same key phrase."""
    mode, given, words = CASES[name]
    retries = {"fetchOffset.numRetries": "1", "kafkaConsumer.pollTimeoutMs": "20000"}
    options = {"kafka.bootstrap.servers": servers, **retries, **given}
    options = {key: value for key, value in options.items() if value is not None}
    for source in (THEIRS, OURS):

        def run(source: str = source) -> None:
            if mode == "batch":
                spark.read.format(source).options(**options).load().collect()
            else:
                frame = spark.readStream.format(source).options(**options).load()
                writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / source))
                query = writer.trigger(availableNow=True).start()
                try:
                    query.awaitTermination(60)
                finally:
                    query.stop()

        text = failure(run)
        assert has_words(text, words), f"{source} says: {' '.join(text.split())[:1500]}"
