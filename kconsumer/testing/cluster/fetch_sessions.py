"""Fetch sessions (KIP-227). Decides which partitions a request reads, and which of them the response contains.

`FetchSessionCache.open` gives the context of a request. Its `rows` are the partitions to read. `finish` receives all of
their results, and returns those that the response contains. Reading is decided in `fetch`.
"""

from __future__ import annotations

from collections.abc import Callable

from kconsumer.error_codes import Errors
from kconsumer.schema import ZERO_UUID
from kconsumer.schema.fetch import FetchPartition, FetchPartitionData, FetchRequest

TOPIC_IDS = 13  # the first version with topic ids in place of names
INITIAL_EPOCH, FINAL_EPOCH, MAX_EPOCH = 0, -1, (1 << 31) - 1
MIN_SESSION_MS = 120_000  # after this time a session may be evicted by a larger one

NameOf = Callable[[bytes], str | None]
Key = tuple[str | bytes, int]  # topic name or id, and partition


class FetchRow:
    """A partition that a request, or its session, wants to read."""

    __slots__ = ("asked", "index", "topic", "topic_id")

    def __init__(self, topic_id: bytes, topic: str | None, asked: FetchPartition) -> None:
        self.topic_id = topic_id  # ZERO_UUID in versions with names
        self.topic = topic  # None: the topic id is unknown
        self.index = asked.partition
        self.asked = asked

    @property
    def key(self) -> Key:
        """The identity of the partition in its session."""
        return (self.topic or "") if self.topic_id == ZERO_UUID else self.topic_id, self.index


Rows = dict[Key, FetchRow]
Results = dict[Key, FetchPartitionData]


class FetchContext:
    """The context of a request without a session."""

    error: int = Errors.NONE

    def __init__(self, rows: Rows) -> None:
        self.rows = rows  # the partitions to read

    def finish(self, results: Results, now: float) -> tuple[int, int, Results]:
        """Returns the error and the session id of the response, and the results that it contains."""
        return self.error, 0, results

    def finish_throttled(self) -> tuple[int, int, Results]:
        """Returns the error and the session id of the empty response to a throttled client, and no results."""
        return Errors.NONE, 0, {}


class SessionErrorContext(FetchContext):
    """The context of a request whose session has another epoch, or does not exist."""

    def __init__(self, error: int) -> None:
        super().__init__({})
        self.error = error


class FullContext(FetchContext):
    """The context of a request that begins a session."""

    def __init__(self, rows: Rows, cache: FetchSessionCache, by_id: bool) -> None:
        super().__init__(rows)
        self._cache, self._by_id = cache, by_id

    def finish(self, results: Results, now: float) -> tuple[int, int, Results]:
        """Create the session, unless the cache is full. Returns the same values as `FetchContext.finish`."""
        rows = {key: self.rows[key] for key in results}
        reported = {key: (result.high_watermark, result.log_start_offset) for key, result in results.items()}
        return Errors.NONE, self._cache.create(rows, reported, self._by_id, now), results


class IncrementalContext(FetchContext):
    """The context of a request in a session. The response contains only partitions with changes."""

    def __init__(self, session: FetchSession, request_epoch: int) -> None:
        super().__init__(dict(session.rows))
        self._session = session
        self._expected_epoch = next_epoch(request_epoch)

    def finish(self, results: Results, now: float) -> tuple[int, int, Results]:
        """Returns the error and the session id of the response, and the results that differ from the last response.

        Moves partitions with records to the end of the session. If a later request has advanced the session meanwhile,
        the error is INVALID_FETCH_SESSION_EPOCH, and there are no results.
        """
        session = self._session
        if session.epoch != self._expected_epoch:
            return Errors.INVALID_FETCH_SESSION_EPOCH, session.id, {}
        changed = {key: result for key, result in results.items() if session.update_reported(key, result)}
        for key, result in changed.items():
            if result.records:
                session.move_to_end(key)
        return Errors.NONE, session.id, changed

    def finish_throttled(self) -> tuple[int, int, Results]:
        """Returns the same values as `FetchContext.finish_throttled`."""
        fits = self._session.epoch == self._expected_epoch
        return Errors.NONE if fits else Errors.INVALID_FETCH_SESSION_EPOCH, self._session.id, {}


class FetchSession:
    """A session: its partitions in the order in which they are read, and the state of each that was sent last."""

    def __init__(
        self, session_id: int, rows: Rows, reported: dict[Key, tuple[int, int]], by_id: bool, now: float
    ) -> None:
        self.id = session_id
        self.rows = rows
        self.by_id = by_id
        self.epoch = next_epoch(INITIAL_EPOCH)  # of the next request
        self.created = self.last_used = now
        self._reported = reported  # high watermark and log start offset of the last response

    def update(self, rows: Rows, forgotten: list[Key]) -> None:
        """Add and change partitions, then remove the forgotten ones."""
        for key, row in rows.items():
            known = self.rows.get(key)
            if known is None:
                self.rows[key] = row
                self._reported[key] = (-1, -1)
            else:
                known.asked = row.asked
        for key in forgotten:
            self.rows.pop(key, None)
            self._reported.pop(key, None)

    def resolve_names(self, name_of: NameOf) -> None:
        """Set the names of topics whose ids were unknown before."""
        for row in self.rows.values():
            if row.topic is None:
                row.topic = name_of(row.topic_id)

    def update_reported(self, key: Key, result: FetchPartitionData) -> bool:
        """Store the offsets of a result as those that the client knows.

        Returns whether the result contains anything new. Otherwise the response leaves it out.
        """
        offsets = (result.high_watermark, result.log_start_offset)
        changed = (
            bool(result.records)
            or offsets != self._reported[key]
            or result.preferred_read_replica >= 0
            or result.error_code != Errors.NONE
            or result.diverging_epoch is not None
        )
        failed = result.error_code != Errors.NONE
        self._reported[key] = (-1, offsets[1]) if failed else offsets
        return changed

    def move_to_end(self, key: Key) -> None:
        """Move a partition to the end, so that the next request reads it after all others."""
        self.rows[key] = self.rows.pop(key)


class FetchSessionCache:
    """The fetch sessions of one broker."""

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self.slots = slots  # the maximum number of sessions
        self.sessions: dict[int, FetchSession] = {}  # in the order of their last use
        self._new_id = new_id

    def open(self, request: FetchRequest, version: int, name_of: NameOf, now: float) -> FetchContext:
        """Returns the context of a request. `name_of` returns the name of a topic by its id."""
        rows = {row.key: row for row in _rows(request, version, name_of)}
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.sessions.pop(request.session_id, None)
            by_id = version >= TOPIC_IDS
            return FetchContext(rows) if request.session_epoch == FINAL_EPOCH else FullContext(rows, self, by_id)
        session = self.sessions.get(request.session_id)
        if session is None:
            return SessionErrorContext(Errors.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return SessionErrorContext(Errors.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (version >= TOPIC_IDS):
            return SessionErrorContext(Errors.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(rows, _forgotten(request, version))
        if not session.rows:
            del self.sessions[session.id]
            return FetchContext(rows)
        self._touch(session, now)
        session.epoch = next_epoch(session.epoch)
        session.resolve_names(name_of)
        return IncrementalContext(session, request.session_epoch)

    def create(self, rows: Rows, reported: dict[Key, tuple[int, int]], by_id: bool, now: float) -> int:
        """Returns the id of a new session, or 0 if the cache is full and no session may be evicted."""
        if len(self.sessions) >= self.slots and not self._evict(len(rows), now):
            return 0
        session_id = 0
        while session_id == 0 or session_id in self.sessions:
            session_id = self._new_id()
        self.sessions[session_id] = FetchSession(session_id, rows, reported, by_id, now)
        return session_id

    def clear(self) -> None:
        """Remove all sessions, because the broker stopped."""
        self.sessions.clear()

    def _touch(self, session: FetchSession, now: float) -> None:
        session.last_used = now
        self.sessions[session.id] = self.sessions.pop(session.id)

    def _evict(self, size: int, now: float) -> bool:
        """Remove a session that was not used for a long time, or an old one that is not larger than the new one."""
        oldest = next(iter(self.sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used <= MIN_SESSION_MS:
            old = [session for session in self.sessions.values() if now - session.created > MIN_SESSION_MS]
            oldest = min(old, key=lambda session: (len(session.rows), session.id), default=None)
            if oldest is None or (size, 0) < (len(oldest.rows), oldest.id):
                return False
        del self.sessions[oldest.id]
        return True


def next_epoch(epoch: int) -> int:
    """Returns the session epoch of the next request."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


def _rows(request: FetchRequest, version: int, name_of: NameOf) -> list[FetchRow]:
    """Returns the partitions that a request names."""
    by_id = version >= TOPIC_IDS
    return [
        FetchRow(topic.topic_id, name_of(topic.topic_id), asked) if by_id else FetchRow(ZERO_UUID, topic.topic, asked)
        for topic in request.topics
        for asked in topic.partitions
    ]


def _forgotten(request: FetchRequest, version: int) -> list[Key]:
    """Returns the partitions that a request removes from its session."""
    by_id = version >= TOPIC_IDS
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
