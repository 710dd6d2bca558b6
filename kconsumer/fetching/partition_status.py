"""Explains why a partition is or is not being fetched. `partition_states()` shows the explanation.

Several conditions may hold for a partition. The first rule in `STATUS_RULES` whose condition holds is shown. The fetch
manager and the engine collect what the rules need in a `FetchContext`. The rules change no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kconsumer._core.cycle import BrokerFetchState, InFlightFetch, Memory
from kconsumer.fetching.brokers import BackedOff
from kconsumer.fetching.buffer import CompletedFetch, FetchChain
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchState, PartitionState
from kconsumer.types import Node, PartitionCondition, PartitionStatus

SLOW_RESPONSE_MS = 1000.0
"""A fetch is reported as slow if it takes this much longer (ms) than the broker may delay its response."""


class NodeFailure(NamedTuple):
    """The failures of a broker whose last fetch failed."""

    since: float  # when the first of these fetches failed (ms)
    until: float  # when the backoff ends (ms)
    error: str  # the last error
    failures: int  # how many fetches failed in a row


class FetchContext(NamedTuple):
    """The state of one partition, its broker and its buffered data at `now` (ms), for the rules to check."""

    now: float
    state: PartitionState
    memory: Memory
    leader: LeaderAndEpoch  # the leader in metadata
    chain: FetchChain | None = None  # the buffered fetches, if they continue at the position
    leaderless_since: float = 0.0  # when the partition lost its leader (ms); 0: it has one
    backed_off: BackedOff | None = None
    broker: BrokerFetchState | None = None  # the broker to fetch from
    in_flight: InFlightFetch | None = None  # the fetch in flight that requests the partition
    waits_for_memory: float | None = None  # when memory ran out of room for a fetch from the broker (ms)
    node_error: NodeFailure | None = None
    unreachable: str = ""  # why no request can be sent to the broker now
    topic_problem: str = ""  # what is wrong with the topic, such as "topic x does not exist"
    coordinator: str = ""  # why the group's coordinator does not respond
    max_wait_ms: float = 0.0  # how long a fetch may wait at the broker
    read_committed: bool = False
    throttled_ms: float = 0.0  # for how long the broker to fetch from throttles this client, because of a quota

    @property
    def failed(self) -> CompletedFetch | None:
        """The fetch that is next to be read, if reading it failed."""
        fetch = self.chain.fetches[0] if self.chain is not None and self.chain.fetches else None
        return fetch if fetch is not None and fetch.failure else None

    @property
    def fetchable_since(self) -> float:
        """The time (ms) since which the partition's state and flags have allowed fetching."""
        return max(self.state.state_since, self.state.flags_since)

    @property
    def node(self) -> Node | None:
        """The broker to fetch from. If there is none, the leader in metadata, or None."""
        return self.leader.leader if self.broker is None else self.broker.node

    @property
    def idle_since(self) -> float:
        """The time (ms) since which the partition could have been requested, but was not."""
        return max(self.fetchable_since, 0.0 if self.broker is None else self.broker.responded_at)

    @property
    def blocked_by(self) -> FetchChain | None:
        """The chain of a partition of the same broker that has no room in the buffer, or None.

        The broker is sent no fetch until that partition has room.
        """
        if self.broker is None or not self.broker.full:
            return None
        full: list[FetchChain] = [self.broker.chains[tp] for tp in self.broker.full]
        return min(full, key=lambda chain: chain.topic_partition)


# --- reasons ----------------------------------------------------------------------------------------------


class StatusRule(NamedTuple):
    """One condition of a partition, with the functions that explain it."""

    condition: PartitionCondition
    holds: Callable[[FetchContext], object]  # returns a true value if the condition holds
    since: Callable[[FetchContext], float]  # returns the time from which on the condition has held (ms)
    reason: Callable[[FetchContext], str]  # returns the text to show


def _state_is(wanted: FetchState) -> Callable[[FetchContext], bool]:
    return lambda ctx: ctx.state.fetch_state is wanted


def _state_since(ctx: FetchContext) -> float:
    return ctx.state.state_since


def _flags_since(ctx: FetchContext) -> float:
    return ctx.state.flags_since


def _with_details(text: str, ctx: FetchContext, *details: str) -> str:
    """Returns the text, followed by `details` and the known reasons why the partition has no position yet."""
    parts = [*details, str(ctx.state.last_error) or ctx.topic_problem]
    if not any(parts) and ctx.leader.leader is None:
        parts.append("no leader is known")
    parts += [ctx.unreachable, "paused" if ctx.state.paused else ""]
    return "; ".join([text, *dict.fromkeys(detail for detail in parts if detail)])


def _revoking(ctx: FetchContext) -> str:
    if ctx.state.unsubscribed:
        topic = ctx.state.topic_partition.topic
        return f"the subscription does not contain {topic} any more; the group will revoke the partition"
    return "the group is revoking the partition"


def _awaiting_callback(ctx: FetchContext) -> str:
    return "waiting for on_assign to return; it runs inside poll()"


def _initializing(ctx: FetchContext) -> str:
    return _with_details("no position yet; waiting for the committed offset", ctx, ctx.coordinator)


def _resetting(ctx: FetchContext) -> str:
    return _with_details(f"looking up the {ctx.state.reset_strategy} offset", ctx)


def _validating(ctx: FetchContext) -> str:
    return _with_details("the leader changed; validating that its log contains the position", ctx)


def _failed_since(ctx: FetchContext) -> float:
    return ctx.failed.failed_at if ctx.failed is not None else ctx.now


def _failure(ctx: FetchContext) -> str:
    return ctx.failed.failure if ctx.failed is not None else ""


def _paused(ctx: FetchContext) -> str:
    kept = ctx.chain.size if ctx.chain is not None else 0
    return "paused until resume()" + (f"; {kept:,} bytes of it stay buffered" if kept else "")


def _buffered_since(ctx: FetchContext) -> float:
    return ctx.chain.buffered_since if ctx.chain is not None else ctx.now


def _buffered(ctx: FetchContext) -> str:
    broker = ctx.broker
    if ctx.in_flight is not None and not ctx.unreachable:
        what = "the next fetch is in flight"
    elif broker is not None and ctx.chain is not None and ctx.chain.topic_partition in broker.full:
        what = "more is fetched when some of them have been taken"
    elif ctx.waits_for_memory is not None:
        what = "buffer_memory has no room for the next fetch"
    else:
        what = _backoff(ctx) if ctx.backed_off or ctx.node_error or ctx.unreachable else "the next fetch follows them"
    return f"fetched records wait for poll(); {what}"


def _sent_at(ctx: FetchContext) -> float:
    return ctx.in_flight.sent_at if ctx.in_flight is not None else ctx.now


def _in_flight(ctx: FetchContext) -> str:
    return _with_notes(f"a fetch is in flight to {ctx.node}", ctx)


def _refusal(ctx: FetchContext) -> str:
    refusal = ctx.state.replica.refusal(ctx.now)
    return "" if refusal is None else str(refusal)


def _throttle(ctx: FetchContext) -> str:
    if ctx.throttled_ms <= 0:
        return ""
    return f"{ctx.node} throttles this client for {_seconds(ctx.throttled_ms)} more, because of a quota (KIP-219)"


def _slow_response(ctx: FetchContext) -> str:
    waited_ms, allowed_ms = ctx.now - _sent_at(ctx), ctx.max_wait_ms
    if ctx.throttled_ms > 0 or waited_ms <= allowed_ms + SLOW_RESPONSE_MS:
        return ""
    return (
        f"without a response for {_seconds(waited_ms)} although it may wait there for {_seconds(allowed_ms)}: the"
        " broker does not respond, or poll() is not called to read the response"
    )


def _open_transaction(ctx: FetchContext) -> str:
    state = ctx.state
    end, position = state.last_stable_offset, state.position
    if not (ctx.read_committed and state.has_open_transaction) or end is None or position is None:
        return ""
    if position.offset < end:
        return ""
    return f"at the last stable offset {end}: a transaction is open (high watermark {state.high_watermark})"


def _repeated_failures(ctx: FetchContext) -> str:
    if ctx.chain is not None and ctx.chain.failures:
        return f"failed fetches in a row: {ctx.chain.failures}, the last one: {ctx.chain.failure}"
    if ctx.node_error is not None:
        failures, error = ctx.node_error.failures, ctx.node_error.error
        return f"failed fetches from the broker in a row: {failures}, the last one: {error}"
    resets = ctx.state.out_of_range
    return f"positions in a row that the broker refused (OFFSET_OUT_OF_RANGE): {resets}" if resets > 1 else ""


# What is unusual about a partition that is being fetched. The first one does not stop the partition.
STALLS = (_throttle, _slow_response, _open_transaction, _repeated_failures)
NOTES = (_refusal, *STALLS)


def _with_notes(text: str, ctx: FetchContext) -> str:
    return "; ".join([text, *filter(None, (note(ctx) for note in NOTES))])


def _leaderless_since(ctx: FetchContext) -> float:
    return max(ctx.fetchable_since, ctx.leaderless_since)


def _no_leader(ctx: FetchContext) -> str:
    text = ctx.topic_problem or "no leader is known; new metadata has been requested"
    return f"{text}; {ctx.node_error.error}" if ctx.node_error is not None else text


def _backoff_since(ctx: FetchContext) -> float:
    if ctx.backed_off is not None:
        return ctx.backed_off.since
    return ctx.node_error.since if ctx.node_error is not None else _sent_at(ctx)


def _backoff(ctx: FetchContext) -> str:
    """Returns the reason for a backoff, or "" if there is none.

    The reason is the error of the partition. If it has none, it is the error of the connection to the broker. If that
    has none, it is the error of the last fetch from the broker.
    """
    if ctx.backed_off is not None:
        return f"{ctx.backed_off.reason}; retrying in {_seconds(ctx.backed_off.until - ctx.now)}"
    if ctx.unreachable:
        return f"connecting to {ctx.node}: {ctx.unreachable}"
    if ctx.node_error is None:
        return ""
    retry = f"retrying in {_seconds(ctx.node_error.until - ctx.now)}" if ctx.node_error.until > ctx.now else "retrying"
    return f"{ctx.node} is backed off after an error: {ctx.node_error.error}; {retry}"


def _in_backoff(ctx: FetchContext) -> object:
    failure = ctx.node_error
    return (
        ctx.backed_off
        or (ctx.broker is not None and ctx.unreachable)
        or (failure is not None and failure.until > ctx.now)
    )


def _blocked_since(ctx: FetchContext) -> float:
    chain = ctx.blocked_by
    return max(ctx.idle_since, chain.fetches[-1].arrived_at if chain is not None and chain.fetches else 0.0)


def _blocked(ctx: FetchContext) -> str:
    other = ctx.blocked_by.topic_partition if ctx.blocked_by is not None else ""
    return (
        f"nothing is fetched from {ctx.node} until poll() has taken more of {other}, which is fetched as far ahead as"
        " allowed"
    )


def _waits_since(ctx: FetchContext) -> float:
    return max(ctx.fetchable_since, ctx.waits_for_memory or 0.0)


def _buffer_full(ctx: FetchContext) -> str:
    return f"buffer full: buffer_memory has no room for a fetch ({ctx.memory.usage()}); poll() makes room"


def _ready(ctx: FetchContext) -> str:
    return _with_notes(f"ready; the next poll() sends a fetch to {ctx.node}", ctx)


C = PartitionCondition
STATUS_RULES: tuple[StatusRule, ...] = (
    StatusRule(C.REVOKING, lambda ctx: ctx.state.pending_revocation or ctx.state.unsubscribed, _flags_since, _revoking),
    StatusRule(C.AWAIT_CALLBACK, lambda ctx: ctx.state.awaiting_callback, _flags_since, _awaiting_callback),
    StatusRule(C.FAILED, lambda ctx: ctx.failed, _failed_since, _failure),
    StatusRule(C.INITIALIZING, _state_is(FetchState.INITIALIZING), _state_since, _initializing),
    StatusRule(C.AWAIT_RESET, _state_is(FetchState.AWAIT_RESET), _state_since, _resetting),
    StatusRule(C.AWAIT_VALIDATION, _state_is(FetchState.AWAIT_VALIDATION), _state_since, _validating),
    StatusRule(C.PAUSED, lambda ctx: ctx.state.paused, _flags_since, _paused),
    StatusRule(C.BUFFERED, lambda ctx: ctx.chain is not None and ctx.chain.fetches, _buffered_since, _buffered),
    StatusRule(C.IN_FLIGHT, lambda ctx: ctx.in_flight is not None and not ctx.unreachable, _sent_at, _in_flight),
    StatusRule(C.NO_LEADER, lambda ctx: ctx.leader.leader is None, _leaderless_since, _no_leader),
    StatusRule(C.BACKOFF, _in_backoff, _backoff_since, _backoff),
    StatusRule(C.BROKER_BLOCKED, lambda ctx: ctx.blocked_by, _blocked_since, _blocked),
    StatusRule(C.BUFFER_FULL, lambda ctx: ctx.waits_for_memory is not None, _waits_since, _buffer_full),
    StatusRule(C.READY, lambda ctx: True, lambda ctx: ctx.idle_since, _ready),
)


def explain(context: FetchContext, *, read_committed: bool = False) -> PartitionStatus:
    """Returns the status of a partition for `partition_states()`. `read_committed` decides which lag it contains."""
    row = next(row for row in STATUS_RULES if row.holds(context))
    state, chain = context.state, context.chain
    return PartitionStatus(
        state=row.condition,
        reason=row.reason(context),
        since=max(0.0, context.now - row.since(context)) / 1000.0,
        position=None if state.position is None else state.position.offset,
        high_watermark=state.high_watermark,
        lag=state.lag(read_committed),
        buffered_bytes=0 if chain is None else chain.size,
    )


def stall_of(context: FetchContext) -> str:
    """Returns why the partition makes no progress, if this is worth a warning once it has lasted for some seconds.

    Returns "" if the partition is fetched or waits for the caller, and for waits that are reported elsewhere: those for
    a position by the managers that look it up, and errors that `poll` raises.
    """
    condition, state = next(row.condition for row in STATUS_RULES if row.holds(context)), context.state
    if condition in (C.IN_FLIGHT, C.READY):
        return "; ".join(filter(None, (note(context) for note in STALLS)))
    if condition is C.NO_LEADER:
        return "" if context.topic_problem else _no_leader(context)
    if condition is C.AWAIT_RESET and state.out_of_range > 1:
        return _resetting(context)
    return _backoff(context) if condition is C.BACKOFF else ""


def _seconds(ms: float) -> str:
    return f"{max(0.0, ms) / 1000:.1f} s"
