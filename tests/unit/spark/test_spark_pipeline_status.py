"""Where a pipeline is, as its checkpoint and the brokers say, without a session."""

from __future__ import annotations

import importlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from kconsumer.spark import pipeline
from kconsumer.spark.pipeline import parse, status
from kconsumer.spark.pipeline.__main__ import main
from kconsumer.spark.pipeline.checkpoint import LocalFiles, RunNote, query_progress
from kconsumer.spark.pipeline.status_report import find_status, offset_findings
from kconsumer.testing import FakeCluster
from kconsumer.types import TopicPartition

NOW_MS = 1_780_272_000_000  # 2026-06-01 00:00 UTC
MINUTE_MS = 60_000
NOWHERE = "localhost:1"
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def write_batch(folder: Path, number: int, ends: dict[str, dict[str, int]], *, done: bool, at_ms: int = NOW_MS) -> None:
    """Write the files of a micro-batch as Spark does."""
    files = {"offsets": f"v1\n{{}}\n{json.dumps(ends)}"} | ({"commits": "v1\n{}"} if done else {})
    for name, text in files.items():
        path = folder / name / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / f".{number}.crc").touch()
        os.utime(path, (at_ms / 1000, at_ms / 1000))


def note(folder: Path, state: str, *, pid: int = os.getpid(), host: str = "", error: str = "") -> None:
    """Write which process runs the pipeline."""
    text = RunNote(state, NOW_MS - 5 * MINUTE_MS, host or socket.gethostname(), pid, "1.0", error).to_json()
    (folder / "run.json").write_text(text)


def config(folder: Path, servers: str = NOWHERE) -> Any:
    """Returns the settings of a pipeline with a checkpoint in `folder`."""
    return parse(
        {
            "source": {
                "kafka.bootstrap.servers": servers,
                "subscribe": "orders",
                "kafka.default.api.timeout.ms": "100" if servers == NOWHERE else "10000",
            },
            "decode": {"schema": {"id": "long"}},
            "dead_letters": {"path": str(folder / "dead")},
            "sink": {"path": str(folder / "rows")},
            "run": {"checkpoint": str(folder / "checkpoint")},
        }
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Returns the folder of a checkpoint."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    return folder


def lines(folder: Path) -> list[str]:
    """Returns what is said of the checkpoint in `folder`, for a pipeline whose brokers are not asked."""
    return [check.line() for check in find_status(config(folder.parent), NOW_MS, LocalFiles(folder))]


def test_the_newest_files_show_how_far_a_query_is(checkpoint: Path) -> None:
    """The last finished micro-batch and the one that has begun are read from the names and times of the files."""
    assert query_progress(LocalFiles(checkpoint), "rows") is None
    for number in (8, 9, 10):
        ends = {"orders": {"0": number * 100}}
        write_batch(checkpoint / "rows", number, ends, done=number < 10, at_ms=NOW_MS + number)
    progress = query_progress(LocalFiles(checkpoint), "rows")
    assert progress is not None
    assert (10, NOW_MS + 10, {A: 1000}) == (progress.planned, progress.planned_ms, progress.planned_ends)
    assert (9, NOW_MS + 9, {A: 900}) == (progress.done, progress.done_ms, progress.done_ends)


def test_a_running_process_is_named(checkpoint: Path) -> None:
    """A note of a process that exists says that the pipeline runs, and since when."""
    note(checkpoint, "running")
    assert (
        f"ok    process     running since 2026-05-31 23:55:00 UTC (5 minutes ago) as process {os.getpid()}"
        in (lines(checkpoint)[0])
    )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_was_killed(checkpoint: Path) -> None:
    """A note of a process that is gone means that it was killed."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    note(checkpoint, "running", pid=child)
    assert lines(checkpoint)[0].startswith(f"fail  process     process {child} on {socket.gethostname()} was killed")


def test_a_process_of_another_machine_is_not_judged(checkpoint: Path) -> None:
    """Whether a process of another machine exists cannot be seen from here."""
    note(checkpoint, "running", host="elsewhere", pid=1)
    assert "as process 1 on elsewhere; it has not ended, unless it was killed" in lines(checkpoint)[0]


def test_a_failure_is_reported_with_its_cause(checkpoint: Path) -> None:
    """After a failure, the error of the run and the micro-batch that will run again are named."""
    note(checkpoint, "failed", error="PipelineError: orders rows failed: disk full")
    write_batch(checkpoint / "rows", 0, {"orders": {"0": 10}}, done=True, at_ms=NOW_MS - 2 * MINUTE_MS)
    write_batch(checkpoint / "rows", 1, {"orders": {"0": 15, "1": 5}}, done=False, at_ms=NOW_MS - MINUTE_MS)
    found = lines(checkpoint)
    assert (
        "fail  process     failed at 2026-05-31 23:55:00 UTC (5 minutes ago): PipelineError: orders rows failed:"
        in (found[0])
    )
    assert "ok    rows        micro-batch 0 finished 2 minutes ago, at 2026-05-31 23:58:00 UTC" == found[1]
    assert found[2].startswith(
        "warn  rows        micro-batch 1 of 5 offsets began 1 minute ago and did not finish; the"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "running"}'])
def test_a_note_that_cannot_be_read_is_ignored(checkpoint: Path, text: str) -> None:
    """A process may die while it writes its note."""
    (checkpoint / "run.json").write_text(text)
    assert "no run has left a note" in lines(checkpoint)[0]


def test_a_file_of_offsets_that_is_not_complete(checkpoint: Path) -> None:
    """The process may have died while Spark wrote the offsets of a micro-batch."""
    write_batch(checkpoint / "rows", 0, {"orders": {"0": 10}}, done=False)
    (checkpoint / "rows" / "offsets" / "0").write_text("v1\n")
    os.utime(checkpoint / "rows" / "offsets" / "0", (NOW_MS / 1000, NOW_MS / 1000))
    assert "ok    rows        micro-batch 0 began just now and has not finished" == lines(checkpoint)[1]


def test_lag_and_losses_of_each_partition() -> None:
    """Deleted records, a shorter log, a missing partition and a new one each have a sentence."""
    c, d, e = (TopicPartition("orders", number) for number in (2, 3, 4))
    found = offset_findings({A: 10, B: 10, c: 10, d: 10}, {A: 0, B: 25, c: 0, e: 3}, {A: 15, B: 30, c: 4, e: 8})
    assert [
        ("lag", "ok", "orders: 9 offsets in 4 partitions"),
        ("partitions", "fail", "orders-1: offsets 10 to 24 were deleted before they were read"),
        ("partitions", "fail", "orders-2: the pipeline has read up to 10, and the log ends at 4"),
        ("partitions", "fail", "orders-3 does not exist any more"),
        ("partitions", "ok", "orders-4 is new and is read from offset 3"),
    ] == [(check.what, check.level, check.text.partition(";")[0].partition(": the topic was")[0]) for check in found]


def test_lag_on_a_cluster(checkpoint: Path, tmp_path: Path) -> None:
    """The lag is that of the last finished micro-batch, as the brokers' logs are now."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.produce("orders", [b"{}"] * 30, partition=0)
        write_batch(checkpoint / "rows", 0, {"orders": {"0": 10, "1": 0}}, done=True)
        found = status(config(tmp_path, cluster.bootstrap_servers))
    assert "ok    lag         orders: 20 offsets in 2 partitions" == found[-1].line()


def test_brokers_that_cannot_be_reached(checkpoint: Path, tmp_path: Path) -> None:
    """Without brokers, what the checkpoint says is printed before the error."""
    write_batch(checkpoint / "rows", 0, {"orders": {"0": 10}}, done=True)
    found = status(config(tmp_path))
    assert ["process", "rows", "broker"] == [check.what for check in found]
    assert "fail" == found[-1].level


def test_the_command(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--status` prints a line for each finding, and its exit code is 1 if something is wrong."""
    file = tmp_path / "orders.toml"
    file.write_text(
        f"""
        source = {{ "kafka.bootstrap.servers" = "localhost:1", subscribe = "orders" }}
        decode.schema = "id long"
        dead_letters.path = "{tmp_path}/dead"
        sink.path = "{tmp_path}/rows"
        run.checkpoint = "{checkpoint}"
        """
    )
    assert 0 == main([str(file), "--status"])
    note(checkpoint, "failed", error="OSError: full")
    assert 1 == main([str(file), "--status"])
    assert "OSError: full" in capsys.readouterr().out


def test_no_module_hides_a_public_function() -> None:
    """The functions of the package remain functions after all its modules were imported."""
    pytest.importorskip("pyspark", reason="modules of the pipeline import it")
    for path in Path(pipeline.__file__).parent.glob("[a-z]*.py"):
        importlib.import_module(f"{pipeline.__name__}.{path.stem}")
    assert [] == [name for name in pipeline.__all__ if not callable(getattr(pipeline, name))]
