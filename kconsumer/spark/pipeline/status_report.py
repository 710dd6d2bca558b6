"""Says in plain words where a pipeline is and what is wrong with it: `python -m kconsumer.spark.pipeline --status`.

Reads the checkpoint, and requests offsets from the brokers. It changes nothing, and the pipeline may run or not. Each
function yields findings about one question; `find_status` runs all of them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime

from kconsumer.spark.pipeline.checkpoint import CheckpointFiles, QueryProgress, RunNote, query_progress, read_note
from kconsumer.spark.pipeline.checks import Check, Offsets, log_bounds
from kconsumer.spark.pipeline.settings import PipelineConfig
from kconsumer.types import TopicPartition

__all__ = ["find_status", "offset_findings"]


def find_status(config: PipelineConfig, now_ms: int, files: CheckpointFiles) -> list[Check]:
    """Returns findings about a pipeline. `now_ms` is the time in ms since 1970, `files` are those of its checkpoint."""
    note = read_note(files)
    queries = ["rows"] if config.aggregate is None else ["rows", "windows"]
    progress = {query: query_progress(files, query) for query in queries}
    found = list(_process(note, now_ms))
    for query, each in progress.items():
        found += _batches(query, each, note, now_ms)
    return found + list(_topics(config, progress["rows"]))


# --- the process ---------------------------------------------------------------------------------------------------


def _process(note: RunNote | None, now_ms: int) -> Iterator[Check]:
    """Say whether the pipeline runs, as far as this machine can know."""
    if note is None:
        yield Check("process", "ok", "no run has left a note in the checkpoint")
        return
    since = f"{_time(note.time_ms)} ({_ago(note.time_ms, now_ms)})"
    by = f"process {note.pid} on {note.host}"
    if note.state == "failed":
        yield Check("process", "fail", f"failed at {since}: {note.error}; start it again, it continues after the last"
                                       " finished micro-batch")  # fmt: skip
    elif note.state != "running":
        yield Check("process", "ok", f"{note.state} at {since}")
    elif note.host != socket.gethostname():
        yield Check("process", "ok", f"started at {since} as {by}; it has not ended, unless it was killed")
    elif _exists(note.pid):
        yield Check("process", "ok", f"running since {since} as {by}")
    else:
        yield Check("process", "fail", f"{by} was killed: it was started at {since} and is gone; start it again, it"
                                       " repeats at most the micro-batch that was running")  # fmt: skip


def _exists(pid: int) -> bool:
    """Returns whether a process of this machine exists. It may be another one with the same number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists, and belongs to another user
        return True
    return True


# --- micro-batches -------------------------------------------------------------------------------------------------


def _batches(query: str, progress: QueryProgress | None, note: RunNote | None, now_ms: int) -> Iterator[Check]:
    """Say which micro-batch has finished last, and which one is running or was interrupted."""
    if progress is None:
        yield Check(query, "ok", "no micro-batch yet; the first one starts at source.startingOffsets")
        return
    if progress.done >= 0:
        yield Check(query, "ok", f"micro-batch {progress.done} finished {_ago(progress.done_ms, now_ms)},"
                                 f" at {_time(progress.done_ms)}")  # fmt: skip
    if progress.planned > progress.done:
        yield _unfinished(query, progress, note, now_ms)


def _unfinished(query: str, progress: QueryProgress, note: RunNote | None, now_ms: int) -> Check:
    """Describe the micro-batch that has begun and not finished."""
    size = ""
    if progress.done_ends and progress.planned_ends:
        done = progress.done_ends
        size = f" of {sum(end - done.get(tp, end) for tp, end in progress.planned_ends.items()):,} offsets"
    begun = f"micro-batch {progress.planned}{size} began {_ago(progress.planned_ms, now_ms)}"
    if note is not None and note.state != "running":
        return Check(query, "warn", f"{begun} and did not finish; the next start runs it again with the same records")
    return Check(query, "ok", f"{begun} and has not finished")


# --- topics --------------------------------------------------------------------------------------------------------

# Someone waits for the result: brokers that cannot be reached are said to be so after ten seconds, not three minutes.
IMPATIENT = {"fetchOffset.numRetries": "1", "kafka.default.api.timeout.ms": "10000"}


def _topics(config: PipelineConfig, progress: QueryProgress | None) -> Iterator[Check]:
    """Compare the offsets in the checkpoint with those of the brokers."""
    if progress is None or not progress.done_ends:
        return
    bounds = log_bounds({**IMPATIENT, **config.source})
    if isinstance(bounds, Check):
        yield bounds
    else:
        yield from offset_findings(progress.done_ends, *bounds)


def offset_findings(done: Offsets, begin: Offsets, end: Offsets) -> Iterator[Check]:
    """Yields findings about offsets: the lag of each topic, and what makes the next micro-batch fail.

    `done`: up to where the pipeline has read. `begin`, `end`: the first and last offsets of the brokers' logs.
    """
    for topic in sorted({tp.topic for tp in (*done, *end)}):
        own = sorted(tp for tp in (*done, *(end.keys() - done.keys())) if tp.topic == topic)
        lag = sum(end[tp] - max(done.get(tp, begin[tp]), begin[tp]) for tp in own if tp in end)
        yield Check("lag", "ok", f"{topic}: {max(lag, 0):,} offsets in {sum(tp in end for tp in own)} partitions")
        for tp in own:
            yield from _partition(tp, done.get(tp), begin.get(tp), end.get(tp))


def _partition(tp: TopicPartition, done: int | None, begin: int | None, end: int | None) -> Iterator[Check]:
    """Yields a finding if a partition cannot be read on from where the pipeline is."""
    name = f"{tp.topic}-{tp.partition}"
    if done is None:
        yield Check("partitions", "ok", f"{name} is new and is read from offset {begin}")
    elif begin is None or end is None:
        yield Check("partitions", "fail", f"{name} does not exist any more; {LOSS}")
    elif done < begin:
        yield Check("partitions", "fail", f"{name}: offsets {done} to {begin - 1} were deleted before they were read;"
                                          f" {LOSS}")  # fmt: skip
    elif done > end:
        yield Check("partitions", "fail", f"{name}: the pipeline has read up to {done}, and the log ends at {end}: the"
                                          f" topic was created again, or records were lost; {LOSS}")  # fmt: skip


LOSS = "the pipeline fails there, or with source.failOnDataLoss = false skips it with a warning"


# --- words ---------------------------------------------------------------------------------------------------------


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


UNITS: tuple[tuple[int, str], ...] = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def _ago(then_ms: int, now_ms: int) -> str:
    """Returns how long ago a time was, in its largest unit, such as `3 minutes ago`."""
    seconds = max(now_ms - then_ms, 0) // 1000
    for length, unit in UNITS:
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
