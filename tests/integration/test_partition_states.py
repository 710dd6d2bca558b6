"""`partition_states()` during faults: a broker that hangs, a dead broker, a paused partition, a full buffer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.types import PartitionCondition as Condition
from kconsumer.types import PartitionStatus
from support.brokers.kafka import KafkaCluster
from support.harnesses.polling import numbered, poll_until, tps, values

pytestmark = pytest.mark.classic_protocol  # the consumer has no group


@pytest.fixture
def topic(kafka_cluster3: KafkaCluster, topic_name: str) -> str:
    """Two partitions with different leaders and ten records each."""
    kafka_cluster3.create_topic(topic_name, 2)
    leaders = [kafka_cluster3.leader_of(topic_name, partition) for partition in range(2)]
    assert leaders[0] != leaders[1]
    for partition in range(2):
        kafka_cluster3.produce(topic_name, numbered(10), partition=partition)
    return topic_name


@pytest.fixture
def consumer(kafka_cluster3: KafkaCluster, topic: str, engine: dict[str, Any]) -> Iterator[Consumer]:
    """A consumer that has read everything and waits for more; its requests time out after 3 s."""
    with Consumer(
        bootstrap_servers=kafka_cluster3.bootstrap_servers,
        auto_offset_reset="earliest",
        request_timeout_ms=3000,
        metadata_max_age_ms=500,
        **engine,
    ) as made:
        made.assign(tps(topic, 0, 1))
        records = poll_until(made, lambda: all(status.lag == 0 for status in made.partition_states().values()))
        assert 20 == len(records)
        yield made


def await_reason(consumer: Consumer, tp: TopicPartition, text: str) -> PartitionStatus:
    """Poll until the partition has this reason."""
    poll_until(consumer, lambda: text in consumer.partition_states()[tp].reason, 40)
    return consumer.partition_states()[tp]


def await_state(consumer: Consumer, tp: TopicPartition, wanted: Condition) -> PartitionStatus:
    """Poll until the partition is in this state."""
    poll_until(consumer, lambda: consumer.partition_states()[tp].state is wanted, 40)
    return consumer.partition_states()[tp]


def test_broker_that_hangs(kafka_cluster3: KafkaCluster, topic: str, consumer: Consumer) -> None:
    """With a suspended broker, a partition has a fetch in flight, then is in backoff with the timeout as its reason,
    while the other partition is read. When the broker resumes, the partition is fetched again.
    """
    (frozen, other) = tps(topic, 0, 1)
    node = kafka_cluster3.node(kafka_cluster3.leader_of(topic, 0))
    node.pause()
    try:
        status = await_reason(consumer, frozen, "without a response for")
        assert Condition.IN_FLIGHT is status.state
        assert f"127.0.0.1:{node.port} (id {node.node_id})" in status.reason
        assert 1.5 <= status.since < 10
        await_reason(consumer, frozen, "did not respond to Fetch within 3000 ms")
        assert consumer.partition_states()[frozen].state in (Condition.BACKOFF, Condition.NO_LEADER)
        assert consumer.partition_states()[other].state in (Condition.IN_FLIGHT, Condition.READY)
    finally:
        node.resume()
    kafka_cluster3.produce(topic, [b"more"], partition=0)
    assert [b"more"] == values(poll_until(consumer, lambda: consumer.position(frozen) == 11))
    await_state(consumer, frozen, Condition.IN_FLIGHT)


def test_command_prints_states_on_sigusr1(kafka_cluster3: KafkaCluster, topic: str) -> None:
    """`kconsumer consume` prints partitions, member and connections on SIGUSR1, and continues."""
    command = [sys.executable, "-m", "kconsumer", "consume", topic, "-b", kafka_cluster3.bootstrap_servers, "-g", topic]
    process = subprocess.Popen(
        [*command, "--from", "earliest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(20):
            assert process.stdout.readline()
        process.send_signal(signal.SIGUSR1)
        lines: list[str] = []
        while not lines or not lines[-1].startswith("CONNECTION"):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        assert lines[0].startswith("2 partitions: ")
        assert [f"{topic}-0", f"{topic}-1"] == [line.split()[0] for line in lines[2:4]]
        assert any(line.startswith(f"group {topic!r}: stable, generation 1, member 'consumer-") for line in lines)
        kafka_cluster3.produce(topic, [b"after"], partition=1)
        assert "after\n" == process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert 130 == process.returncode
    finally:
        killer.cancel()
        process.kill()
        process.communicate()
