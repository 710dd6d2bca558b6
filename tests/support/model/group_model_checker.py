"""The rules that the members of one group keep, whatever calls they make, and where a run broke one: pure functions.

Each rule reads the event log (`group_model_events.py`) and `written`, the offsets of the records in each partition that
consumers may see, in order. Offsets of control records and of aborted transactions are not in it, so distances are
counted in records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from support.model.group_model_events import Event, Partition, Run

GRACE_S = 1.0
Written = Mapping[Partition, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule, and the partition whose history explains it."""

    at: float
    member: str
    partition: Partition | None
    text: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.member} {self.partition or ''}: {self.text}"


def check(events: Sequence[Event], written: Written) -> list[Finding]:
    """Returns the broken rules of a run, in order of time."""
    found = [
        *check_errors(events),
        *check_times(events),
        *check_wakeups(events),
        *check_owners(events),
        *check_records(events, written),
        *check_commits(events, written),
    ]
    return sorted(found, key=lambda finding: finding.at)


def history(events: Iterable[Event], finding: Finding, count: int = 40) -> list[Event]:
    """Returns the last events of a finding's partition, or of its member."""
    partition = finding.partition
    before = [
        event
        for event in events
        if event.at <= finding.at
        and (
            event.member.split(".")[0] == finding.member.split(".")[0]
            if partition is None
            else event.concerns(partition)
        )
    ]
    return before[-count:]


# --- single calls --------------------------------------------------------------------------------------------------

CALLBACK = "CallbackFailed"  # what callbacks of the model raise
POLLS = ("poll", "poll_arrow", "iterate")
DOCUMENTED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(POLLS, frozenset({"WakeupError", "RecordDeserializationError", CALLBACK})),
    "commit": frozenset({"WakeupError", "TimeoutError", "CommitFailedError", "RebalanceInProgressError"}),
    "commit_async callback": frozenset({"TimeoutError", "CommitFailedError", "RebalanceInProgressError"}),
    "committed": frozenset({"WakeupError", "TimeoutError"}),
    "position": frozenset({"WakeupError", "TimeoutError"}),
    "end_offsets": frozenset({"WakeupError", "TimeoutError"}),
    "offsets_for_times": frozenset({"WakeupError", "TimeoutError"}),
    "unsubscribe": frozenset({CALLBACK}),
    "close": frozenset({CALLBACK}),
    "body": frozenset({"BodyFailed", CALLBACK}),
}


def check_errors(events: Iterable[Event]) -> Iterator[Finding]:
    """Each call raises only what its documentation names."""
    for event in events:
        if event.kind == "call" and (error := event.data["error"]):
            name = event.data["name"]
            if error not in DOCUMENTED.get(name, frozenset()):
                yield Finding(event.at, event.member, None, f"{name} raised {error}: {event.data['text']}")


def check_times(events: Iterable[Event]) -> Iterator[Finding]:
    """Each call ends within its timeout, and a second."""
    for event in events:
        if event.kind == "call" and event.data["took_s"] > event.data["bound_s"] + GRACE_S:
            name, bound_s, took_s = event.data["name"], event.data["bound_s"], event.data["took_s"]
            yield Finding(event.at, event.member, None, f"{name} with a timeout of {bound_s:g} s took {took_s:.2f} s")


def check_wakeups(events: Iterable[Event]) -> Iterator[Finding]:
    """No more calls raise WakeupError than wakeup() was called."""
    woken: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    for event in events:
        if event.kind == "woken":
            woken[event.member] += 1
        elif event.kind == "call" and event.data["error"] == "WakeupError":
            raised[event.member] += 1
            if raised[event.member] > woken[event.member]:
                text = f"{raised[event.member]} WakeupErrors of {woken[event.member]} wakeups"
                yield Finding(event.at, event.member, None, text)


# --- ownership -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ownership:
    """A partition of one member, from on_assign to on_revoke or on_lost.

    `announced`: on_assign has returned. Before that the consumer protocol owns nothing yet; the classic one continues
    whatever a callback raises.
    """

    member: str
    began: float
    announced: bool
    ended: float | None = None
    lost: bool = False


@dataclass(slots=True)
class Owners:
    """The owners of partitions according to callbacks. `take` applies one event."""

    owned: dict[tuple[str, Partition], Ownership] = field(default_factory=dict)
    ended: list[tuple[Partition, Ownership]] = field(default_factory=list)
    _protocols: dict[str, str] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)

    def take(self, event: Event) -> list[Partition]:
        """Apply an event. Returns the partitions whose ownership began with it."""
        member, data = event.member, event.data
        if event.kind == "opened":
            self._protocols[member] = data["protocol"]
        elif event.kind == "leaving":
            self._leaving.add(member)
        elif event.kind == "left":
            self._leaving.discard(member)
            self._end(event, [partition for owner, partition in self.owned if owner == member])
        elif event.kind == "assigned":
            return self._begin(event)
        elif event.kind == "lost":
            self._end(event, data["partitions"], lost=True)
        elif event.kind == "revoked" and self._gives_up(event):
            self._end(event, data["partitions"])
        return []

    def _gives_up(self, event: Event) -> bool:
        """Returns whether this on_revoke ends an ownership. The consumer protocol repeats one that raised, and the
        member keeps the partitions until then.
        """
        member = event.member
        return not event.data["raises"] or self._protocols[member] == "classic" or member in self._leaving

    def _begin(self, event: Event) -> list[Partition]:
        announced = not event.data["raises"] or self._protocols[event.member] == "classic"
        began = []
        for partition in event.data["partitions"]:
            known = self.owned.get((event.member, partition))
            if known is None:
                self.owned[event.member, partition] = Ownership(event.member, event.at, announced)
                began.append(partition)
            elif announced and not known.announced:
                known.announced, known.began = True, event.at
        return began

    def _end(self, event: Event, partitions: Iterable[Partition], *, lost: bool = False) -> None:
        for partition in list(partitions):
            ownership = self.owned.pop((event.member, partition), None)
            if ownership is not None:
                ownership.ended, ownership.lost = event.at, lost
                self.ended.append((partition, ownership))


def check_owners(events: Iterable[Event]) -> Iterator[Finding]:
    """A partition has one owner at a time, unless the first one lost it."""
    owners = Owners()
    for event in events:
        owners.take(event)
    spans: dict[Partition, list[Ownership]] = {}
    for partition, ownership in (*owners.ended, *((tp, ownership) for (_, tp), ownership in owners.owned.items())):
        if ownership.announced:
            spans.setdefault(partition, []).append(ownership)
    for partition, owned in spans.items():
        owned.sort(key=lambda ownership: ownership.began)
        for first, second in pairwise(owned):
            if not first.lost and (first.ended is None or first.ended > second.began):
                until = "the end" if first.ended is None else f"{first.ended:.3f}"
                text = f"assigned from {second.began:.3f} on, though {first.member} had it until {until}"
                yield Finding(second.began, second.member, partition, text)


# --- records -------------------------------------------------------------------------------------------------------


def check_records(events: Iterable[Event], written: Written) -> Iterator[Finding]:
    """Members get records of what they own and subscribe to, in order and without a gap."""
    owners = Owners()
    readers: dict[str, _Reader] = {}
    for event in events:
        began = owners.take(event)
        reader = readers.setdefault(event.member, _Reader(written))
        for partition in began:
            reader.next.pop(partition, None)
        reader.take(event)
        if event.kind == "returned":
            for run in event.data["runs"]:
                ownership = owners.owned.get((event.member, run[0]))
                if ownership is None or not ownership.announced:
                    text = f"{_text(run)} returned, but the partition is not assigned"
                    yield Finding(event.at, event.member, run[0], text)
                for text in reader.returned(run):
                    yield Finding(event.at, event.member, run[0], text)
        elif event.kind == "position" and (wrong := reader.position(event.data["partition"], event.data["offset"])):
            yield Finding(event.at, event.member, event.data["partition"], wrong)


class _Reader:
    """The records that a member may be given next."""

    def __init__(self, written: Written) -> None:
        self.next: dict[Partition, int] = {}  # the offset to continue with, where it is known
        self._written = written
        self._topics: frozenset[str] = frozenset()
        self._paused: set[Partition] = set()

    def take(self, event: Event) -> None:
        """Apply what changes it."""
        data = event.data
        if event.kind == "subscribed":
            self._topics = frozenset(data["topics"])
        elif event.kind == "sought":
            self.next[data["partition"]] = data["offset"]
        elif event.kind in ("unknown", "revoked", "lost", "paused", "resumed"):
            self._take_partitions(event.kind, data)
        elif event.kind == "left":
            self.next.clear()
            self._paused.clear()

    def _take_partitions(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "paused":
            self._paused.update(data["partitions"])
        elif kind != "unknown":
            self._paused.difference_update(data["partitions"])
        if kind == "unknown" or (kind in ("revoked", "lost") and not data["raises"]):
            for partition in data["partitions"]:
                self.next.pop(partition, None)

    def returned(self, run: Run) -> Iterator[str]:
        """Returns what is wrong with records that were just returned."""
        partition, first, last = run
        if partition[0] not in self._topics:
            yield f"{_text(run)} returned, but subscribed to {sorted(self._topics)}"
        if partition in self._paused:
            yield f"{_text(run)} returned, but the partition is paused"
        offsets = self._written.get(partition, ())
        begin, end = bisect_left(offsets, first), bisect_right(offsets, last)
        if end - begin != last - first + 1:
            yield f"{_text(run)} returned, but the log has {end - begin} records there"
        expected = self.next.get(partition)
        if expected is not None and bisect_left(offsets, expected) != begin:
            yield f"{_text(run)} returned, but the next offset is {expected}"
        self.next[partition] = last + 1

    def position(self, partition: Partition, offset: int) -> str | None:
        """Returns what is wrong with a position."""
        offsets = self._written.get(partition, ())
        expected = self.next.setdefault(partition, offset)
        if bisect_left(offsets, expected) == bisect_left(offsets, offset):
            return None
        return f"the position is {offset}, but the next offset is {expected}"


def _text(run: Run) -> str:
    return f"{run[1]} to {run[2]}"


# --- commits -------------------------------------------------------------------------------------------------------


def check_commits(events: Iterable[Event], written: Written) -> Iterator[Finding]:
    """A commit covers only records that were processed, goes back only by a call of the application, and is where the
    next owner begins."""
    owners = Owners()
    commits: dict[Partition, _Commits] = {}
    for event in events:
        began = owners.take(event)
        for partition in _partitions(event):
            state = commits.setdefault(partition, _Commits(written.get(partition, ())))
            if partition in began:
                state.begin(event)
            for text in state.take(event, partition):
                yield Finding(event.at, event.member, partition, text)


def _partitions(event: Event) -> list[Partition]:
    data = event.data
    if "runs" in data:
        return list(dict.fromkeys(run[0] for run in data["runs"]))
    if "partition" in data:
        return [data["partition"]]
    return list(data.get("offsets", data.get("partitions", ())))


class _Commits:
    """One partition: which records were processed, and which offset must be committed at least.

    `floor` is the last acknowledged commit. The owner lowers it by calls that go back (`seek`, a commit of chosen
    offsets): any later commit of the same ownership may be as low as that, and no commit of a later one.
    """

    def __init__(self, written: Sequence[int]) -> None:
        self._written = written
        self._finished = [False] * len(written)
        self._processed = 0  # this many records from the first on were processed
        self._floors: list[tuple[float, int]] = [(-1.0, 0)]
        self._lowered: list[tuple[float, int]] = []  # by the present owner
        self._owner, self._owned_from = "", 0.0
        self._starting = False  # the position of a new owner has not been seen

    def begin(self, event: Event) -> None:
        """Begin an ownership."""
        self._owner, self._owned_from, self._starting = event.member, event.at, True
        self._lowered.clear()

    def take(self, event: Event, partition: Partition) -> Iterator[str]:
        """Apply an event. Returns what is wrong with it."""
        data = event.data
        if event.kind == "finished":
            self._finish([run for run in data["runs"] if run[0] == partition])
        elif event.kind == "sought":
            self._starting = False
            self._lower(event.at, data["offset"])
        elif event.kind == "unknown":
            self._starting = False
        elif event.kind == "commit":
            self._lower(event.at, data["offsets"][partition])
        elif event.kind == "acknowledged":
            yield from self._acknowledged(event, data["offsets"][partition])
        elif event.kind == "observed":
            yield from self._observed(event, data["offsets"][partition])
        elif event.kind == "position":
            yield from self._started(event.member, data["offset"])
        elif event.kind == "returned":
            yield from self._started(event.member, next(run[1] for run in data["runs"] if run[0] == partition))

    def _finish(self, runs: Iterable[Run]) -> None:
        for _, first, last in runs:
            for n in range(bisect_left(self._written, first), bisect_right(self._written, last)):
                self._finished[n] = True
        while self._processed < len(self._finished) and self._finished[self._processed]:
            self._processed += 1

    def _lower(self, at: float, offset: int) -> None:
        if bisect_left(self._written, offset) >= self._processed:
            return  # no commit can be beyond it, so this is no way back
        self._lowered.append((at, offset))
        if offset < self._floors[-1][1]:
            self._floors.append((at, offset))

    def _raise(self, at: float, offset: int) -> None:
        offset = min(offset, *(lowest for _, lowest in self._lowered)) if self._lowered else offset
        if offset > self._floors[-1][1]:
            self._floors.append((at, offset))

    def _floor_since(self, began: float) -> int:
        """Returns the lowest floor between a time and now."""
        index = bisect_right(self._floors, began, key=lambda floor: floor[0]) - 1
        return min(offset for _, offset in self._floors[max(index, 0) :])

    def _is_before(self, offset: int, other: int) -> bool:
        """Returns whether there is a record between an offset and a higher one, without markers and aborted records."""
        return bisect_left(self._written, offset) < bisect_left(self._written, other)

    def _covers(self, offset: int) -> Iterator[str]:
        """Yield an error if the records below an offset were not all processed."""
        count = bisect_left(self._written, offset)
        if count > self._processed:
            missed = self._written[self._processed]
            self._finished[:count] = [True] * count  # report each record once
            self._finish(())
            yield f"{missed} was not processed"

    def _acknowledged(self, event: Event, offset: int) -> Iterator[str]:
        for text in self._covers(offset):
            yield f"{offset} is committed, but {text}"
        if event.member == self._owner and event.data["called_at"] >= self._owned_from:
            self._raise(event.at, offset)

    def _observed(self, event: Event, offset: int) -> Iterator[str]:
        for text in self._covers(offset):
            yield f"{offset} is committed, but {text}"
        floor = self._floor_since(event.data["began"])
        if self._is_before(offset, floor):
            yield f"{offset} is committed, but {floor} was before"
        if event.data["began"] >= self._owned_from:
            self._raise(event.at, offset)

    def _started(self, member: str, offset: int) -> Iterator[str]:
        if not self._starting or member != self._owner:
            return
        self._starting = False
        floor = self._floor_since(self._owned_from)
        if self._is_before(offset, floor):
            yield f"starts at {offset}, but {floor} is committed"
        for text in self._covers(offset):
            yield f"starts at {offset}, but {text}"
