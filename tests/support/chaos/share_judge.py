"""The journal of a share group on real brokers, where the judge does not know what leaders store.

What a leader stores is taken from the confirmations that members receive. In place of the rules about locks: each
record was received, and if its acceptance or rejection was not confirmed, there is a reason. Its last member was
killed, or its acknowledgement was refused (the leader may have stored it before it died), or the limit of deliveries
was reached.
"""

from __future__ import annotations

from kconsumer import AcknowledgeType, TopicPartition
from kconsumer.testing.cluster.share.in_flight import ACKNOWLEDGED, ACQUIRED, ARCHIVED, RecordState
from support.simulation.share_journal import FINAL, Key, ShareJournal


class RemoteShareJournal(ShareJournal):
    """What one share group did, according to its members."""

    def __init__(self, delivery_limit: int, grace_ms: float) -> None:
        super().__init__(delivery_limit, steady=False)
        self._grace_ms = grace_ms
        self._last: dict[Key, str] = {}  # the member that has received a record last
        self._explained: set[Key] = set()  # refused, or delivered as often as possible
        self._killed: set[str] = set()

    def receive(self, member: str, member_id: str, key: Key, count: int, state: RecordState | None) -> None:
        """A poll has returned a record. How long it is locked is not known."""
        self._last[key] = member
        if count >= self._delivery_limit:
            self._explained.add(key)
        super().receive(member, member_id, key, count, state or RecordState(ACQUIRED, count, member_id, self.now))

    def confirm(self, member: str, key: Key) -> None:
        """An acknowledgement has succeeded: the leader has stored it."""
        kind, _ = next(iter(self._unconfirmed.get((member, key), ())), (None, 0.0))
        if kind in FINAL:
            self.store(key, ACKNOWLEDGED if kind is AcknowledgeType.ACCEPT else ARCHIVED, 0)
        super().confirm(member, key)

    def refuse(self, member: str, key: Key, error: str) -> None:
        """An acknowledgement has failed."""
        self._explained.add(key)
        super().refuse(member, key, error)

    def end(self, member: str, *, crashed: bool = True) -> None:
        """A member was killed."""
        self._killed.add(member)
        self.drop_member(member)

    def unprocessed(self) -> dict[TopicPartition, int]:
        """Returns the first record of each partition that was not received, or not settled without a reason."""
        found: dict[TopicPartition, int] = {}
        for tp, offsets in self.appended.items():
            for offset in offsets:
                key = tp, offset
                settled = key in self._confirmed or key in self._explained or self._last.get(key) in self._killed
                if not self.seen.get(key) or not settled:
                    found.setdefault(tp, offset)
        return found
