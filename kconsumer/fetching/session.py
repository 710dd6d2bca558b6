"""Fetch sessions (KIP-227): the broker stores the partitions of a session, so a request contains only what changed.

Decides which partitions a request must contain, and whether a response may be used. `brokers.py` decides which
partitions are fetched from the broker, and `response_handler.py` handles their data.

A session has an id, assigned by the broker, and a fetch session epoch that grows with each request:

    (0, 0)     there is no session: the next request is full (contains all partitions) and requests a session
    (id, 0)    after an error: the next request is full, ends the old session and requests another one
    (id, n)    the next request is incremental: it contains partitions that were added, changed or removed
    (id, -1)   the last request: it ends the session

A broker that has no room for another session responds with id 0. Then the next request is full, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._core.cycle import RequestedPartition, SessionState, next_epoch
from kconsumer.fetching.buffer import FetchChain
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kconsumer.types import TopicPartition

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = (1 << 31) - 1
LAST_VERSION_WITH_NAMES = 12
MAX_VERSION = 32767

_log = get_logger(__name__)


class SessionRequest(NamedTuple):
    """The fields of a Fetch request that the session decides."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    by_id: bool  # whether all topics of the session have ids

    @property
    def max_version(self) -> int:
        """The highest version of Fetch that can be used. Above version 12, requests contain topic ids, not names."""
        return MAX_VERSION if self.by_id else LAST_VERSION_WITH_NAMES


class FetchSession(SessionState):
    """The fetch session with one broker. One request may be in flight at a time."""

    def __init__(self, broker: int, max_bytes: int = 0) -> None:
        """Create a session that requests at most `max_bytes` of each partition."""
        super().__init__(max_bytes)
        self.broker = broker
        self.session_partitions: set[TopicPartition] = set()  # the partitions of the last response
        self._by_id = True  # whether the session uses topic ids
        self._full = True  # whether the request in flight is a full one
        self._without_id: set[TopicPartition] = set()  # partitions of the session whose topic id is unknown

    # --- requests ----------------------------------------------------------------------------------------

    def limit_partitions(self, max_bytes: int) -> None:
        """Request at most `max_bytes` of each partition. No request may be in flight.

        The broker stores the limit of each partition of a session. So another limit makes the next request a full one.
        """
        if max_bytes != self.max_bytes:
            self.max_bytes = max_bytes
            self.epoch = INITIAL_EPOCH

    def next_request(
        self,
        wanted: Mapping[TopicPartition, FetchChain],
        changed: Iterable[TopicPartition],
        order: Callable[[], Iterable[TopicPartition]],
        topic_id: Callable[[str], bytes | None],
    ) -> SessionRequest:
        """Returns the next request of the session. After it, the session consists of the partitions in `wanted`.

        `changed` must contain every partition that differs from the last request. `order` returns all partitions of the
        consumer in the order for a full request; a broker adds data in this order until its response is full.
        `topic_id` returns the id of a topic, or None.
        """
        if self.epoch == INITIAL_EPOCH:
            return self._full_request(wanted, order, topic_id)
        send: list[tuple[TopicPartition, RequestedPartition]] = []
        forget: list[tuple[TopicPartition, bytes | None]] = []
        for tp in changed:
            chain, before = wanted.get(tp), self.requested.get(tp)
            if chain is None:
                if before is not None:
                    forget.append((tp, before.topic_id))
                    del self.requested[tp]
                    self._without_id.discard(tp)
                continue
            now = self._request_partition(chain, topic_id(tp.topic))
            if now.differs_from(before):
                send.append((tp, now))
            if before is not None and now.topic_id != before.topic_id:
                forget.append((tp, before.topic_id))
                self.topic_names.pop(before.topic_id or b"", None)
            self._store(tp, now)
        if self._by_id == bool(self._without_id):
            # A session uses either topic ids or topic names. Start another one to change that.
            self.epoch = INITIAL_EPOCH
            return self._full_request(wanted, order, topic_id)
        self._full = False
        return SessionRequest(self.id, self.epoch, self._topics(send, grouped=True), _forgotten(forget), self._by_id)

    def _full_request(
        self,
        wanted: Mapping[TopicPartition, FetchChain],
        order: Callable[[], Iterable[TopicPartition]],
        topic_id: Callable[[str], bytes | None],
    ) -> SessionRequest:
        self.requested, self.topic_names = {}, {}
        self._without_id.clear()
        for tp in order():
            chain = wanted.get(tp)
            if chain is not None:
                self._store(tp, self._request_partition(chain, topic_id(tp.topic)))
        self._full = True
        self._by_id = not self._without_id
        return SessionRequest(self.id, INITIAL_EPOCH, self._topics(self.requested.items()), [], self._by_id)

    def _request_partition(self, chain: FetchChain, topic_id: bytes | None) -> RequestedPartition:
        assert chain.next_offset is not None  # a broker with such a chain is not ready
        return RequestedPartition(chain, chain.next_offset, chain.leader, topic_id)

    def _row(self, requested: RequestedPartition) -> FetchPartition:
        return FetchPartition(
            partition=requested.chain.topic_partition.partition,
            current_leader_epoch=requested.leader_epoch,
            fetch_offset=requested.offset,
            partition_max_bytes=self.max_bytes,
        )

    def _topics(
        self, rows: Iterable[tuple[TopicPartition, RequestedPartition]], *, grouped: bool = False
    ) -> list[FetchTopic]:
        """Returns the rows grouped by topic.

        If `grouped` is True, all rows of a topic are combined. If it is False, only adjacent rows of a topic are
        combined, so that the order is kept.
        """
        topics: list[FetchTopic] = []
        of_topic: dict[tuple[str, bytes | None], list[FetchPartition]] = {}
        for tp, requested in rows:
            key = tp.topic, requested.topic_id
            partitions = of_topic.get(key)
            if partitions is None:
                if not grouped:
                    of_topic.clear()
                partitions = of_topic[key] = []
                topics.append(
                    FetchTopic(topic=tp.topic, topic_id=requested.topic_id or ZERO_UUID, partitions=partitions)
                )
            partitions.append(self._row(requested))
        return topics

    def _store(self, tp: TopicPartition, requested: RequestedPartition) -> None:
        self.requested[tp] = requested
        if requested.topic_id is None:
            self._without_id.add(tp)
        else:
            self._without_id.discard(tp)
            self.topic_names[requested.topic_id] = tp.topic

    def close(self) -> FetchRequest | None:
        """End the session. Returns the request that ends it at the broker, or None if there is no session."""
        if not self.id:
            return None
        message = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=self.id, session_epoch=FINAL_EPOCH)
        self.id, self.epoch = 0, INITIAL_EPOCH
        return message

    # --- responses ---------------------------------------------------------------------------------------

    def accept(self, response: FetchResponse, version: int) -> bool:
        """Update the session from a response. Returns False if no data of the response may be used."""
        if response.error_code:
            self._restart(
                f"error {response.error_code}", forget=response.error_code == Errors.FETCH_SESSION_ID_NOT_FOUND
            )
            return False
        self.session_partitions, unexpected = self._partitions_of(response, version)
        if self._full:
            return self._accept_full(response, len(self.session_partitions), unexpected)
        if unexpected:
            self._restart(f"partitions that are not in the session: {unexpected[:5]}")
            return False
        if not response.session_id:
            self._restart("the broker closed the session", forget=True)
            return True
        self.epoch = next_epoch(self.epoch)
        return True

    def _accept_full(self, response: FetchResponse, found: int, unexpected: list[TopicPartition]) -> bool:
        if unexpected or found != len(self.requested):
            # While a broker throttles this client, it responds to a full request without any partitions. This is not
            # worth a warning.
            if found or unexpected or not response.throttle_time_ms:
                _log.warning(
                    "broker %d responded with %d of %d requested partitions, and with others: %s",
                    self.broker,
                    found,
                    len(self.requested),
                    unexpected[:5],
                )
            self.id, self.epoch = 0, INITIAL_EPOCH
            return False
        self.id = response.session_id
        self.epoch = 1 if response.session_id else INITIAL_EPOCH
        return True

    def _partitions_of(self, response: FetchResponse, version: int) -> tuple[set[TopicPartition], list[TopicPartition]]:
        """Returns the partitions of a response in two parts: those that were requested, and those that were not."""
        by_id = version > LAST_VERSION_WITH_NAMES
        found: set[TopicPartition] = set()
        unexpected: list[TopicPartition] = []
        for topic in response.responses:
            name = self.topic_names.get(topic.topic_id) if by_id else topic.topic
            for data in topic.partitions:
                tp = TopicPartition(name or topic.topic_id.hex(), data.partition_index)
                if tp in self.requested:
                    found.add(tp)
                else:
                    unexpected.append(tp)
        return found, unexpected

    def on_failure(self) -> None:
        """Restart the session after a request without a response. The broker may or may not have processed it."""
        self._restart("no response")

    def _restart(self, reason: str, *, forget: bool = False) -> None:
        """Make the next request a full one.

        `forget` must be True if the broker has dropped the session already. If it is False, the full request also ends
        the old session.
        """
        if self.id:
            _log.info("restarting fetch session %d with broker %d: %s", self.id, self.broker, reason)
        self.epoch = INITIAL_EPOCH
        if forget:
            self.id = 0

    def __repr__(self) -> str:
        return (
            f"<FetchSession {self.id}, epoch {self.epoch}, with broker {self.broker}: {len(self.requested)} partitions>"
        )


def _forgotten(partitions: Iterable[tuple[TopicPartition, bytes | None]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes | None], list[int]] = {}
    for tp, topic_id in partitions:
        topics.setdefault((tp.topic, topic_id), []).append(tp.partition)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id or ZERO_UUID, partitions=numbers)
        for (topic, topic_id), numbers in topics.items()
    ]
