"""Committing offsets and reading committed ones: OffsetCommit and OffsetFetch to the group coordinator.

Decides what to send and what each error code means (`group_reactions.py`); it does not decide
when a rebalance happens, nor what position a partition gets from a committed offset (`positions.py`).
What the requests say is in `commit_messages.py`; only a member of KIP-848 names topics by their ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from kconsumer.backoff import ExponentialBackoff, RetryTimer
from kconsumer.config.option_groups import CommitConfig
from kconsumer.coordinator.classic_protocol.state import Generation, Member
from kconsumer.coordinator.commit_messages import (
    Ids,
    TopicIds,
    commit_codes,
    commit_message,
    last_version,
    lookup_message,
    name_of,
)
from kconsumer.coordinator.error_actions import (
    COMMIT_ACTIONS,
    CONSUMER_COMMIT_ACTIONS,
    CONSUMER_OFFSET_FETCH_ACTIONS,
    CONSUMER_OFFSET_FETCH_GROUP_ACTIONS,
    OFFSET_FETCH_ACTIONS,
    OFFSET_FETCH_GROUP_ACTIONS,
    GroupErrorAction,
    Table,
)
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.coordinator.pending_offsets import Offsets, PendingCommit, PendingOffsetFetch, PendingRequest
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
    RebalanceInProgressError,
    TimeoutError,
    TopicAuthorizationError,
    error_for,
)
from kconsumer.managers import FOREVER, PollResult, Promise, Reply, UnsentRequest
from kconsumer.metrics.registry import Metrics
from kconsumer.repeated_failures import RepeatedFailures
from kconsumer.schema import OFFSET_COMMIT, OFFSET_FETCH
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kconsumer.coordinator.consumer_protocol.state import ConsumerMember

log = get_logger(__name__)

Committed = dict[TopicPartition, OffsetAndMetadata | None]
TOPIC_GONE = (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID)

# Responses come in the order of requests, and heartbeats use the same connection: one behind thousands of asynchronous
# commits would be answered too late. What does not fit waits, and is sent as one: see `_waiting_commit`.
MAX_IN_FLIGHT = 10


class CommitManager:
    """Keeps commits in order and committed offsets at hand; one per consumer with a `group_id`."""

    def __init__(
        self,
        config: CommitConfig,
        member: Member | ConsumerMember,
        subscription: SubscriptionState,
        coordinator: CoordinatorManager,
        metrics: GroupMetrics | None = None,
        ids: TopicIds | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`ids`: of the protocol of KIP-848; without them topics go by name."""
        self.on_auto_commit: Callable[[Offsets, KafkaError | None], None] | None = None
        self.on_committed: Callable[[Offsets], None] | None = None  # told of every commit that succeeded
        self._config = config
        self._member = member
        self._subscription = subscription
        self._coordinator = coordinator
        self._metrics = metrics or GroupMetrics(Metrics())
        self._ids = ids
        epochs = not isinstance(member, Member)
        self._reactions = CONSUMER_COMMIT_ACTIONS if epochs else COMMIT_ACTIONS
        self._lookup_reactions = CONSUMER_OFFSET_FETCH_GROUP_ACTIONS if epochs else OFFSET_FETCH_GROUP_ACTIONS
        self._partition_reactions = CONSUMER_OFFSET_FETCH_ACTIONS if epochs else OFFSET_FETCH_ACTIONS
        self._commits: list[PendingCommit] = []
        self._lookups: list[PendingOffsetFetch] = []
        self._fenced: KafkaError | None = None
        self._auto_commit = bool(config.enable_auto_commit)
        self._auto_commit_due: float | None = None
        self._auto_commit_promise: Promise[Offsets] | None = None
        self._auto_commit_failures = RepeatedFailures()
        self._retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)

    # --- what the engine asks --------------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Offsets,
        deadline: float | None = None,
        *,
        automatic: bool = False,
        before_rebalance: bool = False,
    ) -> Promise[Offsets]:
        """Commit; with a deadline (ms) retriable errors are retried until then, without one it is tried once.

        `automatic`: not asked for by the caller, so that a topic that is gone holds up nothing.
        What is tried once while many are in flight may be sent in one request with others; each ends by itself.
        A commit that is retried takes over the newer offsets of its partitions.
        To commit nothing with a deadline is to wait for the commits before it that are tried once.
        """
        promise: Promise[Offsets] = Promise()
        if not offsets:
            before = [] if deadline is None else [commit for commit in self._commits if commit.deadline is None]
            if before:  # responses come in the order of the requests
                before[-1].must_send = True
                [before[-1], *before[-1].merged][-1].promise.add_done_callback(lambda _: promise.set_result({}))
            else:
                promise.set_result({})
            return promise
        ids: Ids = {} if self._ids is None else self._ids.consumed(offsets)
        commit = PendingCommit(
            promise,
            RetryTimer(self._retry_backoff),
            deadline,
            offsets=dict(offsets),
            ids=ids,
            is_auto_commit=automatic,
            before_rebalance=before_rebalance,
            must_send=deadline is not None,
        )
        for earlier in self._commits:
            earlier.supersede(offsets, ids)
        waiting = self._waiting_commit(commit)
        if waiting is None:
            self._commits.append(commit)
        else:
            waiting.merged.append(commit)
        return promise

    def committed(self, partitions: Collection[TopicPartition], deadline: float) -> Promise[Committed]:
        """What the group committed; None for a partition without a commit.

        The promise is the caller's own, even if the same partitions are being looked up already: a caller that gives up
        fails it, which must not end the other look-up.
        """
        wanted = frozenset(partitions)
        promise: Promise[dict[TopicPartition, OffsetAndMetadata | None]] = Promise()
        if not wanted:
            promise.set_result({})
            return promise
        self._lookups.append(PendingOffsetFetch(promise, RetryTimer(self._retry_backoff), deadline, partitions=wanted))
        return promise

    def pending_commits(self) -> bool:
        """Whether any commit is not answered yet."""
        return bool(self._commits)

    def maybe_auto_commit(self, now: float) -> None:
        """Start an auto-commit of everything consumed when the interval has passed. Called at each `poll`."""
        if not self._auto_commit:
            return
        if self._auto_commit_due is None:
            self.reset_auto_commit(now)
        elif now >= self._auto_commit_due and self._auto_commit_promise is None:
            self.reset_auto_commit(now)
            self._start_auto_commit(now)

    def reset_auto_commit(self, now: float) -> None:
        """Start the interval anew (after a commit was started, or a new assignment)."""
        self._auto_commit_due = now + self._config.auto_commit_interval_ms

    def auto_commit_before_rebalance(self, deadline: float) -> Promise[Offsets] | None:
        """Commit everything consumed with retries, before partitions move; None when auto-commit is off.

        Java reads the positions again before each retry. Here they are those of the poll that began the rebalance: what
        is returned later is still being processed when a retry is sent.
        """
        if self._commits:
            self._commits[-1].must_send = True  # sent while the partitions are ours
        if not self._auto_commit or not self._member.generation.valid:
            return None
        return self.commit(self._subscription.all_consumed(), deadline, automatic=True, before_rebalance=True)

    @property
    def auto_commit_enabled(self) -> bool:
        """Whether positions are committed by the consumer itself."""
        return self._auto_commit

    def take_error(self) -> KafkaError | None:
        """An error of a commit nobody waits for that the next call must raise (fenced instance id)."""
        return self._fenced

    # --- driving ---------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Requests for what waits; while the coordinator is unknown, only deadlines are watched."""
        waiting = len(self._commits) + len(self._lookups)
        if not waiting:
            return PollResult()
        if self._coordinator.connection_id is None:
            self._expire(now)
            self._coordinator.lookup_requested = True
            self._fail_async()
            result = PollResult(wait_ms=self._deadline_wait(now))
        else:
            result = self._send(now)  # first: what has no time left is sent once all the same, as in Java
            self._expire(now)
        if len(self._commits) + len(self._lookups) < waiting:
            result.wait_ms = 0.0  # something ended without the network: whoever waits for it must not sleep
        return result

    def _send(self, now: float) -> PollResult:
        requests = []
        wait_ms = self._deadline_wait(now)
        asks: list[tuple[PendingRequest, Callable[[Any, float], UnsentRequest | None]]] = [
            *((commit, self._commit_request) for commit in self._commits_to_send()),
            *((lookup, self._lookup_request) for lookup in self._lookups),
        ]
        for ask, build in asks:
            over = ask.deadline is not None and now >= ask.deadline
            if ask.in_flight or ask.promise.done or (over and ask.tried):
                continue
            pause_ms = ask.backoff.remaining_ms(now)
            if pause_ms > 0:
                wait_ms = min(wait_ms, pause_ms)
                continue
            request = build(ask, now)
            if request is not None:
                ask.in_flight = ask.tried = True
                requests.append(request)
        self._drop_done()
        return PollResult(requests, wait_ms)

    def _waiting_commit(self, commit: PendingCommit) -> PendingCommit | None:
        """The commit whose request this one can join. Both are tried once and wait because others are in flight: a
        caller that commits faster than the broker responds has a short queue. One request names topics by id or by
        name, so commits with ids and commits without are not merged."""
        if commit.deadline is not None or commit.is_auto_commit:
            return None
        for waiting in reversed(self._commits[MAX_IN_FLIGHT:]):
            if waiting.in_flight or waiting.is_auto_commit or waiting.must_send or waiting.promise.done:
                return None
            offsets, ids = waiting.request()
            if bool(ids) == bool(commit.ids):
                return waiting
            if not offsets.keys().isdisjoint(commit.offsets):
                return None  # it must be sent after this one
        return None

    def _commits_to_send(self) -> list[PendingCommit]:
        """The first few; but all up to the last one that somebody waits for."""
        awaited = max((n for n, commit in enumerate(self._commits, 1) if commit.must_send), default=0)
        return self._commits[: max(awaited, MAX_IN_FLIGHT)]

    def _expire(self, now: float) -> None:
        for ask in (*self._commits, *self._lookups):
            if ask.deadline is not None and now >= ask.deadline and not ask.promise.done:
                what = "commit" if isinstance(ask, PendingCommit) else "fetch of committed offsets"
                error = TimeoutError(
                    f"the {what} for group {self._member.group_id!r} did not finish in time"
                    f" (coordinator {self._coordinator.coordinator or 'not found yet'})"
                )
                error.__cause__ = ask.last_error
                ask.promise.set_exception(error)
        self._drop_done()

    def _fail_async(self) -> None:
        """An async commit waits for the coordinator lookup, and fails with it."""
        error = self._coordinator.last_error
        if error is None:
            return
        for commit in self._commits:
            if commit.deadline is None and not commit.in_flight:
                for one in (commit, *commit.merged):
                    one.promise.set_exception(error)
        self._drop_done()

    def _deadline_wait(self, now: float) -> float:
        deadlines = [ask.deadline for ask in (*self._commits, *self._lookups) if ask.deadline is not None]
        return max(0.0, min(deadlines) - now) if deadlines else FOREVER

    def _drop_done(self) -> None:
        self._commits = [c for c in self._commits if not c.promise.done]
        self._lookups = [lookup for lookup in self._lookups if not lookup.promise.done]

    # --- OffsetCommit ----------------------------------------------------------------------------------------------

    def _commit_request(self, commit: PendingCommit, now: float) -> UnsentRequest | None:
        generation = Generation()
        instance_id = None
        if self._subscription.is_group_managed:
            if not self._member.may_commit:
                for one in (commit, *commit.merged):
                    one.promise.set_exception(self._not_a_member())
                return None
            generation, instance_id = self._member.generation, self._member.group_instance_id
        offsets, ids = commit.request()
        parts = [(one, one.offsets) for one in (commit, *commit.merged)]
        message = commit_message(self._member.group_id, generation, instance_id, offsets, ids)
        return UnsentRequest(
            OFFSET_COMMIT,
            message,
            lambda reply: self._on_commit(parts, ids, generation, reply),
            node=self._coordinator.connection_id,
            max_version=last_version(ids),
        )

    def _not_a_member(self) -> KafkaError:
        group = self._member.group_id
        if self._member.rebalancing:
            return RebalanceInProgressError(
                f"offsets of group {group!r} cannot be committed while it rebalances; poll() to rejoin, then commit"
            )
        if isinstance(self._member, Member) and self._member.fenced is not None:
            return self._member.fenced  # a heartbeat heard of it before
        return CommitFailedError(
            f"this consumer is not a member of group {group!r} right now, so its partitions may belong to another one;"
            " poll() to rejoin. If this happens often, raise max_poll_interval_ms or lower max_poll_records"
        )

    def _on_commit(self, parts: list[tuple[PendingCommit, Offsets]], ids: Ids, sent: Generation, reply: Reply) -> None:
        """End every commit of a request, or let it be retried. `parts`: each with the offsets it had when it was
        sent."""
        for commit, _ in parts:
            commit.in_flight = False
        if reply.error is not None:
            if reply.error.retriable:
                self._coordinator.mark_unknown(reply.error, reply.now)
            for commit, _ in parts:
                self._retry_or_fail(commit, reply.error, reply.now, retriable=reply.error.retriable)
            return
        self._metrics.on_commit_response(reply.now - reply.sent_at, reply.now)
        codes = commit_codes(reply.message, ids)
        for commit, offsets in parts:
            self._end_commit(commit, offsets, {tp: codes[tp] for tp in offsets if codes.get(tp)}, sent, reply.now)
        self._drop_done()

    def _end_commit(
        self, commit: PendingCommit, offsets: Offsets, codes: Mapping[TopicPartition, int], sent: Generation, now: float
    ) -> None:
        unauthorized = set()
        for tp, code in codes.items():
            reaction = self._reactions[code]
            if reaction is not GroupErrorAction.TOPIC_AUTHORIZATION:
                where = f"commit of {tp} in group {self._member.group_id!r}"
                self._react_to_commit(commit, sent, code, reaction, where, now)
                return
            unauthorized.add(tp.topic)
        if unauthorized:
            topics = frozenset(unauthorized)
            about = f"commit refused for {sorted(topics)}"
            commit.promise.set_exception(TopicAuthorizationError(about, topics=topics, operation="Read"))
            return
        if self.on_committed is not None:
            self.on_committed(offsets)
        commit.promise.set_result(offsets)

    def _react_to_commit(
        self, commit: PendingCommit, sent: Generation, code: int, reaction: GroupErrorAction, where: str, now: float
    ) -> None:
        member = self._member
        unchanged = member.generation == sent
        if code == Errors.UNKNOWN_TOPIC_ID and self._ids is not None:
            self._ids.unknown()
        if code in TOPIC_GONE and (commit.is_auto_commit or self._is_recreated(commit)):
            # Deleted under us. Java retries until max_poll_interval_ms, and the member reads nothing so long.
            commit.promise.set_exception(error_for(code, where, operation="Read"))
        elif reaction in (GroupErrorAction.RETRY, GroupErrorAction.COORDINATOR):
            if reaction is GroupErrorAction.COORDINATOR:
                self._coordinator.mark_unknown(error_for(code), now)
            self._retry_or_fail(commit, error_for(code, where), now, retriable=True)
        elif reaction is GroupErrorAction.STALE_EPOCH and commit.before_rebalance:
            self._retry_or_fail(commit, error_for(code, where), now, retriable=member.may_commit)
        elif reaction is GroupErrorAction.REJOIN:
            member.request_rejoin("a commit met a rebalance")
            commit.promise.set_exception(RebalanceInProgressError(where))
        elif reaction is GroupErrorAction.FENCED and unchanged:
            self._fenced = FencedInstanceIdError(where)
            commit.promise.set_exception(self._fenced)
        elif reaction is GroupErrorAction.RAISE:
            commit.promise.set_exception(error_for(code, where, operation="Read"))
        elif not unchanged and member.rebalancing:
            commit.promise.set_exception(RebalanceInProgressError(where))
        else:
            if unchanged and isinstance(member, Member) and reaction is not GroupErrorAction.FENCED:
                member.reset(str(error_for(code)), keep_member_id=reaction is GroupErrorAction.RESET_KEEP_ID)
            error = self._not_a_member()
            error.__cause__ = error_for(code, where)
            commit.promise.set_exception(error)
        self._drop_done()

    def _is_recreated(self, commit: PendingCommit) -> bool:
        """Whether a topic that was read was deleted and made anew: the new one has nothing to do with its offsets."""
        return self._ids is not None and self._ids.outdated(commit.ids)

    def _retry_or_fail(self, ask: PendingRequest, error: KafkaError, now: float, *, retriable: bool) -> None:
        ask.last_error = error
        if retriable and ask.deadline is not None and now < ask.deadline:
            ask.backoff.failed(now)
        else:
            ask.promise.set_exception(error)
            self._drop_done()

    def _start_auto_commit(self, now: float) -> None:
        offsets = self._subscription.all_consumed()
        if not offsets:
            return
        self._auto_commit_promise = self.commit(offsets, automatic=True)

        def finished(promise: Promise[Offsets]) -> None:
            self._auto_commit_promise = None
            if promise.error is None:
                self._auto_commit_failures.reset()
                return
            suppressed = self._auto_commit_failures.failed([str(promise.error)], now)
            if suppressed is not None:
                since = f"; attempts that failed since the last warning: {suppressed}" if suppressed else ""
                group, error = self._member.group_id, promise.error
                log.warning("group %s: auto-commit failed, will be tried again: %s%s", group, error, since)
            if promise.error.retriable and getattr(promise.error, "code", 0) not in TOPIC_GONE:
                self._auto_commit_due = now + self._config.retry_backoff_ms

        self._auto_commit_promise.add_done_callback(finished)
        if self.on_auto_commit is not None:
            notify = self.on_auto_commit
            self._auto_commit_promise.add_done_callback(lambda promise: notify(offsets, promise.error))

    # --- OffsetFetch -----------------------------------------------------------------------------------------------

    def _lookup_request(self, lookup: PendingOffsetFetch, now: float) -> UnsentRequest:
        asking = Generation() if isinstance(self._member, Member) else self._member.generation
        ids: Ids = {} if self._ids is None else self._ids.present(lookup.partitions)
        message = lookup_message(self._member.group_id, asking, lookup.partitions, ids)
        return UnsentRequest(
            OFFSET_FETCH,
            message,
            lambda reply: self._on_lookup(lookup, ids, reply),
            node=self._coordinator.connection_id,
            max_version=last_version(ids),
        )

    def _on_lookup(self, lookup: PendingOffsetFetch, ids: Ids, reply: Reply) -> None:
        lookup.in_flight = False
        if reply.error is not None:
            if reply.error.retriable:
                self._coordinator.mark_unknown(reply.error, reply.now)
            self._retry_or_fail(lookup, reply.error, reply.now, retriable=reply.error.retriable)
            return
        group = reply.message.groups[0] if reply.version >= 8 else reply.message
        where = f"committed offsets of group {self._member.group_id!r}"
        if group.error_code:
            self._react_to_lookup(self._lookup_reactions, lookup, group.error_code, where, reply.now)
            return
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(sorted(lookup.partitions))
        unauthorized: set[str] = set()
        for topic in group.topics:
            name = name_of(topic, ids)
            if name is None:
                continue
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                if self._partition_reactions[partition.error_code] is GroupErrorAction.TOPIC_AUTHORIZATION:
                    unauthorized.add(name)
                elif partition.error_code:
                    about = f"{where} for {tp}"
                    self._react_to_lookup(self._partition_reactions, lookup, partition.error_code, about, reply.now)
                    return
                elif partition.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(
                        partition.committed_offset, partition.metadata, partition.committed_leader_epoch
                    )
        if unauthorized:
            topics = frozenset(unauthorized)
            about = f"{where}: refused for {sorted(topics)}"
            lookup.promise.set_exception(TopicAuthorizationError(about, topics=topics, operation="Describe"))
        else:
            lookup.promise.set_result(found)
        self._drop_done()

    def _react_to_lookup(self, table: Table, lookup: PendingOffsetFetch, code: int, where: str, now: float) -> None:
        reaction = table[code]
        error = error_for(code, where, operation="Describe")
        if code == Errors.UNKNOWN_TOPIC_ID and self._ids is not None:
            self._ids.unknown()
        if reaction is GroupErrorAction.STALE_EPOCH and self._member.may_commit:
            reaction = GroupErrorAction.RETRY
        if reaction is GroupErrorAction.COORDINATOR:
            self._coordinator.mark_unknown(error, now)
        retriable = reaction in (GroupErrorAction.RETRY, GroupErrorAction.COORDINATOR)
        self._retry_or_fail(lookup, error, now, retriable=retriable)
