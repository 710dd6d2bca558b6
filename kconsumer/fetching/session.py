"""Fetch sessions (KIP-227): what one broker remembers of our requests, so that each names only what changed.

Decides what a request must say for the broker to know what is wanted, and whether a response may be believed. It
does not decide which partitions are wanted (`targets.py`) nor what their data means (`intake.py`).

A session has an id, given by the broker, and an epoch that grows with each request:

    (0, 0)     no session: the next request is full and asks for one
    (id, 0)    something went wrong: the next request is full, ends the old session and asks for a new one
    (id, n)    the next request is incremental: partitions added and changed, and those to forget
    (id, -1)   the last request: end the session

A broker without room for sessions answers id 0; then every request is full.
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
    """The epoch after this one; 0 means something else, so it is left out when the epochs wrap around."""
    return epoch + 1 if epoch < MAX_EPOCH else 1


class RequestedPartition(NamedTuple):
    """What the broker was last asked of one partition."""

    chain: FetchChain
    row: FetchPartition
    leader: LeaderAndEpoch
    topic_id: bytes | None

    @property
    def offset(self) -> int:
        """The offset asked for."""
        return self.row.fetch_offset


class SessionRequest(NamedTuple):
    """The session's part of a request. `by_id`: whether all its topics have ids; without, only versions up to 12 may
    be spoken."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    by_id: bool

    @property
    def max_version(self) -> int:
        """The highest version that can carry the request."""
        return MAX_VERSION if self.by_id else LAST_VERSION_WITH_NAMES


class FetchSession:
    """The session with one broker. `requested` is what the broker knows once it has read the last request, `names` the
    topic ids in it, by which the response is read, and `session_partitions` the partitions that the last response
    names. One request may be in flight at a time."""

    def __init__(self, broker: int, max_bytes: int) -> None:
        """`max_bytes`: how many to ask of each partition."""
        self.broker = broker
        self.id = 0
        self.epoch = INITIAL_EPOCH
        self.requested: dict[TopicPartition, RequestedPartition] = {}
        self.names: dict[bytes, str] = {}
        self.session_partitions: set[TopicPartition] = set()
        self._max_bytes = max_bytes
        self._by_id = True
        self._full = True  # the request under way
        self._without_id: set[TopicPartition] = set()

    # --- requests ----------------------------------------------------------------------------------------

    def next_request(
        self,
        wanted: Mapping[TopicPartition, FetchChain],
        changed: Iterable[TopicPartition],
        order: Callable[[], Iterable[TopicPartition]],
        topic_id: Callable[[str], bytes | None],
    ) -> SessionRequest:
        """What to send so that the broker knows `wanted`. Only `changed` may differ from the last request. `order`:
        all partitions as they are to be listed in a full request; a broker fills a response from the front."""
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
                self.names.pop(before.topic_id or b"", None)
            self._note(tp, now)
        if self._by_id == bool(self._without_id):
            # Within a session topics go by id or by name, not both: start another one.
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
        before, self.requested, self.names = self.requested, {}, {}
        self._without_id.clear()
        for tp in order():
            chain = wanted.get(tp)
            if chain is not None:
                self._note(tp, self._request_partition(chain, before.get(tp), topic_id(tp.topic)))
        self._full = True
        self._by_id = not self._without_id
        return SessionRequest(self.id, INITIAL_EPOCH, _topics(self.requested.items()), [], self._by_id)

    def _request_partition(
        self, chain: FetchChain, before: RequestedPartition | None, topic_id: bytes | None
    ) -> RequestedPartition:
        """What to ask of a partition: the last row if it still fits. Rows are never changed, for an earlier request
        with it may still wait to be sent."""
        offset = chain.next_offset
        assert offset is not None  # brokers with such chains are not asked
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

    def _note(self, tp: TopicPartition, asked: RequestedPartition) -> None:
        self.requested[tp] = asked
        if asked.topic_id is None:
            self._without_id.add(tp)
        else:
            self._without_id.discard(tp)
            self.names[asked.topic_id] = tp.topic

    def close(self) -> FetchRequest | None:
        """The request that ends the session; None if there is none."""
        if not self.id:
            return None
        message = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=self.id, session_epoch=FINAL_EPOCH)
        self.id, self.epoch = 0, INITIAL_EPOCH
        return message

    # --- responses ---------------------------------------------------------------------------------------

    def accept(self, response: FetchResponse, version: int) -> bool:
        """Take note of a response. False if nothing in it may be used."""
        if response.error_code:
            self._restart(
                f"error {response.error_code}", forget=response.error_code == Errors.FETCH_SESSION_ID_NOT_FOUND
            )
            return False
        self.session_partitions, strangers = self._partitions_of(response, version)
        if self._full:
            return self._accept_full(response, len(self.session_partitions), strangers)
        if strangers:
            self._restart(f"partitions that are not in the session: {strangers[:5]}")
            return False
        if not response.session_id:
            self._restart("the broker closed the session", forget=True)
            return True
        self.epoch = next_epoch(self.epoch)
        return True

    def _accept_full(self, response: FetchResponse, found: int, strangers: list[TopicPartition]) -> bool:
        if strangers or found != len(self.requested):
            # A broker that throttles us answers a full request without any partition.
            if found or strangers or not response.throttle_time_ms:
                _log.warning(
                    "broker %d answered for %d of %d partitions, and for others: %s",
                    self.broker,
                    found,
                    len(self.requested),
                    strangers[:5],
                )
            self.id, self.epoch = 0, INITIAL_EPOCH
            return False
        self.id = response.session_id
        self.epoch = 1 if response.session_id else INITIAL_EPOCH
        return True

    def _partitions_of(self, response: FetchResponse, version: int) -> tuple[set[TopicPartition], list[TopicPartition]]:
        """The partitions of a response: ours, and those that are not."""
        by_id = version > LAST_VERSION_WITH_NAMES
        found: set[TopicPartition] = set()
        strangers: list[TopicPartition] = []
        for topic in response.responses:
            name = self.names.get(topic.topic_id) if by_id else topic.topic
            for data in topic.partitions:
                tp = TopicPartition(name or topic.topic_id.hex(), data.partition_index)
                if tp in self.requested:
                    found.add(tp)
                else:
                    strangers.append(tp)
        return found, strangers

    def failed(self) -> None:
        """The request was lost: nobody knows whether the broker read it."""
        self._restart("no answer")

    def _restart(self, reason: str, *, forget: bool = False) -> None:
        """Make the next request a full one. `forget`: the session is gone; else that request ends it, too."""
        if self.id:
            _log.info("fetch session %d with broker %d starts again: %s", self.id, self.broker, reason)
        self.epoch = INITIAL_EPOCH
        if forget:
            self.id = 0

    def __repr__(self) -> str:
        return (
            f"<FetchSession {self.id}, epoch {self.epoch}, with broker {self.broker}: {len(self.requested)} partitions>"
        )


def _topics(rows: Iterable[tuple[TopicPartition, RequestedPartition]], *, grouped: bool = False) -> list[FetchTopic]:
    """Rows by topic: neighbours of one topic together, so that the order is kept, or `grouped`: one entry each."""
    topics: list[FetchTopic] = []
    of_topic: dict[tuple[str, bytes | None], list[FetchPartition]] = {}
    for tp, asked in rows:
        key = tp.topic, asked.topic_id
        partitions = of_topic.get(key)
        if partitions is None:
            if not grouped:
                of_topic.clear()
            partitions = of_topic[key] = []
            topics.append(FetchTopic(topic=tp.topic, topic_id=asked.topic_id or ZERO_UUID, partitions=partitions))
        partitions.append(asked.row)
    return topics


def _forgotten(partitions: Iterable[tuple[TopicPartition, bytes | None]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes | None], list[int]] = {}
    for tp, topic_id in partitions:
        topics.setdefault((tp.topic, topic_id), []).append(tp.partition)
    return [
        ForgottenTopic(topic=topic, topic_id=topic_id or ZERO_UUID, partitions=numbers)
        for (topic, topic_id), numbers in topics.items()
    ]
