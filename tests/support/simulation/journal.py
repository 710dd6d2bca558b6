"""The journal of a simulated group: what was written, returned, processed, owned and committed, and what must hold.

A violation is recorded when it happens, with the virtual time. The rules:

- `skipped`: a member returns a record although an earlier one of the partition was never processed.
- `repeated`: a record is returned after the assignment of a partition although its offset was committed before.
- `gap`: while a member owns a partition, the records that it returns are not consecutive.
- `committed too early`: an offset is committed although an earlier record was not processed by the application.
- `committed offset went back`: a committed offset is smaller than the one before it.
- `paused`: a member returns a record of a partition that it has paused since it owns it.
- `wrong position`: `position` returns another offset than that of the next record.
- `wrong committed offset`: `committed` returns an offset that is smaller than one that was stored before the call.
- `commit not stored`: a call of `commit` returns, but the coordinator has not stored the offset.
- `two owners`: two members own a partition, and neither a fault nor a change of the group's protocol kept one of them
  from learning that it lost the partition.
- `lost without a fault`: on_lost is called in a poll, and no fault made the group remove the member.
- `late call`: a call takes longer than its timeout, or continues after the consumer was closed.
- `not stable`: a partition has no owner, or several, two session timeouts after the last fault.
- `not committed before on_revoke`: a member with auto-commit gives a partition up in order, and its position is not
  committed.
- `no progress`: no record of a partition is processed for a long time, although there are some, and nothing is
  disturbed.
- `flood`: a client sends more requests of an API than any reason could require.
- `discarded`: a client closes a connection for fetches before it has read all of a response, and nothing is disturbed.
- `extra wakeup`: WakeupError is raised more often than `wakeup` is called.
- `callback cancelled`: a callback of an AsyncConsumer is cancelled together with the call that has started it.
- `internal error`, `unexpected error`: a call raised an error that no fault explains, or the library logged an
  exception.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from kconsumer import TopicPartition
from support.simulation.handler_journal import HandlerJournal
from support.simulation.settings import is_selected

GRACE_MS = 1_000.0
MAX_REQUESTS = 200  # of one client and API in WINDOW_MS
# APIs of which a client may send more
BUSY_APIS = {"Fetch": 2_000, "OffsetCommit": 1_000, "ShareFetch": 10_000, "ShareAcknowledge": 10_000}
WINDOW_MS = 10_000.0
FOREVER = float("inf")


def named(partitions: Iterable[TopicPartition]) -> str:
    """Returns the names of partitions for the history, such as `t-0 t-1`."""
    return " ".join(map(str, sorted(partitions))) or "none"


class Journal:
    """What one group did."""

    def __init__(self, grace_ms: float = GRACE_MS) -> None:
        self._grace_ms = grace_ms
        self.violations: list[str] = []
        self.now = 0.0
        self.appended: dict[TopicPartition, list[int]] = {}  # the offsets of all records, in order
        self.returned: dict[TopicPartition, int] = {}  # how many records were returned, of each partition
        self.committed: dict[TopicPartition, int] = {}
        self.owners: dict[TopicPartition, dict[str, None]] = {}
        self._forgotten: set[tuple[str, TopicPartition]] = set()  # owned, but the coordinator does not know this
        self.all_disturbed_until = 0.0  # until then, a fault may keep any member from learning what it lost
        self.hidden_until = 0.0  # until then, a commit may be stored that the coordinator does not return yet
        self.changes_protocol = False  # members of both protocols: a change of the group's protocol ends generations
        self.filtered = False  # members drop records, which count as if they did not exist
        self.unchecked: set[str] = set()  # topics whose records are not checked
        self._disturbed_until: dict[str, float] = {}  # the same for one member
        self._rewound: dict[TopicPartition, int] = {}  # read again from the beginning; where new records begin
        self._start: dict[TopicPartition, int] = {}  # the records before this offset were deleted
        self._processed: dict[TopicPartition, int] = {}  # all records before this offset were processed
        self._later: dict[TopicPartition, list[int]] = {}  # processed records behind it
        self._floor: dict[tuple[str, TopicPartition], int] = {}  # the committed offset when the member got it
        self._next: dict[tuple[str, TopicPartition], int] = {}  # the offset after the last returned record
        self._waiting: dict[TopicPartition, tuple[int, float]] = {}  # the first unprocessed record, and since when
        self._requests: dict[tuple[str, str], tuple[float, int]] = {}
        self._looked_up: dict[tuple[str, TopicPartition], int] = {}  # the committed offset when a lookup began
        self._paused: set[tuple[str, TopicPartition]] = set()
        self._alone: dict[tuple[str, TopicPartition], int] = {}  # the same of consumers without a group
        self.handlers = HandlerJournal(self)
        self._delayed_until: dict[TopicPartition, float] = {}  # until then, a fault hides the committed offset

    def violation(self, text: str) -> None:
        """Record that a rule does not hold."""
        self.violations.append(f"{self.now:.3f} {text}")

    # --- the log ---

    def append(self, partition: TopicPartition, offset: int) -> None:
        """A record was written, or the transaction that contains it was committed."""
        if partition.topic not in self.unchecked and (not self.filtered or is_selected(offset)):
            insort(self.appended.setdefault(partition, []), offset)

    def delete(self, partition: TopicPartition, start: int) -> None:
        """The records before an offset were deleted. Members may have received some of them before."""
        self._start[partition] = max(start, self._start.get(partition, 0))

    def check_from(self, partition: TopicPartition, start: int, end: int) -> None:
        """Begin to check a partition with the records `start` to `end - 1`. Those that follow must be processed."""
        self.appended[partition] = [at for at in range(start, end) if not self.filtered or is_selected(at)]
        self._processed[partition] = end
        if partition in self._rewound:
            self._rewound[partition] = end
        self._alone = {key: offset for key, offset in self._alone.items() if key[1] != partition}

    def following(self, partition: TopicPartition, offset: int) -> int:
        """Returns the offset of the first record at or after an offset; the offset itself if there is none."""
        offsets = self.appended.get(partition, [])
        index = bisect_left(offsets, offset)
        return offsets[index] if index < len(offsets) else offset

    def first_unprocessed(self, partition: TopicPartition) -> int | None:
        """Returns the offset of the first record that was not processed, or None if there is none."""
        offsets = self.appended.get(partition, [])
        index = bisect_left(offsets, max(self._processed.get(partition, 0), self._start.get(partition, 0)))
        return offsets[index] if index < len(offsets) else None

    def unprocessed(self) -> dict[TopicPartition, int]:
        """Returns the offset of the first record that was not processed, of each partition that has such records."""
        found = {partition: self.first_unprocessed(partition) for partition in self.appended}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def backlog(self) -> int:
        """Returns how many records follow the first one that was not processed, in all partitions."""
        return sum(
            len(offsets) - bisect_left(offsets, self._processed.get(partition, 0))
            for partition, offsets in self.appended.items()
        )

    # --- ownership ---

    def assign(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member was notified that it owns partitions."""
        self.handlers.assign(member, partitions)
        for tp in partitions:
            for other in self.owners.get(tp, ()):
                if other != member and (other, tp) not in self._forgotten and not self.disturbed(other):
                    self.violation(f"two owners of {tp}: {other} and {member}")
            self.owners.setdefault(tp, {})[member] = None
            if (member, tp) not in self._floor:
                if self.now < self.hidden_until:
                    self._expect_again(tp)
                self._floor[member, tp] = 0 if tp in self._rewound else self.committed.get(tp, 0)
                self._next.pop((member, tp), None)

    def take_away(self, member: str, partitions: Iterable[TopicPartition], *, lost: bool = False) -> None:
        """A member was notified that it no longer owns partitions."""
        self.handlers.give_up(member, partitions, lost=lost)
        for tp in partitions:
            self._forget(member, tp)

    def forget_owners(self) -> None:
        """The coordinator has forgotten what members own. It may assign a partition before its owner gives it up."""
        self._forgotten.update((member, tp) for tp, members in self.owners.items() for member in members)

    def lose(self, member: str, partitions: Iterable[TopicPartition], since: float | None = None) -> None:
        """A poll has called on_lost: the group has removed the member at `since` (ms) or later; None means now."""
        if not self.disturbed(member, since) and not self.changes_protocol:
            self.violation(f"lost without a fault: {member} lost {named(partitions)}")

    def revoke(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member with auto-commit gives up partitions in order, after it has processed what it received."""
        for tp in partitions:
            position, committed = self._next.get((member, tp), 0), self.committed.get(tp, 0)
            if committed < position and not self.disturbed(member) and tp.topic not in self.unchecked:
                self.violation(f"not committed before on_revoke: {member} has {tp}@{position}, committed {committed}")

    def check_progress(self, max_wait_ms: float) -> None:
        """Check that no partition waits too long. Must be called at regular times."""
        for tp, offset in self.unprocessed().items():
            before, since = self._waiting.get(tp, (-1, 0.0))
            if offset != before or self.now <= self.all_disturbed_until or self._delayed(tp):
                self._waiting[tp] = offset, self.now
            elif self.now - since > max_wait_ms:
                self.violation(f"no progress: {tp}@{offset} waits for {self.now - since:.0f} ms")
                self._waiting[tp] = offset, FOREVER

    def delay_positions(self, partitions: Iterable[TopicPartition], until: float) -> None:
        """A fault hides the committed offsets of these partitions until then."""
        for tp in partitions:
            self._delayed_until[tp] = max(until, self._delayed_until.get(tp, 0.0))

    def _delayed(self, partition: TopicPartition) -> bool:
        """Returns whether an owner of a partition waits for a hidden offset: it looks up all its positions together."""
        owners = self.owners.get(partition, {})
        return any(
            self.now <= until + GRACE_MS and not owners.keys().isdisjoint(self.owners.get(tp, {}))
            for tp, until in self._delayed_until.items()
        )

    def restart_waits(self) -> None:
        """No member is running: records begin to wait later."""
        self._waiting.clear()

    def end(self, member: str, *, crashed: bool = False) -> None:
        """A member closed its consumer, or crashed."""
        self.handlers.end(member, crashed=crashed)
        for partition in list(self.owners):
            self._forget(member, partition)
        self._alone = {key: offset for key, offset in self._alone.items() if key[0] != member}

    def check_call(self, member: str, what: str, took_ms: float, timeout_ms: float) -> None:
        """Check that a call that has ended has not taken longer than its timeout, which may be 0."""
        if took_ms > timeout_ms + self._grace_ms:
            self.violation(f"late call: {member}: {what} took {took_ms:.0f} ms of {timeout_ms:.0f}")

    def check_call_after_close(self, member: str, what: str, since_ms: float) -> None:
        """Check that a call ends soon after a callback or the handler of a signal has closed the consumer in it."""
        if since_ms > self._grace_ms:
            self.violation(f"late call: {member}: {what} took {since_ms:.0f} ms after close()")

    def check_stable(self, partitions: Iterable[TopicPartition]) -> None:
        """Check that each of these partitions has one owner."""
        for tp in partitions:
            owners = list(self.owners.get(tp, ()))
            if len(owners) != 1:
                self.violation(f"not stable: {tp} has owners {owners}")

    def _forget(self, member: str, partition: TopicPartition) -> None:
        self.owners.get(partition, {}).pop(member, None)
        self._forgotten.discard((member, partition))
        self._floor.pop((member, partition), None)
        self._next.pop((member, partition), None)
        self._paused.discard((member, partition))

    def disturb(self, member: str, until: float) -> None:
        """A fault keeps a member from learning until then what it has lost."""
        self._disturbed_until[member] = max(until, self._disturbed_until.get(member, 0.0))

    def disturb_all(self, until: float) -> None:
        """A fault keeps all members from learning until then what they have lost."""
        self.all_disturbed_until = max(until, self.all_disturbed_until)

    def disturbed(self, member: str, since: float | None = None) -> bool:
        """Returns whether a fault may keep a member from learning what it has lost, now or at `since` (ms)."""
        moment = self.now if since is None else since
        return moment <= max(self.all_disturbed_until, self._disturbed_until.get(member, 0.0))

    # --- records ---

    def sought(self, member: str, partition: TopicPartition, offset: int) -> None:
        """A member moved its position."""
        if partition.topic in self.unchecked:
            return
        self._next[member, partition] = offset
        self._floor[member, partition] = min(offset, self._floor.get((member, partition), offset))

    def rewind(self, member: str, partition: TopicPartition) -> None:
        """A member reads from the first record again."""
        self._next.pop((member, partition), None)
        self._floor[member, partition] = 0
        self._expect_again(partition)

    def _expect_again(self, partition: TopicPartition) -> None:
        self._rewound[partition] = max(
            self._processed.get(partition, 0), self._start.get(partition, 0), self.committed.get(partition, 0)
        )

    def pause(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member has paused partitions for its next poll, and no others."""
        self._paused = {key for key in self._paused if key[0] != member} | {(member, tp) for tp in partitions}

    def deliver(self, member: str, partition: TopicPartition, offset: int) -> None:
        """A record was returned to the application."""
        key = (member, partition)
        self.returned[partition] = self.returned.get(partition, 0) + 1
        if partition not in self.owners or member not in self.owners[partition]:
            self.violation(f"{member} returned {partition}@{offset} without owning the partition")
        if key in self._paused:
            self.violation(f"paused: {member} returned {partition}@{offset}")
        if partition.topic in self.unchecked:
            return
        floor = self._floor.get(key, 0)
        if offset < floor:
            self.violation(f"repeated: {member} returned {partition}@{offset}; {floor} was committed before")
        expected = self._next.get(key)
        if expected is None:
            first = self.first_unprocessed(partition)
            if first is not None and offset > first:
                self.violation(f"skipped: {member} starts at {partition}@{offset}; {first} was never processed")
        elif not self._continues(partition, expected, offset):
            self.violation(f"gap: {member} returned {partition}@{offset} after {expected - 1}")
        self._next[key] = offset + 1

    def _continues(self, partition: TopicPartition, expected: int, offset: int) -> bool:
        """Returns whether the record at `offset` may follow: the next one, or a later one if records were deleted."""
        latest = self.following(partition, max(expected, self._start.get(partition, 0)))
        return self.following(partition, expected) == offset or expected <= offset == latest

    def read_alone(self, reader: str, partition: TopicPartition, offset: int) -> None:
        """A record was returned to a consumer without a group, which reads all records."""
        expected = self._alone.get((reader, partition), offset)
        if partition.topic not in self.unchecked and not self._continues(partition, expected, offset):
            self.violation(f"gap: {reader} returned {partition}@{offset} after {expected - 1}")
        self._alone[reader, partition] = offset + 1

    def discard(self, client: str, broker: int) -> None:
        """A client has closed a connection, and has not read all of a response."""
        if not self.disturbed(client):
            self.violation(f"discarded: {client} has closed its connection to broker {broker}")

    def process(self, partition: TopicPartition, offset: int) -> None:
        """The application has processed a record."""
        if partition.topic in self.unchecked:
            return
        later = self._later.setdefault(partition, [])
        done = max(self._processed.get(partition, 0), self._start.get(partition, 0))
        if offset < done:
            return
        if not later or later[-1] < offset:
            later.append(offset)
        elif later[bisect_left(later, offset)] != offset:
            insort(later, offset)
        count = 0
        while count < len(later) and later[count] == self.following(partition, done):
            done = later[count] + 1
            count += 1
        del later[:count]
        self._processed[partition] = done

    # --- commits and requests ---

    def commit(self, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        """The coordinator has stored a committed offset."""
        if partition.topic in self.unchecked:
            return
        self.handlers.commit(partition, offset, metadata)
        first = self.first_unprocessed(partition)
        if first is not None and offset > first:
            self.violation(f"committed too early: {partition}@{offset}; {first} was not processed")
        before = self.committed.get(partition, 0)
        rewound = self._rewound.get(partition)
        if rewound is not None and self._has_records(partition, rewound, offset):
            del self._rewound[partition]
        if offset < before and partition not in self._rewound:
            self.violation(f"committed offset went back: {partition} from {before} to {offset}")
        self.committed[partition] = offset

    def _has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Returns whether members must process a record at an offset from `start` to `end - 1`.

        A commit that was in flight when a member sought to the beginning contains none of the records that are new
        since then. But it may be larger than the last processed record: the position of the member has also passed the
        markers of transactions, and records of aborted ones.
        """
        offsets = self.appended.get(partition, [])
        index = bisect_left(offsets, start)
        return index < len(offsets) and offsets[index] < end

    def acknowledge(self, member: str, partition: TopicPartition, offset: int) -> None:
        """A commit of an offset has returned without an error."""
        if self.committed.get(partition, 0) < offset and partition.topic not in self.unchecked:
            self.violation(f"commit not stored: {member} has committed {partition}@{offset}")

    def check_position(self, member: str, partition: TopicPartition, offset: int) -> None:
        """Check that a position is behind the last record that was returned, and not behind the next one."""
        expected = self._next.get((member, partition))
        if expected is None or partition.topic in self.unchecked:
            return
        following = self.following(partition, max(expected, self._start.get(partition, 0)))
        known = following > expected or following in self.appended.get(partition, ())
        if offset < expected or (known and offset > following):
            self.violation(f"wrong position: {member} is at {partition}@{offset}, {expected} is next")

    def note_committed(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A lookup of committed offsets begins."""
        self._looked_up.update({(member, tp): self.committed.get(tp, 0) for tp in partitions})

    def check_committed(self, member: str, partition: TopicPartition, offset: int) -> None:
        """Check what a lookup has returned."""
        stored = self._looked_up.get((member, partition), 0)
        if offset < stored and partition not in self._rewound and partition.topic not in self.unchecked:
            self.violation(f"wrong committed offset: {member} got {partition}@{offset}, {stored} was stored before")

    def request(self, client: str, api: str) -> None:
        """A client has sent a request."""
        since, count = self._requests.get((client, api), (self.now, 0))
        if self.now - since > WINDOW_MS:
            since, count = self.now, 0
        self._requests[client, api] = since, count + 1
        limit = BUSY_APIS.get(api, MAX_REQUESTS)
        if count == limit:
            self.violation(f"flood: {client} sent more than {limit} {api} requests in {WINDOW_MS / 1000:.0f} s")
