"""The reports of a soak's readers, and checks that they agree with what was written.

A span is one ownership of one partition by one reader. Within a span, records follow each other without a gap or a
repetition, whatever the faults. Between two spans of a partition no record is lost, and none is repeated if the first
span ended with a commit that succeeded.
"""

from __future__ import annotations

import os
import signal
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from support.members.members import MemberProcess, Partition
from support.soak.soak_use import Status

SCRIPT = Path(__file__).with_name("soak_reader.py")
# A commit whose fate was unknown may reach the coordinator this much later, out of a buffer that was stalled.
DOUBT_S = 10.0
# A commit with one of these errors was refused for sure, and arrives no more.
REFUSED = ("REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")

Run = tuple[int, int, int]  # first offset, first number, count


@dataclass(slots=True)
class Span:
    """One ownership; `ended` says how: revoked, lost, killed, or not at all."""

    reader: str
    began: float
    runs: list[Run] = field(default_factory=list)
    ended: str | None = None
    ended_at: float = float("inf")
    doubtful: bool = False  # whether the member does not know what was committed
    commits: list[tuple[float, int]] = field(default_factory=list)  # when the coordinator had taken which offset

    @property
    def first(self) -> int:
        """Returns the number of its first record."""
        return self.runs[0][1]

    @property
    def next(self) -> int:
        """Returns the number after its last record."""
        _, number, count = self.runs[-1]
        return number + count

    @property
    def committed(self) -> bool:
        """Returns whether its end is known to be committed."""
        return self.ended == "revoked" and not self.doubtful

    def committed_by(self, moment: float) -> int:
        """Returns the number up to which it is known to have committed."""
        if self.committed and self.ended_at <= moment:
            return self.next
        count = bisect_right(self.commits, moment, key=itemgetter(0))
        return self.commits[count - 1][1] if count else 0

    def add(self, run: Run) -> str | None:
        """Add records. Returns what is wrong with them, if anything."""
        offset, number, count = run
        if not self.runs:
            self.runs.append(run)
            return None
        last_offset, last_number, last_count = self.runs[-1]
        if number == last_number + last_count and offset == last_offset + last_count:
            self.runs[-1] = (last_offset, last_number, last_count + count)
            return None
        self.runs.append(run)
        if number == last_number + last_count and offset > last_offset + last_count:
            return None
        return (
            f"{self.reader}: number {number} at offset {offset} came after"
            f" {last_number + last_count - 1} at {last_offset + last_count - 1}"
        )

    def rewind(self, offset: int) -> None:
        """Forget what comes after an offset that the reader went back to; only where offsets have no gaps."""
        if self.runs:
            (first, number, count), *others = self.runs
            assert not others
            assert first <= offset <= first + count
            self.runs = [(first, number, offset - first)]


class Journal:
    """What one reader reported."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spans: dict[Partition, list[Span]] = {}
        self.wrong: list[str] = []
        self.statuses: list[Status] = []
        self.states: Mapping[str, str] = {}
        self.generations: list[tuple[float, str, int]] = []  # when, which member id, which generation or epoch
        self._open: dict[Partition, Span] = {}
        self._doubted_at = self._no_response_at = float("-inf")

    def note(self, event: Mapping[str, Any]) -> None:
        """Add one event of the reader."""
        kind, at = event["event"], event["at"]
        if kind == "records":
            self._records(tuple(event["partition"]), event["runs"])
        elif kind == "assigned":
            for partition in map(tuple, event["partitions"]):
                self._open[partition] = span = Span(self.name, at)
                self.spans.setdefault(partition, []).append(span)
        elif kind in ("revoked", "lost"):
            for partition in map(tuple, event["partitions"]):
                self._end(partition, kind, at)
        elif kind == "sought":
            self._open[tuple(event["partition"])].rewind(event["offset"])
        elif kind == "committed":
            self._committed(event["offsets"], at)
        elif kind == "generation":
            self.generations.append((at, event["member_id"], event["generation"]))
        elif kind == "doubt":
            self._doubted_at = at
            if not any(code in event["text"] for code in REFUSED):
                self._no_response_at = at
        elif kind in ("wrong", "raised"):
            self.wrong.append(f"{self.name}: {event['text']}")
        elif kind == "status":
            self.states = event["states"]
            self.statuses.append(Status(at, *(event[name] for name in Status._fields[1:])))

    def killed(self, at: float) -> None:
        """Record that the process was killed, so that its partitions have no owner."""
        for partition in list(self._open):
            self._end(partition, "killed", at)

    def _records(self, partition: Partition, runs: Iterable[Run]) -> None:
        span = self._open.get(partition)
        for run in runs:
            problem = span.add(run) if span else f"{self.name}: a record of a partition it does not own"
            if problem:
                self.wrong.append(f"{partition}: {problem}")

    def _committed(self, offsets: Iterable[tuple[str, int, int]], at: float) -> None:
        if at - self._no_response_at < DOUBT_S:
            return  # an older commit, given up by the member, may arrive after this one
        for topic, partition, offset in offsets:
            if span := self._open.get((topic, partition)):
                span.commits.append((at, offset))

    def _end(self, partition: Partition, how: str, at: float) -> None:
        span = self._open.pop(partition)
        span.ended, span.ended_at, span.doubtful = how, at, at - self._doubted_at < DOUBT_S

    def reached(self, partition: Partition) -> int:
        """Returns the number after the last one read of a partition, in whichever span."""
        return max((span.next for span in self.spans.get(partition, ()) if span.runs), default=0)


class ReaderProcess(MemberProcess):
    """A running reader; its events go to its journal."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.journal = Journal(name)
        super().__init__(name, settings, SCRIPT)

    def _event(self, line: str) -> dict[str, Any] | None:
        event = super()._event(line)
        assert event is not None
        self.journal.note(event)
        return None if event["event"] in ("records", "status") else event

    def kill(self) -> None:
        """Kill the process by SIGKILL; its earlier reports count."""
        super().kill()
        assert self.killed_at is not None
        self.journal.killed(self.killed_at)

    def freeze(self) -> None:
        """Suspend the process: its connections stay open and it sends no heartbeat."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the process."""
        self._process.send_signal(signal.SIGCONT)

    def dump_stacks(self) -> None:
        """Make the process write the stacks of its threads to standard error."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGUSR1)


def report(headline: str, processes: Sequence[ReaderProcess]) -> str:
    """Returns what may explain why readers are behind: their stacks, partitions and logs."""
    for process in processes:
        process.dump_stacks()
    time.sleep(1)
    lines = [headline]
    for process in processes:
        lines += [f"--- {process.name}: owns {sorted(process.owned())}"]
        lines += [f"{tp}: {status}" for tp, status in process.journal.states.items()]
        lines += [str(process.journal.statuses[-1:]), process.errors[-6000:]]
    return "\n".join(lines)


def check_plain(journal: Journal, topic: str, acknowledged: Sequence[int]) -> list[str]:
    """Returns the errors of one reader of a topic whose numbers are its offsets."""
    wrong = list(journal.wrong)
    for partition, count in enumerate(acknowledged):
        runs = [run for span in journal.spans.get((topic, partition), ()) for run in span.runs]
        if runs != [(0, 0, count)] and (count or runs):
            wrong.append(f"{topic}-{partition}: {count} records were written; read (offset, number, count) {runs[:5]}")
    return wrong


def check_numbers(journal: Journal, topic: str, committed: Sequence[Sequence[int]]) -> list[str]:
    """Returns the errors of one reader of a transactional topic; `committed[p][n]` is the offset of number n."""
    wrong = list(journal.wrong)
    for partition, offsets in enumerate(committed):
        runs = [run for span in journal.spans.get((topic, partition), ()) for run in span.runs]
        read = [offset + i for offset, _, count in runs for i in range(count)]
        if len(read) != len(offsets) or (runs and runs[0][1] != 0):
            wrong.append(f"{topic}-{partition}: {len(offsets)} records were committed, {len(read)} read")
        differ = [n for n, (was, is_) in enumerate(zip(offsets, read, strict=False)) if was >= 0 and was != is_]
        if differ:
            wrong.append(f"{topic}-{partition}: number {differ[0]} was not at offset {offsets[differ[0]]}")
    return wrong


def check_group(journals: Iterable[Journal], topic: str, acknowledged: Sequence[int]) -> tuple[list[str], int]:
    """Returns the errors of a group that read a plain topic, and the number of permitted repetitions."""
    journals = list(journals)
    wrong = [line for journal in journals for line in journal.wrong]
    repeated = 0
    for partition, count in enumerate(acknowledged):
        name = f"{topic}-{partition}"
        spans = [span for journal in journals for span in journal.spans.get((topic, partition), ()) if span.runs]
        spans.sort(key=lambda span: span.began)
        wrong += _lost(name, spans, count)
        wrong += _repeated_after_a_commit(name, spans)
        repeated += sum(span.next - span.first for span in spans) - count
        wrong += [
            f"{name}: number {number} at offset {offset}"
            for span in spans
            for offset, number, _ in span.runs
            if offset != number
        ]
    return wrong, repeated


def _lost(name: str, spans: Sequence[Span], count: int) -> list[str]:
    """Returns the ranges of the log that no span covers."""
    wrong, reached = [], 0
    for span in sorted(spans, key=lambda span: span.first):
        if span.first > reached:
            wrong.append(f"{name}: {reached} to {span.first - 1} lost before {span}")
        reached = max(reached, span.next)
    if reached != count:
        wrong.append(f"{name}: read to {reached}, written {count}")
    return wrong


def _repeated_after_a_commit(name: str, spans: Sequence[Span]) -> list[str]:
    """Returns where a span begins before an offset that another span had committed."""
    return [
        f"{name}: {later} began at {later.first}, though {committed} was committed by {earlier}"
        for earlier in spans
        for later in spans
        if later is not earlier and later.first < (committed := earlier.committed_by(later.began))
    ]
