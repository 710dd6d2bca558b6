"""The rules that a group keeps while its members have faults, and where a run broke one: pure functions.

The rules read the ownerships of members, which `soak_journal.py` derives from their event logs, and the faults that
were injected. They are about owners, generations and the time until the group is stable after faults; `check_group`
finds lost and repeated records.

Two members may own a partition at the same time only if the first one was disconnected from its coordinator until its
session expired, and cannot have learnt of it yet. The death of a coordinator does not permit two owners, because the
next coordinator gives every member a whole session timeout to find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support.members.members import Partition
from support.soak.soak_journal import Journal, Span

# A member is silent for a little longer than it is out of touch: its last heartbeat was sent some time before.
HEARTBEATS_S = 1.5
STABLE_SESSIONS = 2.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one member, or of every member (`member` None), with its begin and end.

    `silences`: whether the coordinator receives nothing from the members meanwhile and may continue without them.
    """

    kind: str
    member: str | None
    began: float
    ended: float
    silences: bool = False

    def befell(self, member: str) -> bool:
        """Returns whether this member had the fault."""
        return self.member in (None, member)


def replay(name: str, events: Iterable[Mapping[str, Any]], killed_at: float | None = None) -> Journal:
    """Returns the journal of a member, made from its event log."""
    journal = Journal(name)
    for event in events:
        journal.note(event)
    if killed_at is not None:
        journal.killed(killed_at)
    return journal


def check_owners(journals: Sequence[Journal], faults: Sequence[Fault], session_s: float, until: float) -> list[str]:
    """Returns where two members owned a partition at the same time and no fault permits it. `until` is the end of the
    logs.
    """
    wrong: list[str] = []
    for partition, spans in _ownerships(journals).items():
        spans.sort(key=lambda span: span.began)
        for n, first in enumerate(spans):
            for second in spans[n + 1 :]:
                if second.began >= first.ended_at:
                    break
                if problem := _two_owners(first, second, faults, session_s, until):
                    wrong.append(f"{partition}: {problem}")
    return wrong


def _ownerships(journals: Iterable[Journal]) -> dict[Partition, list[Span]]:
    found: dict[Partition, list[Span]] = {}
    for journal in journals:
        for partition, spans in list(journal.spans.items()):
            found.setdefault(partition, []).extend(spans)
    return found


def _two_owners(first: Span, second: Span, faults: Sequence[Fault], session_s: float, until: float) -> str | None:
    """Returns why these two may not own the same partition at the same time, or None if they may."""
    suffered = [fault for fault in faults if fault.befell(first.reader)]
    silent_s = _covered_s(suffered, second.began - 2 * session_s, second.began)
    if silent_s < session_s - HEARTBEATS_S:
        return (
            f"{second.reader} owned it from {second.began:.3f}, {first.reader} until {first.ended_at:.3f}, though out"
            f" of touch for only {silent_s:.1f} s"
        )
    # What it suffers on top of that may keep it from hearing of its end for longer.
    gave_up = min(first.ended_at, until)
    could_learn = max(min(fault.ended, gave_up) for fault in suffered if fault.began <= gave_up)
    if gave_up - could_learn > session_s:
        return (
            f"{first.reader} owned it until {gave_up:.3f}, {gave_up - could_learn:.1f} s after it could have learnt"
            f" that it belonged to {second.reader} from {second.began:.3f}"
        )
    return None


def _covered_s(faults: Iterable[Fault], start: float, end: float) -> float:
    """Returns the part of a time (s) in which at least one fault kept the coordinator from hearing the member."""
    covered, reached = 0.0, start
    for began, ended in sorted((fault.began, fault.ended) for fault in faults if fault.silences):
        began, ended = max(began, reached), min(ended, end)
        if ended > began:
            covered += ended - began
            reached = ended
    return covered


def check_generations(journals: Iterable[Journal]) -> list[str]:
    """Returns where the generation, or the member epoch, of a member decreased."""
    wrong: list[str] = []
    for journal in journals:
        highest: dict[str, int] = {}
        for at, member_id, generation in journal.generations:
            if generation < highest.get(member_id, 0):
                wrong.append(
                    f"{journal.name}: generation {generation} after {highest[member_id]} at {at:.3f} as {member_id}"
                )
            highest[member_id] = max(generation, highest.get(member_id, 0))
    return wrong


def stable_since(
    journals: Sequence[Journal], partitions: Iterable[Partition], began: float, ended: float
) -> float | None:
    """Returns the time in a calm from which each partition had exactly one owner until its end, or None."""
    spans = _ownerships(journals)
    since = began
    for partition in partitions:
        own = [span for span in spans.get(partition, ()) if span.began <= ended and span.ended_at >= began]
        moments = sorted({began, *(m for span in own for m in (span.began, span.ended_at) if began < m <= ended)})
        for moment, following in zip(moments, [*moments[1:], None], strict=True):
            if 1 == sum(span.began <= moment < span.ended_at for span in own):
                continue
            if following is None:
                return None
            since = max(since, following)
    return since


def check_calms(
    journals: Sequence[Journal],
    partitions: Sequence[Partition],
    calms: Iterable[tuple[float, float]],
    session_s: float,
) -> tuple[list[str], list[float]]:
    """Returns a text for each calm in which the group was not stable within two session timeouts, and the times (s)
    of the other calms.

    A calm begins when the last fault has ended, and ends before the next one.
    """
    wrong: list[str] = []
    took: list[float] = []
    for began, ended in calms:
        since = stable_since(journals, partitions, began, ended)
        if since is None:
            wrong.append(f"not stable at {ended:.3f}, {ended - began:.1f} s after the last fault")
        elif since - began > STABLE_SESSIONS * session_s:
            wrong.append(f"stable at {since:.3f}, only {since - began:.1f} s after the last fault")
        else:
            took.append(since - began)
    return wrong, took
