"""assign() auto-commits what it drops, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import OffsetAndMetadata, TopicPartition
from kconsumer.testing import MockConsumer
from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.scheduler import Process
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import Simulation

TOPIC = "t"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
RECORDS = 10
INTERVAL_MS = 5000
ENGINES = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer protocol": {"group_protocol": "consumer"},
    "asyncio": {"asyncio": True},
    "asyncio, consumer protocol": {"asyncio": True, "group_protocol": "consumer"},
}


def committed_after(work_ms: float, options: dict[str, Any], **more: Any) -> OffsetAndMetadata | None:
    """Read a partition, process its records for `work_ms`, and assign another one. Returns what is committed then."""
    results = []

    def test(simulation: Simulation) -> None:
        append(simulation, TOPIC, [b"value"] * RECORDS)
        consumer = simulation.consumer(
            Process("test"),
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=INTERVAL_MS,
            **options,
            **more,
        )
        consumer.assign([FIRST])
        count = 0
        while count < RECORDS:
            count += len(consumer.poll(1.0))
        simulation.sleep(work_ms)
        consumer.assign([SECOND])
        results.append(consumer.committed([FIRST])[FIRST])
        consumer.close()

    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 2)
    run_simulated(test, cluster)
    return results[0]


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_positions_of_dropped_partitions(options: dict[str, Any]) -> None:
    """When an auto-commit is due, assign() commits the position of a partition that it drops, as in Java."""
    assert OffsetAndMetadata(RECORDS, leader_epoch=0) == committed_after(INTERVAL_MS, options)


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_an_auto_commit_that_is_not_due(options: dict[str, Any]) -> None:
    """Before an auto-commit is due, or without auto-commit, assign() commits nothing, as in Java."""
    assert committed_after(INTERVAL_MS / 2, options) is None
    assert committed_after(INTERVAL_MS, options, enable_auto_commit=False) is None


def test_a_mock_consumer() -> None:
    """assign() of a MockConsumer commits what it drops, too."""
    consumer = MockConsumer(group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=INTERVAL_MS)
    consumer.add_records(FIRST, [b"value"] * RECORDS)
    consumer.assign([FIRST])
    assert RECORDS == len(consumer.poll(0))
    assert not consumer.poll(INTERVAL_MS / 1000)  # advances its clock
    assert {} == consumer.committed_offsets()
    consumer.assign([SECOND])
    assert {FIRST: RECORDS} == {tp: committed.offset for tp, committed in consumer.committed_offsets().items()}
    consumer.close()
