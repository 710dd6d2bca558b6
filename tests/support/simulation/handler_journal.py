"""The journal of handlers that `kconsumer.parallel` calls: what was started and finished, and what must hold.

A violation is recorded when it happens. The rules, in addition to those of `journal.py`:

- `not owned`: a handler is started for a record of a partition that its member does not own.
- `at once`: two handlers run that the order forbids, and no fault kept one of the members from learning that it lost
  the partition.
- `wrong order`: a record is started that was never processed, although a later one of its shard was started before.
- `too many`: more handlers of a run are running than it has workers, or more records in flight than allowed.
- `not drained`: a partition is given up although a handler of it has run for less than the drain timeout.
- `repeated`: a record is started that the last commit contained when the member got the partition.
- `not committed`: a record was finished long ago, nothing is disturbed, and no commit contains it. What a member has
  finished and cannot commit any more, because it crashed or lost the partition, counts when it is finished again.
- `wrong attempt`: a dead letter arrives before the last attempt, or a further attempt after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from kconsumer import ConsumerRecord, TopicPartition
from kconsumer.parallel.finished_offsets import Ranges, decode
from support.simulation.scenario import Workers

if TYPE_CHECKING:
    from support.simulation.journal import Journal

MAX_UNCOMMITTED_MS = 45_000.0
"""How long a finished record may remain uncommitted while nothing is disturbed. Callbacks may delay a commit."""


@dataclass
class Commit:
    """What a commit contains: the records before an offset, and those of some ranges."""

    offset: int = 0
    ranges: Ranges = field(default_factory=list)

    def __contains__(self, offset: int) -> bool:
        return offset < self.offset or any(start <= offset < end for start, end in self.ranges)


@dataclass(frozen=True)
class Running:
    """A call of a handler."""

    number: int
    member: str
    tp: TopicPartition
    offset: int
    shard: Hashable
    began: float


@dataclass(frozen=True)
class Repetition:
    """A record that was finished again."""

    tp: TopicPartition
    offset: int
    first_ms: float  # when it was finished for the first time
    again_ms: float


class HandlerJournal:
    """What the handlers of one group did."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.max_uncommitted_ms = MAX_UNCOMMITTED_MS
        self.repeated: list[Repetition] = []
        self.dead_letters = 0
        self.finished = 0  # with repetitions
        self._workers: dict[str, Workers] = {}  # of the present run of each member
        self._failed_runs: set[str] = set()  # members whose run ends with an error: it waits for handlers, then commits
        self._running: dict[int, Running] = {}  # the calls that have not returned
        self._numbers = count()
        self._excused: set[int] = set()  # those of them of members that do not own the partition any more
        self._started: dict[tuple[TopicPartition, Hashable], int] = {}  # the last offset of a shard that was started
        self._finished: dict[TopicPartition, dict[int, float]] = {}  # offset -> when it was finished first
        # Those that no commit contains: offset -> which member finished it first, and when.
        self._uncommitted: dict[TopicPartition, dict[int, tuple[str, float]]] = {}
        self._commits: dict[TopicPartition, Commit] = {}
        self._known: dict[tuple[str, TopicPartition], Commit] = {}  # the last commit when the member got the partition
        self._attempts: dict[tuple[str, TopicPartition, int], int] = {}  # failed attempts in the present run
        self._disturbed_at = 0.0  # the last time at which something was disturbed

    # --- runs and partitions -----------------------------------------------------------------------------------------

    def begin_run(self, member: str, workers: Workers, assigned: Iterable[TopicPartition]) -> None:
        """A member begins a run of `kconsumer.parallel`."""
        self._workers[member] = workers
        self._failed_runs.discard(member)
        self._attempts = {key: count for key, count in self._attempts.items() if key[0] != member}
        for tp in assigned:
            self.assign(member, [tp])

    def fail_run(self, member: str) -> None:
        """A run ends with an error. It commits when its handlers have returned, up to `drain_timeout_s` later."""
        self._failed_runs.add(member)

    def assign(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member has got partitions, whose committed offsets it reads afterwards."""
        known = {} if self._journal.now < self._journal.hidden_until else self._commits
        for tp in partitions:
            self._known[member, tp] = known.get(tp, Commit())
            self._attempts = {key: n for key, n in self._attempts.items() if key[:2] != (member, tp)}

    def forget_commits(self, member: str) -> None:
        """A member reads from the first record again."""
        self._known = {key: commit for key, commit in self._known.items() if key[0] != member}

    def give_up(self, member: str, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """A member gives partitions up. It has waited for their handlers, unless they are slow or it was removed."""
        workers, now = self._workers.get(member), self._journal.now
        for running in self._of(member):
            if running.tp in partitions:
                self._excused.add(running.number)
                if workers is None or lost or workers.on_revoke != "drain":
                    continue
                if now - running.began < 1000 * workers.drain_timeout_s - 1:
                    self._violation(f"not drained: {member} gives up {running.tp} while {running.offset} is processed")
        if lost:
            self._forget_finished(member, partitions)

    def end_run(self, member: str) -> None:
        """A run has ended. Handlers that it has not waited for may be running."""
        self._excused.update(running.number for running in self._of(member))
        self._workers.pop(member, None)

    def _forget_finished(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a member has finished and cannot commit any more."""
        for tp in partitions:
            left = self._uncommitted.get(tp, {})
            self._uncommitted[tp] = {offset: entry for offset, entry in left.items() if entry[0] != member}

    def end(self, member: str, *, crashed: bool = False) -> None:
        """The process of a member has crashed, or its consumer is closed."""
        if crashed:
            self._forget_finished(member, list(self._uncommitted))
        for running in self._of(member):
            del self._running[running.number]
            self._excused.discard(running.number)
        self._workers.pop(member, None)

    def _of(self, member: str) -> list[Running]:
        return [running for running in self._running.values() if running.member == member]

    # --- records -----------------------------------------------------------------------------------------------------

    def start(self, member: str, record: ConsumerRecord) -> Running:
        """A handler was called. Returns the call."""
        tp, offset, workers = record.topic_partition, record.offset, self._workers[member]
        shard = {"partition": "all", "key": record.key, "none": None}[workers.order]
        running = Running(next(self._numbers), member, tp, offset, shard, self._journal.now)
        if tp.topic in self._journal.unchecked:
            return running
        if member not in self._journal.owners.get(tp, {}):
            self._violation(f"not owned: {member} starts {tp}@{offset}")
        if offset in self._known.get((member, tp), Commit()):
            self._violation(f"repeated: {member} starts {tp}@{offset}, which is committed")
        if shard is not None:
            self._check_shard(member, tp, offset, shard)
        others = [other for other in self._of(member) if other.number not in self._excused]
        if len(others) >= workers.number:
            self._violation(f"too many: {member} has {len(others) + 1} handlers")
        self._running[running.number] = running
        return running

    def _check_shard(self, member: str, tp: TopicPartition, offset: int, shard: Hashable) -> None:
        for other in self._running.values():
            disturbed = self._journal.disturbed(other.member) or self._journal.disturbed(member)
            excused = other.number in self._excused or disturbed
            if (other.tp, other.shard) == (tp, shard) and not excused:
                self._violation(f"at once: {member} starts {tp}@{offset} while {other} is running")
        latest = self._started.get((tp, shard), -1)
        if latest > offset and offset not in self._finished.get(tp, {}):
            self._violation(f"wrong order: {member} starts {tp}@{offset} after {latest} of the same shard")
        self._started[tp, shard] = max(latest, offset)

    def fail(self, running: Running, attempts: int) -> None:
        """A handler raises. There are up to this many attempts."""
        if self._end(running):
            key = running.member, running.tp, running.offset
            self._attempts[key] = self._attempts.get(key, 0) + 1
            if self._attempts[key] > attempts:
                self._violation(f"wrong attempt: {running.member} tries {running.tp}@{running.offset} too often")

    def postpone(self, member: str, record: ConsumerRecord) -> None:
        """An attempt of a record fails that was not started: an earlier one of its order failed in its batch."""
        key = member, record.topic_partition, record.offset
        self._attempts[key] = self._attempts.get(key, 0) + 1

    def bury(self, member: str, record: ConsumerRecord, attempts: int) -> None:
        """A record is a dead letter, and counts as finished."""
        tp = record.topic_partition
        if self._attempts.pop((member, tp, record.offset), 0) != attempts and tp.topic not in self._journal.unchecked:
            self._violation(f"wrong attempt: {tp}@{record.offset} is a dead letter")
        self.dead_letters += 1
        self._finish(member, tp, record.offset)

    def finish(self, running: Running) -> None:
        """A handler returns."""
        if self._end(running):
            self._attempts.pop((running.member, running.tp, running.offset), None)
        self._finish(running.member, running.tp, running.offset)

    def abort(self, running: Running) -> None:
        """A handler was cancelled, and has not processed the record."""
        self._end(running)

    def _end(self, running: Running) -> bool:
        """End a call. Returns False if the member has given the partition up."""
        known = self._running.pop(running.number, None) is not None
        excused = running.number in self._excused
        self._excused.discard(running.number)
        return known and not excused

    def _finish(self, member: str, tp: TopicPartition, offset: int) -> None:
        now = self._journal.now
        if tp.topic in self._journal.unchecked:
            return
        self._journal.process(tp, offset)
        self.finished += 1
        first = self._finished.setdefault(tp, {}).setdefault(offset, now)
        if first < now:
            self.repeated.append(Repetition(tp, offset, first, now))
        if offset not in self._commits.get(tp, Commit()):
            self._uncommitted.setdefault(tp, {}).setdefault(offset, (member, now))

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, tp: TopicPartition, offset: int, metadata: str) -> None:
        """The coordinator has stored a committed offset."""
        commit = self._commits[tp] = Commit(offset, decode(metadata, offset))
        left = self._uncommitted.get(tp, {})
        self._uncommitted[tp] = {offset: entry for offset, entry in left.items() if offset not in commit}

    def check_commits(self) -> None:
        """Check that what was finished is committed. Must be called at regular times."""
        journal = self._journal
        if journal.now <= journal.all_disturbed_until:
            self._disturbed_at = journal.now
        for tp, left in self._uncommitted.items():
            owners = [member for member in journal.owners.get(tp, {}) if member in self._workers]
            if not owners or any(journal.disturbed(member) or member in self._failed_runs for member in owners):
                continue
            limit = journal.now - self.max_uncommitted_ms
            late = [(offset, since) for offset, (_, since) in left.items() if max(since, self._disturbed_at) < limit]
            if late:
                offset, since = late[0]
                self._violation(f"not committed: {tp}@{offset} was finished {journal.now - since:.0f} ms ago")
                left.clear()

    def _violation(self, text: str) -> None:
        self._journal.violation(text)
