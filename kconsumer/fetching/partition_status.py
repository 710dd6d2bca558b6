"""Why a partition is or is not being fetched: the row that `partition_states()` shows of it.

Decides which of the things that hold for a partition is told (the first row of `STATUS_RULES` that does), since when it
holds and in which words. Gathers nothing itself and changes nothing: the fetch manager and the engine say what is the
case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kconsumer.fetching.brokers import BackedOff, BrokerFetchState
from kconsumer.fetching.buffer import CompletedFetch, FetchChain
from kconsumer.fetching.memory import Memory
from kconsumer.fetching.request import InFlightFetch
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchState, PartitionState
from kconsumer.types import Node, PartitionCondition, PartitionStatus

SLOW_RESPONSE_MS = 1000.0
"""A fetch that takes so much longer than it may wait at the broker is worth a word."""


class NodeFailure(NamedTuple):
    """A broker whose fetches fail: since when (ms), until when it is left alone, the last error, and how many there
    were."""

    since: float
    until: float
    error: str
    failures: int


@dataclass(slots=True)
class FetchContext:
    """All that bears on the fetching of one partition at `now` (ms).

    `chain`: what is buffered of it, if it still fits the position. `leader`: by metadata, none since
    `leaderless_since`. `target`: the broker to fetch it from. `in_flight`: the fetch in flight that contains it.
    `waits_for_memory`: since when (ms) there has been no room in memory for a fetch from that broker.
    `unreachable`: why no request can be sent to that broker now. `topic_problem`: what metadata says of the topic
    ("topic x does not exist"); `coordinator`: why the group's coordinator does not answer.
    """

    now: float
    state: PartitionState
    memory: Memory
    leader: LeaderAndEpoch
    chain: FetchChain | None = None
    leaderless_since: float = 0.0
    held: BackedOff | None = None
    target: BrokerFetchState | None = None
    in_flight: InFlightFetch | None = None
    waits_for_memory: float | None = None
    node_error: NodeFailure | None = None
    unreachable: str = ""
    topic_problem: str = ""
    coordinator: str = ""
    max_wait_ms: float = 0.0

    @property
    def failed(self) -> CompletedFetch | None:
        """The fetch that is next to be read, if it cannot be."""
        fetch = self.chain.fetches[0] if self.chain is not None and self.chain.fetches else None
        return fetch if fetch is not None and fetch.failure else None

    @property
    def fetchable_since(self) -> float:
        """Since when nothing in the partition itself holds it back."""
        return max(self.state.state_since, self.state.flags_since)

    @property
    def broker(self) -> Node | None:
        """The broker it is to be fetched from."""
        return self.leader.leader if self.target is None else self.target.node

    @property
    def idle_since(self) -> float:
        """Since when it could be asked for, and is not."""
        return max(self.fetchable_since, 0.0 if self.target is None else self.target.responded_at)

    @property
    def blocked_by(self) -> FetchChain | None:
        """Another partition of the broker, fetched as far ahead as allowed, for which the broker is left alone."""
        if self.target is None or not self.target.full:
            return None
        return min((self.target.chains[tp] for tp in self.target.full), key=lambda chain: chain.topic_partition)


# --- what is told, the strongest first --------------------------------------------------------------------


class StatusRule(NamedTuple):
    """One condition: whether it holds, since when (ms), and in words."""

    condition: PartitionCondition
    holds: Callable[[FetchContext], object]
    since: Callable[[FetchContext], float]
    reason: Callable[[FetchContext], str]


def _state_is(wanted: FetchState) -> Callable[[FetchContext], bool]:
    return lambda s: s.state.fetch_state is wanted


def _state_since(s: FetchContext) -> float:
    return s.state.state_since


def _flagged_since(s: FetchContext) -> float:
    return s.state.flags_since


def _with_details(text: str, s: FetchContext, *details: str) -> str:
    """Why the position is not there yet."""
    found = [*details, s.state.last_error or s.topic_problem]
    if not any(found) and s.leader.leader is None:
        found.append("no leader is known")
    found += [s.unreachable, "paused" if s.state.paused else ""]
    return "; ".join([text, *dict.fromkeys(detail for detail in found if detail)])


def _revoking(s: FetchContext) -> str:
    if s.state.unsubscribed:
        topic = s.state.topic_partition.topic
        return f"the subscription does not contain {topic} any more; the group will take the partition away"
    return "the group is taking the partition away"


def _awaiting_callback(s: FetchContext) -> str:
    return "waiting for on_assign to return; it runs inside poll()"


def _initializing(s: FetchContext) -> str:
    return _with_details("no position yet; waiting for the committed offset", s, s.coordinator)


def _resetting(s: FetchContext) -> str:
    return _with_details(f"looking up the {s.state.reset_strategy} offset", s)


def _validating(s: FetchContext) -> str:
    return _with_details("the leader changed; checking that the log was not cut below the position", s)


def _failed_since(s: FetchContext) -> float:
    return s.failed.failed_at if s.failed is not None else s.now


def _failure(s: FetchContext) -> str:
    return s.failed.failure if s.failed is not None else ""


def _paused(s: FetchContext) -> str:
    kept = s.chain.size if s.chain is not None else 0
    return "paused; resume() lets it go on" + (f" with {kept:,} bytes that are kept for it" if kept else "")


def _buffered_since(s: FetchContext) -> float:
    return s.chain.buffered_since if s.chain is not None else s.now


def _buffered(s: FetchContext) -> str:
    target = s.target
    if s.in_flight is not None and not s.unreachable:
        what = "the next fetch is in flight"
    elif target is not None and s.chain is not None and s.chain.topic_partition in target.full:
        what = "it is fetched further once some have been taken"
    elif s.waits_for_memory is not None:
        what = "buffer_memory has no room for the next fetch"
    else:
        what = _backoff(s) if s.held or s.node_error or s.unreachable else "the next fetch follows them"
    return f"fetched records wait for poll(); {what}"


def _sent_at(s: FetchContext) -> float:
    return s.in_flight.sent_at if s.in_flight is not None else s.now


def _in_flight(s: FetchContext) -> str:
    waited_ms = s.now - _sent_at(s)
    text = f"a fetch is in flight to {s.broker}"
    if waited_ms <= s.max_wait_ms + SLOW_RESPONSE_MS:
        return text
    return (
        f"{text}, not answered for {_seconds(waited_ms)} although it may wait there for {_seconds(s.max_wait_ms)} only:"
        " the broker does not answer, or poll() is not called to read the answer"
    )


def _leaderless_since(s: FetchContext) -> float:
    return max(s.fetchable_since, s.leaderless_since)


def _no_leader(s: FetchContext) -> str:
    text = s.topic_problem or "no leader is known; metadata is being asked for again"
    return f"{text}; {s.node_error.error}" if s.node_error is not None else text


def _backoff_since(s: FetchContext) -> float:
    if s.held is not None:
        return s.held.since
    return s.node_error.since if s.node_error is not None else _sent_at(s)


def _backoff(s: FetchContext) -> str:
    """A partition's own error comes first; a connection in trouble is fresher news than the last failed fetch."""
    if s.held is not None:
        return f"{s.held.reason}; asking again in {_seconds(s.held.until - s.now)}"
    if s.unreachable:
        return f"connecting to {s.broker}: {s.unreachable}"
    if s.node_error is None:
        return ""
    again = f"asking again in {_seconds(s.node_error.until - s.now)}" if s.node_error.until > s.now else "asking"
    return f"{s.broker} is left alone after an error: {s.node_error.error}; {again}"


def _in_backoff(s: FetchContext) -> object:
    trouble = s.node_error
    return s.held or (s.target is not None and s.unreachable) or (trouble is not None and trouble.until > s.now)


def _blocked_since(s: FetchContext) -> float:
    chain = s.blocked_by
    return max(s.idle_since, chain.fetches[-1].arrived_at if chain is not None and chain.fetches else 0.0)


def _blocked(s: FetchContext) -> str:
    other = s.blocked_by.topic_partition if s.blocked_by is not None else ""
    return f"{s.broker} is asked again once poll() has taken more of {other}, which is fetched as far ahead as allowed"


def _waits_since(s: FetchContext) -> float:
    return max(s.fetchable_since, s.waits_for_memory or 0.0)


def _buffer_full(s: FetchContext) -> str:
    return f"buffer full: buffer_memory has no room for a fetch ({s.memory.usage()}); poll() makes room"


def _ready(s: FetchContext) -> str:
    return f"nothing is in the way; the next poll() asks {s.broker}"


C = PartitionCondition
STATUS_RULES: tuple[StatusRule, ...] = (
    StatusRule(C.REVOKING, lambda s: s.state.pending_revocation or s.state.unsubscribed, _flagged_since, _revoking),
    StatusRule(C.AWAIT_CALLBACK, lambda s: s.state.awaiting_callback, _flagged_since, _awaiting_callback),
    StatusRule(C.FAILED, lambda s: s.failed, _failed_since, _failure),
    StatusRule(C.INITIALIZING, _state_is(FetchState.INITIALIZING), _state_since, _initializing),
    StatusRule(C.AWAIT_RESET, _state_is(FetchState.AWAIT_RESET), _state_since, _resetting),
    StatusRule(C.AWAIT_VALIDATION, _state_is(FetchState.AWAIT_VALIDATION), _state_since, _validating),
    StatusRule(C.PAUSED, lambda s: s.state.paused, _flagged_since, _paused),
    StatusRule(C.BUFFERED, lambda s: s.chain is not None and s.chain.fetches, _buffered_since, _buffered),
    StatusRule(C.IN_FLIGHT, lambda s: s.in_flight is not None and not s.unreachable, _sent_at, _in_flight),
    StatusRule(C.NO_LEADER, lambda s: s.leader.leader is None, _leaderless_since, _no_leader),
    StatusRule(C.BACKOFF, _in_backoff, _backoff_since, _backoff),
    StatusRule(C.AWAIT_OTHERS, lambda s: s.blocked_by, _blocked_since, _blocked),
    StatusRule(C.BUFFER_FULL, lambda s: s.waits_for_memory is not None, _waits_since, _buffer_full),
    StatusRule(C.READY, lambda s: True, lambda s: s.idle_since, _ready),
)


def explain(situation: FetchContext, *, read_committed: bool = False) -> PartitionStatus:
    """The partition's row."""
    row = next(row for row in STATUS_RULES if row.holds(situation))
    state, chain = situation.state, situation.chain
    return PartitionStatus(
        state=row.condition,
        reason=row.reason(situation),
        since=max(0.0, situation.now - row.since(situation)) / 1000.0,
        position=None if state.position is None else state.position.offset,
        high_watermark=state.high_watermark,
        lag=state.lag(read_committed),
        buffered_bytes=0 if chain is None else chain.size,
    )


def _seconds(ms: float) -> str:
    return f"{max(0.0, ms) / 1000:.1f} s"
