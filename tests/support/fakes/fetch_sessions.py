"""The broker's side of fetch sessions, written from KIP-227: the state it keeps, and its responses."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from kconsumer.schema.fetch import FetchPartition, FetchRequest

MAX_EPOCH = (1 << 31) - 1
NOT_FOUND, INVALID_EPOCH, TOPIC_ID_ERROR = 70, 71, 106

Key = tuple[str | bytes, int]  # topic name or id, and partition


@dataclass
class Session:
    """A fetch session as the broker stores it, with its partitions in the order in which it reads them."""

    by_id: bool
    epoch: int = 1
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)
    reported: dict[Key, int] = field(default_factory=dict)  # the high watermark of the last response


@dataclass
class View:
    """The broker's interpretation of a request: an error, or the partitions to read. The response contains all of them,
    or only changed ones.
    """

    error: int = 0
    session_id: int = 0
    rows: dict[Key, FetchPartition] = field(default_factory=dict)
    session: Session | None = None
    incremental: bool = False


class SessionCache:
    """The fetch sessions of one broker. `slots` is the maximum number; a new session replaces the oldest."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: dict[int, Session] = {}
        self._ids = itertools.count(100)

    def read(self, request: FetchRequest, version: int) -> View:
        """Apply a request to the session, before any log is read."""
        by_id = version > 12
        if request.session_epoch <= 0:
            return self._full(request, by_id)
        session = self.sessions.get(request.session_id)
        if session is None:
            return View(NOT_FOUND)
        if session.by_id != by_id:
            return View(TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            return View(INVALID_EPOCH)
        session.epoch = session.epoch + 1 if session.epoch < MAX_EPOCH else 1
        session.partitions.update(_rows(request, by_id))
        for topic in request.forgotten_topics_data:  # after adding: to add and to forget a partition loses it
            for partition in topic.partitions:
                key = (topic.topic_id if by_id else topic.topic, partition)
                session.partitions.pop(key, None)
                session.reported.pop(key, None)
        return View(0, request.session_id, dict(session.partitions), session, incremental=True)

    def _full(self, request: FetchRequest, by_id: bool) -> View:
        self.sessions.pop(request.session_id, None)
        rows = _rows(request, by_id)
        if request.session_epoch < 0 or not self.slots or not rows:
            return View(0, 0, rows)
        if len(self.sessions) >= self.slots:
            del self.sessions[next(iter(self.sessions))]
        session_id = next(self._ids)
        session = self.sessions[session_id] = Session(by_id, 1, dict(rows))
        return View(0, session_id, rows, session)


def _rows(request: FetchRequest, by_id: bool) -> dict[Key, FetchPartition]:
    return {
        (topic.topic_id if by_id else topic.topic, row.partition): row
        for topic in request.topics
        for row in topic.partitions
    }
