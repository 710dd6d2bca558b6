"""The journal of a simulated share group: what was delivered, acknowledged and stored, and what must hold.

A violation is recorded when it happens, with the virtual time. The rules, in addition to those of `Journal`:

- `not locked`: a poll returns a record that is not locked for its member. The leader of the partition knows this. A
  lock that has expired is never excused, because the member can compute when it expires.
- `two holders`: a record is returned to a member while another one holds it: it has received the record, has not
  acknowledged it, and its lock has not expired.
- `returned twice`: a poll returns a record again that the member holds, and has not renewed.
- `received after its acknowledgement`: a record is returned after the acceptance or rejection of it was confirmed. Only
  a member that does not know yet that its leader has died may return what it has received from it before.
- `delivered too often`: the delivery count of a returned record is above the limit of the group.
- `not written`, `not subscribed`: a poll returns a record that was not written, or one of another topic.
- `accepted without processing`, `archived without reason`: the leader has stored that a record was accepted or given
  up, but no application has accepted or rejected it, and the limit of deliveries is not reached.
- `wrong acknowledgement`: `kconsumer.parallel` accepts a record that no handler has finished, or gives one up that a
  handler has finished.
- `never returned`: a record was given up although no poll has returned it, and members had no reason to drop it.
- `refused without a fault`: an acknowledgement fails, although the lock has not expired.
- `not stored`: an acknowledgement was confirmed, and is not stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from kconsumer import AcknowledgeType, TopicPartition
from kconsumer.testing.cluster.share.in_flight import ACKNOWLEDGED, ACQUIRED, TERMINAL, RecordState
from support.simulation.journal import Journal

Key = tuple[TopicPartition, int]  # a record
GRACE_MS = 50.0  # what may pass between the last check of a poll and its return
FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass
class Hold:
    """A record that an application has received and not acknowledged."""

    member: str
    deadline: float  # when its lock expires, ms
    renewing: bool = False


class ShareJournal(Journal):
    """What one share group did."""

    def __init__(self, delivery_limit: int, *, steady: bool) -> None:
        super().__init__()
        self.seen: dict[Key, int] = {}  # how often each record was returned
        self.holds: dict[Key, Hold] = {}
        self._delivery_limit = delivery_limit
        self._steady = steady  # no fault, and no program, makes members drop what they have fetched
        self._decisions: dict[Key, set[AcknowledgeType]] = {}  # of all applications
        #: Acknowledgements without a result, in their order, with the deadlines of the locks.
        self._unconfirmed: dict[tuple[str, Key], deque[tuple[AcknowledgeType, float]]] = {}
        self._confirmed: dict[Key, AcknowledgeType] = {}
        self._stored: dict[Key, int] = {}  # states that are final

    # --- records ---

    def receive(self, member: str, member_id: str, key: Key, count: int, state: RecordState | None) -> None:
        """A poll has returned a record. `state`: what the leader knows about it, or None."""
        tp, offset = key
        what = f"{member} received {tp}@{offset}, delivery {count}"
        self.seen[key] = self.seen.get(key, 0) + 1
        self.returned[tp] = self.returned.get(tp, 0) + 1
        if not self._is_written(key):
            self.violation(f"not written: {what}")
        if count > self._delivery_limit:
            self.violation(f"delivered too often: {what}")
        if key in self._confirmed and not self.disturbed(member):
            self.violation(f"received after its acknowledgement: {what}")
        self._check_lock(what, member, state if state is None or state.member_id == member_id else None)
        self._check_holder(what, member, key)
        deadline = state.deadline if state is not None and state.member_id == member_id else None
        self.holds[key] = Hold(member, self.now if deadline is None else deadline)

    def check_subscribed(self, member: str, key: Key, topics: Collection[str]) -> None:
        """Check that a record, which a poll has returned, is of a subscribed topic, or was renewed before."""
        hold = self.holds.get(key)
        if key[0].topic not in topics and not (hold and hold.renewing):
            self.violation(f"not subscribed: {member} received {key[0]}@{key[1]}")

    def _is_written(self, key: Key) -> bool:
        offsets = self.appended.get(key[0], [])
        at = bisect_left(offsets, key[1])
        return at < len(offsets) and offsets[at] == key[1]

    def _check_lock(self, what: str, member: str, state: RecordState | None) -> None:
        if state is not None and state.state == ACQUIRED:
            return
        if not self.disturbed(member):
            self.violation(f"not locked: {what}")

    def _check_holder(self, what: str, member: str, key: Key) -> None:
        hold = self.holds.get(key)
        if hold is None or self.disturbed(member) or self.disturbed(hold.member):
            return
        if hold.member == member and not hold.renewing and self.now < hold.deadline - GRACE_MS:
            self.violation(f"returned twice: {what}")
        if hold.member != member and self.now < hold.deadline - GRACE_MS:
            self.violation(f"two holders: {what}, which {hold.member} holds")

    # --- decisions ---

    def decide(self, member: str, key: Key, kind: AcknowledgeType) -> None:
        """An application acknowledges a record that it holds. The acknowledgement is sent with a later call."""
        hold = self.holds.get(key)
        if hold is None or hold.member != member:
            return  # its lock has expired, and another member has received the record
        self._decisions.setdefault(key, set()).add(kind)
        self._unconfirmed.setdefault((member, key), deque()).append((kind, hold.deadline))
        if kind is AcknowledgeType.RENEW:
            hold.renewing = True
        else:
            del self.holds[key]

    def finish(self, key: Key) -> None:
        """A handler of `kconsumer.parallel` has processed a record, which may be accepted from now on."""
        self._decisions.setdefault(key, set()).add(AcknowledgeType.ACCEPT)

    def check_finished(self, member: str, key: Key, kind: AcknowledgeType, *, finished: bool) -> None:
        """Check that `kconsumer.parallel` accepts only what a handler has finished, and does not give that up."""
        if kind is not AcknowledgeType.RENEW and finished != (kind is AcknowledgeType.ACCEPT):
            self.violation(f"wrong acknowledgement: {member}: {kind.name} of {key[0]}@{key[1]}, {finished=}")

    def drop_holds(self, member: str) -> None:
        """A member gives up what it has received, because it closes its consumer or unsubscribes."""
        self.holds = {key: hold for key, hold in self.holds.items() if hold.member != member}

    def drop_member(self, member: str) -> None:
        """A member has crashed."""
        self.drop_holds(member)
        self._unconfirmed = {key: found for key, found in self._unconfirmed.items() if key[0] != member}

    def confirm(self, member: str, key: Key) -> None:
        """The consumer has reported that an acknowledgement has succeeded."""
        kind, _ = self._next_result(member, key)
        if kind is not None and kind in FINAL:
            self._confirmed[key] = kind
            if key not in self._stored:
                self.violation(f"not stored: {kind.name} of {key[0]}@{key[1]} was confirmed to {member}")

    def refuse(self, member: str, key: Key, error: str) -> None:
        """The consumer has reported that an acknowledgement has failed."""
        kind, deadline = self._next_result(member, key)
        if kind is AcknowledgeType.RENEW:
            self.holds.pop(key, None)
        if kind is not None and self.now < deadline - GRACE_MS and not self.disturbed(member):
            self.violation(f"refused without a fault: {member}: {kind.name} of {key[0]}@{key[1]}: {error}")

    def _next_result(self, member: str, key: Key) -> tuple[AcknowledgeType | None, float]:
        """Returns the acknowledgement to which a result belongs. There is none if the library has released a record."""
        waiting = self._unconfirmed.get((member, key))
        return waiting.popleft() if waiting else (None, 0.0)

    # --- what the leaders store ---

    def store(self, key: Key, state: int, count: int) -> None:
        """The leader of a partition has stored a change of a record."""
        tp, offset = key
        if state not in TERMINAL:
            return
        self._stored[key] = state
        decisions = self._decisions.get(key, set())
        if not self._is_written(key):
            return  # a marker, or a record of an aborted transaction
        what = f"{tp}@{offset}, delivery {count}"
        if state == ACKNOWLEDGED and AcknowledgeType.ACCEPT not in decisions:
            self.violation(f"accepted without processing: {what}")
        if state != ACKNOWLEDGED and AcknowledgeType.REJECT not in decisions:
            if count < self._delivery_limit:
                self.violation(f"archived without reason: {what}")
            elif not self.seen.get(key) and self._steady:
                self.violation(f"never returned: {what}")
        self.process(tp, offset)
