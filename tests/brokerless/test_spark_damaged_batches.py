"""Batches that a Spark task, or the driver's sampling, cannot read: corrupt ones, and ones above the size limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kconsumer.errors import BatchTooLargeError, CorruptRecordError
from kconsumer.ranges import RangeClient
from kconsumer.spark.admin import Admin
from kconsumer.spark.executor import Scan, executor_options
from kconsumer.spark.options import parse
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.schema import default_projection
from kconsumer.testing.batches import build_batch
from kconsumer.types import TopicPartition
from support.fakes.log_broker import LogBroker

TP = TopicPartition("t", 0)
LARGE, SMALL, END = 5, 8, 12  # a batch of 150 kB has offsets 5 to 7


@pytest.fixture
def broker() -> Iterator[LogBroker]:
    """A partition whose offsets 5 to 7 are one compressed batch of 150 kB."""
    with LogBroker(1) as broker:
        broker.logs[0].append(LARGE)
        broker.logs[0].add(build_batch([bytes(50_000)] * 3, base_offset=LARGE, codec="gzip"), SMALL)
        broker.logs[0].append(END - SMALL)
        yield broker


def options(broker: LogBroker, limit: int, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.address,
        "assign": '{"t":[0]}',
        "kafka.decompressed.batch.max.bytes": str(limit),
        **more,
    }


def scan(given: dict[str, str], start: int, letters: Path) -> tuple[list[int], Scan]:
    """Read offsets `start` to `END` as a task does. Returns the offsets of its rows."""
    config = parse(given, "batch")
    with RangeClient(**executor_options(config)) as client:
        task = Scan(config, default_projection(config), OffsetRange("t", 0, start, END), client)
        found = [offset for batch in task.batches() for offset in batch.column("offset").to_pylist()]
        task.finish(("batch", "run"))
    return found, task


@pytest.mark.parametrize("on_corrupt", ["fail", "skip", "deadletter"])
def test_a_batch_above_the_limit_fails_the_task(broker: LogBroker, tmp_path: Path, on_corrupt: str) -> None:
    """onCorrupt does not apply to a batch above the limit. The error names the option of the source that raises the
    limit.
    """
    given = {"onCorrupt": on_corrupt, "deadLetterPath": str(tmp_path)}
    message = r"t-0 at offset 5 decompresses to more than 100000 bytes; raise kafka\.decompressed\.batch\.max\.bytes"
    with pytest.raises(BatchTooLargeError, match=message) as caught:
        scan(options(broker, 100_000, **given), 0, tmp_path)
    assert "seek" not in str(caught.value)
    assert (TP, LARGE, SMALL, 100_000) == (
        caught.value.topic_partition,
        caught.value.offset,
        caught.value.next_offset,
        caught.value.limit,
    )
    assert [] == list(tmp_path.iterdir())
    found, task = scan(options(broker, 200_000, **given), 0, tmp_path)
    assert (list(range(END)), 0, []) == (found, task.skipped, task.dead_letters)


def test_the_search_behind_a_corrupt_batch_ends_at_a_batch_above_the_limit(broker: LogBroker, tmp_path: Path) -> None:
    """A corrupt batch is skipped up to the next batch, whose own error ends the task."""
    broker.logs[0].add(build_batch([b"x"] * 2, base_offset=END, crc=1), END + 2)
    broker.logs[0].add(build_batch([bytes(50_000)] * 3, base_offset=END + 2, codec="gzip"), END + 5)
    config = parse(options(broker, 100_000, onCorrupt="skip"), "batch")
    with RangeClient(**executor_options(config)) as client:
        task = Scan(config, default_projection(config), OffsetRange("t", 0, SMALL, END + 5), client)
        with pytest.raises(BatchTooLargeError, match="t-0 at offset 14 "):
            list(task.batches())
    assert 2 == task.skipped


@pytest.mark.parametrize("damage", ["corrupt", "too large"])
def test_a_sample_of_unreadable_records_does_not_fail_the_plan(broker: LogBroker, damage: str) -> None:
    """A batch that cannot be read gives no estimate of sizes and does not fail the plan; only its task fails."""
    broker.logs[0].add(build_batch([b"x"], base_offset=END, crc=1), END + 1)
    start = END if damage == "corrupt" else LARGE
    with Admin(parse(options(broker, 100_000, planner="bytes"), "batch")) as admin:
        assert {} == admin.bytes_per_offset({TP: start})
        assert {TP} == admin.bytes_per_offset({TP: SMALL}).keys()


def test_a_corrupt_batch_is_skipped_only_on_request(broker: LogBroker, tmp_path: Path) -> None:
    """onCorrupt=fail raises the error of the corrupt batch; onCorrupt=skip continues after it."""
    broker.logs[0].add(build_batch([b"x"] * 2, base_offset=END, crc=1), END + 2)
    broker.logs[0].append(3)
    for policy in ("fail", "skip"):
        config = parse(options(broker, 200_000, onCorrupt=policy), "batch")
        with RangeClient(**executor_options(config)) as client:
            task = Scan(config, default_projection(config), OffsetRange("t", 0, SMALL, END + 5), client)
            if policy == "fail":
                with pytest.raises(CorruptRecordError, match="t-0 at offset 12"):
                    list(task.batches())
            else:
                rows = [offset for batch in task.batches() for offset in batch.column("offset").to_pylist()]
                assert [8, 9, 10, 11, 14, 15, 16] == rows
                assert 2 == task.skipped
