"""Fetch sessions (KIP-227): partitions that a broker remembers, so that each request names only what changed.

Decides what a request must name for the broker to know the wanted partitions, and whether a response may be used. It
does not decide which partitions are wanted (`brokers.py`) nor what their data means (`response_handler.py`).

A session has an id, assigned by the broker, and a fetch session epoch that grows with each request:

    (0, 0)     no session: the next request is full and asks for a session
    (id, 0)    after an error: the next request is full, ends the old session and asks for another one
    (id, n)    the next request is incremental: it names partitions that were added or changed, and those to forget
    (id, -1)   the last request: it ends the session

A broker without room for sessions responds with id 0; then every request is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.fetching.buffer import FetchChain
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.types import TopicPartition

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = (1 << 31) - 1
LAST_VERSION_WITH_NAMES = 12
MAX_VERSION = 32767

_log = get_logger(__name__)


def next_epoch(epoch: int) -> int:
    """Returns the fetch session epoch after this one. 0 has another meaning and is skipped when the epochs wrap
    around."""
    return epoch + 1 if epoch < MAX_EPOCH else 1


class RequestedPartition(NamedTuple):
    """What the last request that named a partition requested of it."""

    chain: FetchChain
    row: FetchPartition
    leader: LeaderAndEpoch
    topic_id: bytes | None

    @property
    def offset(self) -> int:
        """The requested offset."""
        return self.row.fetch_offset


class SessionRequest(NamedTuple):
    """The session's part of a request."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    by_id: bool  # whether all its topics have ids

    @property
    def max_version(self) -> int:
        """The highest version that can carry the request: above 12, topics are named by id only."""
        return MAX_VERSION if self.by_id else LAST_VERSION_WITH_NAMES


class FetchSession:
    """The session with one broker. One request may be in flight at a time."""

    def __init__(self, broker: int, max_bytes: int) -> None:
        """`max_bytes`: how many bytes to request of each partition."""
        self.broker = broker
        self.id = 0
        self.epoch = INITIAL_EPOCH
        self.requested: dict[
            TopicPartition, RequestedPartition
        ] = {}  # all that the broker knows after the last request
        self.topic_names: dict[bytes, str] = {}  # by the topic ids of the last request; the response has ids only
        self.session_partitions: set[TopicPartition] = set()  # the partitions of the last response
        self._max_bytes = max_bytes
        self._by_id = True
        self._full = True  # whether the request in flight is a full one
        self._without_id: set[TopicPartition] = set()

    # --- requests ----------------------------------------------------------------------------------------

    def next_request(
        self,
        wanted: Mapping[TopicPartition, FetchChain],
        changed: Iterable[TopicPartition],
        order: Callable[[], Iterable[TopicPartition]],
        topic_id: Callable[[str], bytes | None],
    ) -> SessionRequest:
        """Returns the next request of the session, after which the broker knows `wanted`.

        Only the partitions in `changed` may differ from the last request. `order` returns all partitions in the order
        of a full request; a broker fills a response from the front.
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
            now = self._request_partition(chain, before, topic_id(tp.topic))
            if before is None or now.row is not before.row or now.topic_id != before.topic_id:
                send.append((tp, now))
            if before is not None and now.topic_id != before.topic_id:
                forget.append((tp, before.topic_id))
                self.topic_names.pop(before.topic_id or b"", None)
            self._store(tp, now)
        if self._by_id == bool(self._without_id):
            # Within a session topics are named by id or by name, not both: start another one.
            self.epoch = INITIAL_EPOCH
            return self._full_request(wanted, order, topic_id)
        self._full = False
        return SessionRequest(self.id, self.epoch, _topics(send, grouped=True), _forgotten(forget), self._by_id)

    def _full_request(
        self,
        wanted: Mapping[TopicPartition, FetchChain],
        order: Callable[[], Iterable[TopicPartition]],
        topic_id: Callable[[str], bytes | None],
    ) -> SessionRequest:
        before, self.requested, self.topic_names = self.requested, {}, {}
        self._without_id.clear()
        for tp in order():
            chain = wanted.get(tp)
            if chain is not None:
                self._store(tp, self._request_partition(chain, before.get(tp), topic_id(tp.topic)))
        self._full = True
        self._by_id = not self._without_id
        return SessionRequest(self.id, INITIAL_EPOCH, _topics(self.requested.items()), [], self._by_id)

    def _request_partition(
        self, chain: FetchChain, before: RequestedPartition | None, topic_id: bytes | None
    ) -> RequestedPartition:
        """Returns what to request of a partition, with the row of the last request if it still fits. Rows are never
        changed, because an earlier request that contains one may not be sent yet."""
        offset = chain.next_offset
        assert offset is not None  # a broker with such a chain is not ready
        epoch = -1 if chain.leader.epoch is None else chain.leader.epoch
        row = None if before is None else before.row
        if row is None or row.fetch_offset != offset or row.current_leader_epoch != epoch:
            row = FetchPartition(
                partition=chain.topic_partition.partition,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                partition_max_bytes=self._max_bytes,
            )
        return RequestedPartition(chain, row, chain.leader, topic_id)

    def _store(self, tp: TopicPartition, requested: RequestedPartition) -> None:
        """Remember what is being requested of a partition."""
        self.requested[tp] = requested
        if requested.topic_id is None:
            self._without_id.add(tp)
        else:
            self._without_id.discard(tp)
            self.topic_names[requested.topic_id] = tp.topic

    def close(self) -> FetchRequest | None:
        """Returns the request that ends the session; None if there is none."""
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
            # A broker that throttles this client responds to a full request without any partition.
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
        """Returns the partitions of a response: those that were requested, and those that were not."""
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
        """Restart the session after a request without a response, which the broker may or may not have processed."""
        self._restart("no response")

    def _restart(self, reason: str, *, forget: bool = False) -> None:
        """Make the next request a full one. `forget`: the broker has dropped the session; else that request ends it,
        too."""
        if self.id:
            _log.info("restarting fetch session %d with broker %d: %s", self.id, self.broker, reason)
        self.epoch = INITIAL_EPOCH
        if forget:
            self.id = 0

    def __repr__(self) -> str:
        return (
            f"<FetchSession {self.id}, epoch {self.epoch}, with broker {self.broker}: {len(self.requested)} partitions>"
        )


def _topics(rows: Iterable[tuple[TopicPartition, RequestedPartition]], *, grouped: bool = False) -> list[FetchTopic]:
    """Returns the rows by topic: adjacent rows of one topic together, which keeps the order, or with `grouped` one
    entry per topic."""
    topics: list[FetchTopic] = []
    of_topic: dict[tuple[str, bytes | None], list[FetchPartition]] = {}
    for tp, requested in rows:
        key = tp.topic, requested.topic_id
        partitions = of_topic.get(key)
        if partitions is None:
            if not grouped:
                of_topic.clear()
            partitions = of_topic[key] = []
            topics.append(FetchTopic(topic=tp.topic, topic_id=requested.topic_id or ZERO_UUID, partitions=partitions))
        partitions.append(requested.row)
    return topics


def _forgotten(partitions: Iterable[tuple[TopicPartition, bytes | None]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes | None], list[int]] = {}
    for tp, topic_id in partitions:
        topics.setdefault((tp.topic, topic_id), []).append(tp.partition)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id or ZERO_UUID, partitions=numbers)
        for (topic, topic_id), numbers in topics.items()
    ]
