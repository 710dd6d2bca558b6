"""Fetch sessions (KIP-227): which partitions a request reads, and which of them the response contains.

`FetchSessionCache.open` returns a `FetchContext` for each request. `fetch` reads the partitions in `FetchContext.rows`,
and passes all results to `FetchContext.finish`, which returns the results that the response contains.
"""

from __future__ import annotations

from collections.abc import Callable

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.fetch import FetchPartition, FetchPartitionData, FetchRequest

TOPIC_IDS = 13  # the first version with topic ids in place of names
INITIAL_EPOCH, FINAL_EPOCH, MAX_EPOCH = 0, -1, (1 << 31) - 1
MIN_SESSION_MS = 120_000  # after this time a session may be evicted by a larger one

NameOf = Callable[[bytes], str | None]
Key = tuple[str | bytes, int]  # topic name or id, and partition


class FetchRow:
    """A partition that a request, or its fetch session, contains."""

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
    """Decides which partitions a request reads, and which results its response contains.

    This class serves requests without a session. Its subclasses serve the other requests.
    """

    error: int = Errors.NONE

    def __init__(self, rows: Rows) -> None:
        self.rows = rows  # the partitions to read

    def finish(self, results: Results, now: float) -> tuple[int, int, Results]:
        """Returns the error code and the session id of the response, and the results that the response contains."""
        return self.error, 0, results

    def finish_throttled(self) -> tuple[int, int, Results]:
        """Returns the error code and the session id of the empty response to a throttled client, and no results."""
        return Errors.NONE, 0, {}


class SessionErrorContext(FetchContext):
    """The context of a request whose session does not exist or does not match the request. No partition is read."""

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
        """Returns the error code, the session id and no results, for the empty response to a throttled client.

        The error is INVALID_FETCH_SESSION_EPOCH if a later request has advanced the session, otherwise NONE.
        """
        fits = self._session.epoch == self._expected_epoch
        return Errors.NONE if fits else Errors.INVALID_FETCH_SESSION_EPOCH, self._session.id, {}


class FetchSession:
    """A fetch session: its partitions in reading order, and their offsets that were last sent to the client."""

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
        """Add the partitions in `rows`, or update them if the session has them. Then remove the partitions in
        `forgotten`.
        """
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
        """Set the names of topics whose ids were unknown before, if `name_of` returns their names now."""
        for row in self.rows.values():
            if row.topic is None:
                row.topic = name_of(row.topic_id)

    def update_reported(self, key: Key, result: FetchPartitionData) -> bool:
        """Store the offsets of a result as the last ones that were sent to the client.

        Returns whether the result contains anything new: records, an error, other offsets than before, a diverging
        epoch, or a preferred replica. If there is nothing new, the response omits the result.
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
        """Returns the context of a request. Updates, advances or removes the session of the request.

        `name_of(topic_id)`: returns the name of a topic, or None if the id is unknown.
        """
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
        """Create a session. Returns its id, or 0 if the cache is full and no session may be evicted.

        `reported`: the high watermark and log start offset of each partition in the response.
        """
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
        """Remove a session to make room for a new one with `size` partitions. Returns whether a session was removed.

        If the least recently used session was not used for `MIN_SESSION_MS`, it is removed. If it was used in this
        time, the smallest session that is older than `MIN_SESSION_MS` is removed, but only if it is smaller than the
        new one.
        """
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
    """Returns the session epoch that follows `epoch`: 1 after the maximum, and FINAL_EPOCH after a negative epoch."""
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
    """Returns the keys of the partitions that a request removes from its session."""
    by_id = version >= TOPIC_IDS
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
