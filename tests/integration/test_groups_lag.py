"""The lag of a group in seconds: the age of the first record that is not committed."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from kconsumer import TopicPartition, cli, groups
from kconsumer.aio import groups as aio_groups
from kconsumer.groups import GroupClient
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, tps

PRECISION_S = 60.0  # between writing and asking; records are hours apart
HOUR_MS = 3_600_000


def hours(kafka: Kafka, topic: str, offsets: dict[TopicPartition, int], **options: str) -> dict[int, float | None]:
    """Commits offsets. Returns how old (h, rounded) the first record of each partition is that is not committed."""
    with GroupClient(kafka.bootstrap_servers, **options) as client:
        client.alter_offsets(topic, offsets)
        found = client.offsets(client.describe(topic), seconds=True)
    return {tp.partition: at.lag_seconds and round(at.lag_seconds / 3600, 1) for tp, at in found.items()}


def written(kafka: Kafka, topic: str, ages: list[int], partition: int = 0, compression: str = "none") -> None:
    """Writes one batch of records of these ages (h)."""
    now = int(time.time() * 1000)
    times = [now - age * HOUR_MS for age in ages]
    config = {"linger.ms": 500}
    kafka.produce(
        topic, numbered(len(ages)), partition=partition, timestamps=times, compression=compression, config=config
    )


@pytest.mark.classic_protocol
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_age_of_the_first_record(kafka: Kafka, topic_name: str, compression: str) -> None:
    """The record at the committed offset counts, also within a batch; without a lag, the age is 0."""
    kafka.create_topic(topic_name, 4)
    for partition in range(3):
        written(kafka, topic_name, [9, 8, 2, 3], partition, compression)
    first, second, third, empty = tps(topic_name, 0, 1, 2, 3)
    assert {0: 9.0, 1: 2.0, 2: 0.0, 3: 0.0} == hours(kafka, topic_name, {first: 0, second: 2, third: 4, empty: 0})


@pytest.mark.classic_protocol
def test_records_that_are_gone(kafka: Kafka, topic_name: str) -> None:
    """If the record at the committed offset is deleted, the oldest one that exists counts."""
    kafka.create_topic(topic_name, 1)
    written(kafka, topic_name, [9, 8])
    written(kafka, topic_name, [5, 4])
    (tp,) = tps(topic_name, 0)
    kafka.delete_records(topic_name, {0: 3})
    assert {0: 4.0} == hours(kafka, topic_name, {tp: 0})


@pytest.mark.classic_protocol
def test_the_time_of_the_append(kafka: Kafka, topic_name: str) -> None:
    """If the broker sets the timestamps, these count."""
    kafka.create_topic(topic_name, 1, config={"message.timestamp.type": "LogAppendTime"})
    written(kafka, topic_name, [9, 8])
    assert {0: 0.0} == hours(kafka, topic_name, dict.fromkeys(tps(topic_name, 0), 1))


@pytest.mark.classic_protocol
def test_transactions(kafka: Kafka, topic_name: str) -> None:
    """Markers do not count, and with read_committed, records of aborted transactions do not count."""
    kafka.create_topic(topic_name, 1)
    (tp,) = tps(topic_name, 0)
    for _ in range(3):
        kafka.produce_transaction(topic_name, numbered(2), commit=False)
    committed = {"isolation_level": "read_committed"}
    assert {0: 0.0} == hours(kafka, topic_name, {tp: 8})  # only a marker is left
    assert {0: 0.0} == hours(kafka, topic_name, {tp: 0}, **committed)
    written(kafka, topic_name, [7])
    assert {0: 7.0} == hours(kafka, topic_name, {tp: 8})
    assert {0: 7.0} == hours(kafka, topic_name, {tp: 0}, **committed)


@pytest.mark.classic_protocol
def test_functions_and_command(kafka: Kafka, topic_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The functions read the age unless it is not wanted, the command if it is wanted."""
    kafka.create_topic(topic_name, 2)
    written(kafka, topic_name, [6])
    (tp,) = tps(topic_name, 0)
    servers = kafka.bootstrap_servers
    groups.alter_offsets(topic_name, {tp: 0}, servers)
    wanted, unwanted = (groups.offsets(topic_name, servers, seconds=seconds)[tp] for seconds in (True, False))
    assert wanted == unwanted  # the age is not compared
    awaited = asyncio.run(aio_groups.offsets(topic_name, servers))[tp]
    for found in (wanted, awaited):
        assert found.lag_seconds is not None
        assert 0 <= found.lag_seconds - 6 * 3600 < PRECISION_S
    assert unwanted.lag_seconds is None

    def output(*arguments: str) -> str:
        assert 0 == cli.main(["groups", *arguments, topic_name, "-b", servers])
        return capsys.readouterr().out

    for action in ("lag", "offsets"):
        assert 0 <= json.loads(output(action, "--seconds", "--json"))["lag_seconds"] - 6 * 3600 < PRECISION_S
    head, line = output("lag", "--seconds").splitlines()
    assert "LAG-SECONDS" == head.split()[-1]
    assert 0 <= int(line.split()[-1]) - 6 * 3600 < PRECISION_S
    assert "lag_seconds" not in output("lag", "--json")
