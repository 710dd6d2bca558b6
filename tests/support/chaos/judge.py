"""Judges a chaos run by the rules of the simulation: calls its journal in the order of time, as the simulation does.

The event logs of members have the calls. Records and commits are read from the brokers' own logs. Their times are whole
milliseconds, rounded down. So a record counts as processed a little earlier, before the commit that this caused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from statistics import median
from types import SimpleNamespace
from typing import Any

from kconsumer import AcknowledgeType, TopicPartition
from support.chaos.chaos_faults import Fault, Kind
from support.chaos.process import PROCESSED, record_of
from support.chaos.share_judge import RemoteShareJournal
from support.simulation.handler_journal import Running
from support.simulation.journal import FOREVER, Journal
from support.simulation.scenario import Workers

ROUNDING_MS = 2.0
GRACE_MS = 5_000.0  # a busy machine
MAX_RECORD_WAIT_MS = 60_000.0
CHECK_MS = 5_000.0
#: Lines of an event log that are no calls of a journal.
OTHER = ("started", "closed", "use")
#: Faults after which the group has to continue as if nothing had happened: nothing is excused for them.
NOT_EXCUSED = (Kind.KILL, Kind.STOP)
#: Limits of a member's process. Two connections to each of three brokers, and for bootstrapping; some are closing.
#: Two more threads drive the processes of a run while those of the last one wait for handlers that have not returned.
MAX_GROWTH_KB, MAX_DESCRIPTORS, MAX_THREADS = 32 << 10, 32, 12 + 2
MIN_STATUSES = 60

Commit = tuple[float, TopicPartition, int, str]  # time (ms), partition, offset, metadata


@dataclass
class History:
    """What happened in a run. All times are ms since its begin."""

    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # of each member
    killed: dict[str, float] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)  # their times are ms, too
    calms: list[float] = field(default_factory=list)  # when the group must be stable
    records: Mapping[TopicPartition, Sequence[tuple[float, int]]] = field(default_factory=dict)  # time and offset
    commits: Sequence[Commit] = ()
    delivery_limit: int | None = None  # of a share group


def judge(history: History, session_ms: float) -> Journal:
    """Returns the journal of a run, with the violations of rules."""
    limit = history.delivery_limit
    journal = Journal(GRACE_MS) if limit is None else RemoteShareJournal(limit, GRACE_MS)
    journal.handlers.max_uncommitted_ms += 2 * session_ms
    entries = sorted(_entries(history, journal, session_ms), key=itemgetter(0))
    for at, call in entries:
        journal.now = at
        call()
    for tp, offset in journal.unprocessed().items():
        journal.violation(f"lost: {tp}@{offset} was not processed")
    for name, log in history.logs.items():
        _check_use(journal, name, [line["arguments"] for line in log if line["event"] == "use"])
    return journal


def _entries(history: History, journal: Journal, session_ms: float) -> Iterator[tuple[float, Callable[[], object]]]:
    """Yields each call of the journal, with its time."""
    for tp, rows in history.records.items():
        for at, offset in rows:
            yield at, partial(journal.append, tp, offset)
    for at, tp, offset, metadata in history.commits:
        yield at, partial(journal.commit, tp, offset, metadata)
    for name, log in history.logs.items():
        replay = _Replay(journal, name, history.faults)
        for line in log:
            if line["event"] not in OTHER:
                if line["event"] in PROCESSED:
                    yield line["at"] - ROUNDING_MS, partial(journal.process, *record_of(line["arguments"]))
                yield line["at"], partial(replay.call, line)
        if name in history.killed:
            last = log[-1]["at"] if log else 0.0
            yield max(history.killed[name], last), partial(journal.end, name, crashed=True)
    for fault in history.faults:
        if fault.kind not in NOT_EXCUSED:
            until = fault.ended + 2 * session_ms
            yield fault.began, partial(_disturb, journal, fault.member, until)
            # A coordinator neither confirms nor returns a commit before the replicas in sync have it, and a broker that
            # has died counts as in sync for a while.
            if fault.member is None:
                yield fault.began, partial(setattr, journal, "hidden_until", fault.ended)
    for at in history.calms:
        yield at, partial(journal.check_stable, list(history.records))
    end = max(line["at"] for log in history.logs.values() for line in log)
    for number in range(int(end / CHECK_MS) if history.delivery_limit is None else 0):
        yield number * CHECK_MS, partial(journal.check_progress, MAX_RECORD_WAIT_MS)
        yield number * CHECK_MS, journal.handlers.check_commits


def _disturb(journal: Journal, member: str | None, until: float) -> None:
    if member is None:
        journal.disturb_all(until)
    else:
        journal.disturb(member, until)


class _Replay:
    """Makes the calls of one member's event log."""

    def __init__(self, journal: Journal, name: str, faults: Sequence[Fault]) -> None:
        self._journal = journal
        self._suspended = [f for f in faults if f.member == name and f.kind is Kind.SUSPEND]
        self._running: dict[int, Running] = {}

    def call(self, line: Mapping[str, Any]) -> None:
        """Make the call of one line."""
        name, arguments = line["event"], [self._decoded(value) for value in line["arguments"]]
        if name == "handlers.begin_run":
            arguments[1] = Workers(**line["arguments"][1])
        if name in ("decide", "check_finished"):
            arguments[2] = AcknowledgeType(arguments[2])
        if name == "check_call":
            member, what, took_ms, timeout_ms = arguments
            arguments = [member, what, took_ms - self._suspended_ms(line["at"] - took_ms, line["at"]), timeout_ms]
        options = dict(line["options"])
        number = options.pop("number", None)
        target: Any = self._journal.handlers if name.startswith("handlers.") else self._journal
        result = getattr(target, name.removeprefix("handlers."))(*arguments, **options)
        if number is not None:
            self._running[number] = result

    def _suspended_ms(self, began: float, ended: float) -> float:
        return sum(max(0.0, min(ended, fault.ended) - max(began, fault.began)) for fault in self._suspended)

    def _decoded(self, value: Any) -> Any:
        """Returns the argument that was written as JSON."""
        if isinstance(value, list):
            decoded = [self._decoded(part) for part in value]
            if len(value) == 2 and isinstance(value[1], int):  # a partition, or a record of one
                return TopicPartition(*value) if isinstance(value[0], str) else tuple(decoded)
            return decoded
        if isinstance(value, dict) and "running" in value:
            return self._running[value["running"]]
        if isinstance(value, dict) and "tp" in value:
            tp = TopicPartition(*value["tp"])
            return SimpleNamespace(topic_partition=tp, offset=value["offset"], key=value["key"])
        return FOREVER if value == float("inf") else value


def _check_use(journal: Journal, name: str, statuses: Sequence[Sequence[int]]) -> None:
    """Check what a process used: memory that grew from the second quarter to the last, descriptors, threads."""
    if len(statuses) < MIN_STATUSES:
        return
    quarter = len(statuses) // 4
    memory = [row[0] for row in statuses]
    grown_kb = median(memory[-quarter:]) - median(memory[quarter : 2 * quarter])
    for what, value, limit in (
        ("kB grown", grown_kb, MAX_GROWTH_KB),
        ("descriptors", max(row[1] for row in statuses), MAX_DESCRIPTORS),
        ("threads", max(row[2] for row in statuses), MAX_THREADS),
    ):
        if value > limit:
            journal.violation(f"leak: {name} has {value} {what}, at most {limit}")
