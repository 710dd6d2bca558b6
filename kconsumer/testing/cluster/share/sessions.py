"""Share sessions: which partitions a ShareFetch reads, and which of them the response contains.

A broker has one session for each member of each group. It ends with the connection that opened it.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, next_epoch
from kconsumer.testing.cluster.requests import GroupError
from kconsumer.testing.cluster.share_states import TopicIdPartition

SessionKey = tuple[str, str]  # group id and member id


class ShareSession:
    """A share session: its epoch and its partitions."""

    def __init__(self, key: SessionKey, connection: Connection, partitions: list[TopicIdPartition]) -> None:
        self.key = key
        self.connection = connection  # which opened it
        self.epoch = next_epoch(INITIAL_EPOCH)  # of the next request
        #: Whether the next response contains the partition even if there is nothing to report.
        self.partitions = dict.fromkeys(partitions, False)

    def update(self, added: list[TopicIdPartition], forgotten: list[TopicIdPartition]) -> None:
        """Add and remove partitions."""
        for key in added:
            self.partitions.setdefault(key, True)
        for key in forgotten:
            self.partitions.pop(key, None)

    def read_order(self, epoch: int) -> list[TopicIdPartition]:
        """Returns the partitions in the order in which the request with this epoch reads them.

        Each request begins at the next one, so that a partition with many records does not delay the others.
        """
        partitions = list(self.partitions)
        at = epoch % max(1, len(partitions))
        return partitions[at:] + partitions[:at]

    def must_report(self, key: TopicIdPartition, *, changed: bool, failed: bool) -> bool:
        """Returns whether a response contains a partition.

        `changed`: whether it has records. It is the last one in turn then. `failed`: whether it has an error. It is in
        the next response, too, then.
        """
        due = self.partitions.get(key, True)
        if key in self.partitions:
            if changed:
                del self.partitions[key]
            self.partitions[key] = failed
        return due or changed or failed


class ShareSessionCache:
    """The share sessions of one broker."""

    def __init__(self, slots: int) -> None:
        self.slots = slots  # the maximum number of sessions
        self.sessions: dict[SessionKey, ShareSession] = {}

    def open(self, key: SessionKey, connection: Connection, partitions: list[TopicIdPartition]) -> ShareSession:
        """Returns a new session, in place of one that the member has.

        Raises GroupError with SHARE_SESSION_LIMIT_REACHED if there are too many.
        """
        self.sessions.pop(key, None)
        if len(self.sessions) >= self.slots:
            raise GroupError(Errors.SHARE_SESSION_LIMIT_REACHED)
        session = self.sessions[key] = ShareSession(key, connection, partitions)
        return session

    def advance(self, key: SessionKey, epoch: int) -> ShareSession:
        """Returns the session of a member, and increases its epoch unless the request closes it.

        Raises GroupError if there is none, or if it has another epoch.
        """
        session = self.sessions.get(key)
        if session is None:
            raise GroupError(Errors.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if session.epoch != epoch:
                raise GroupError(Errors.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = next_epoch(epoch)
        return session

    def of_connection(self, connection: Connection) -> list[ShareSession]:
        return [session for session in self.sessions.values() if session.connection is connection]

    def clear(self) -> None:
        """Remove all sessions, because the broker stopped."""
        self.sessions.clear()
