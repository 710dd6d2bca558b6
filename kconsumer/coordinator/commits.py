"""OffsetCommit: the order of commits, which of them share a request, and what each error code means.

Decides when a commit is sent, retried and finished. It does not decide when a rebalance happens. Auto-commit is in
`auto_commit.py`, OffsetFetch in `offset_fetches.py`, the content of the requests in `commit_messages.py`, and what
differs between the two group protocols in `commit_protocol.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import PollResult, Promise, Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import CommitConfig
from kconsumer.coordinator.auto_commit import TOPIC_GONE, AutoCommit
from kconsumer.coordinator.commit_messages import Ids, commit_codes, commit_message, last_version
from kconsumer.coordinator.commit_protocol import CommitProtocol
from kconsumer.coordinator.error_actions import GroupErrorAction
from kconsumer.coordinator.error_hints import OFFSETS_HINTS
from kconsumer.coordinator.group_member import Generation
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.coordinator.offset_fetches import Committed, OffsetFetches
from kconsumer.coordinator.pending_offsets import Offsets, PendingCommit, PendingRequests
from kconsumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
    RebalanceInProgressError,
    TopicAuthorizationError,
    error_for,
)
from kconsumer.metrics.registry import Metrics
from kconsumer.schema.offsets import OFFSET_COMMIT
from kconsumer.state.positions import Positions
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import TopicPartition

# The maximum number of commits in flight. A broker responds in the order of the requests, and heartbeats use the same
# connection. Behind thousands of asynchronous commits, the response to a heartbeat would come too late. Further commits
# wait and are merged into one request: see `_waiting_commit`.
MAX_IN_FLIGHT = 10


class CommitManager:
    """Commits the offsets of one group and fetches committed ones (Java's `CommitRequestManager`)."""

    def __init__(
        self,
        config: CommitConfig,
        protocol: CommitProtocol,
        subscription: SubscriptionState,
        positions: Positions,
        coordinator: CoordinatorManager,
        metrics: GroupMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        # Called with the offsets of each finished auto-commit, and with its error or None.
        self._on_auto_commit: Callable[[Offsets, KafkaError | None], None] | None = None
        self._on_committed: Callable[[Offsets], None] | None = None  # called with the offsets of a successful commit
        self._protocol = protocol
        self._member = protocol.member
        self._subscription = subscription
        self._coordinator = coordinator
        self._metrics = metrics or GroupMetrics(Metrics())
        self._retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        subject = f"group {self._member.group_id!r}"
        progress = Progress(subject, "the result of a commit", OFFSETS_HINTS, after=coordinator.progress)
        self._commits: PendingRequests[PendingCommit] = PendingRequests("commit", progress)
        self._fetches = OffsetFetches(protocol, coordinator, self._retry_backoff)
        self._auto_commit = AutoCommit(config, self._member.group_id, positions, self.commit, rng)
        coordinator.on_failed.append(self._fail_async_commits)
        self._fenced: KafkaError | None = None  # set if another member has taken over this group_instance_id

    # --- what the engine calls -------------------------------------------------------------------------------------

    def set_listeners(
        self,
        *,
        on_committed: Callable[[Offsets], None] | None = None,
        on_auto_commit: Callable[[Offsets, KafkaError | None], None] | None = None,
    ) -> None:
        """Set the functions that are called after each successful commit, and after each auto-commit.

        `on_auto_commit` also gets the error of the auto-commit, or None if it succeeded.
        """
        self._on_committed, self._on_auto_commit = on_committed, on_auto_commit

    def commit(
        self,
        offsets: Offsets,
        deadline: float | None = None,
        *,
        automatic: bool = False,
        before_rebalance: bool = False,
    ) -> Promise[Offsets]:
        """Commit these offsets. Returns a promise of the committed offsets.

        With a `deadline` (ms), retriable errors are retried until then. Without one, the commit is sent once. While
        many commits are in flight, those without a deadline may be merged into one request; each keeps its own promise.
        If a later commit has newer offsets of the same partitions, a retry of the earlier commit sends the newer ones.

        `automatic` marks an auto-commit, which is not retried if a topic was deleted. `before_rebalance` marks a commit
        that a rebalance waits for.

        If `offsets` is empty, nothing is sent. With a deadline, the promise is then done as soon as all earlier commits
        without a deadline are done. Without one, it is done at once.
        """
        if not offsets:
            return self._commit_nothing(deadline)
        promise: Promise[Offsets] = Promise()
        ids = self._protocol.consumed_ids(offsets)
        commit = PendingCommit(
            promise,
            RetryTimer(self._retry_backoff),
            deadline,
            self._commits.progress,
            offsets=dict(offsets),
            ids=ids,
            is_auto_commit=automatic,
            before_rebalance=before_rebalance,
        )
        for earlier in self._commits:
            earlier.supersede(offsets, ids)
        waiting = self._waiting_commit(commit)
        if waiting is None:
            self._commits.append(commit)
        else:
            waiting.merged.append(commit)
        return promise

    def _commit_nothing(self, deadline: float | None) -> Promise[Offsets]:
        promise: Promise[Offsets] = Promise()
        before = [] if deadline is None else [commit for commit in self._commits if commit.deadline is None]
        if before:  # responses arrive in the order of the requests, so the last commit finishes after all others
            before[-1].hasten()
            [before[-1], *before[-1].merged][-1].promise.add_done_callback(lambda _: promise.set_result({}))
        else:
            promise.set_result({})
        return promise

    def committed(self, partitions: Collection[TopicPartition], deadline: float) -> Promise[Committed]:
        """Fetch the committed offset of each partition, with retries until `deadline` (ms).

        Returns a promise of a dict that maps each partition to its committed offset, or to None if it has none.
        """
        return self._fetches.fetch(partitions, deadline)

    def pending_commits(self) -> bool:
        """Returns True while at least one commit has no result."""
        return bool(self._commits)

    def maybe_auto_commit(self, now: float) -> bool:
        """Start an auto-commit if its interval has passed. Called by each `poll` of the user.

        Returns whether a commit was started.
        """
        return self._auto_commit.start_if_due(now, self._on_auto_commit)

    @property
    def auto_commit_due(self) -> float:
        """When the next poll must call `maybe_auto_commit` (ms); FOREVER without auto-commit."""
        return self._auto_commit.due

    def reset_auto_commit(self, now: float) -> None:
        """Restart the auto-commit interval, because the assignment changed."""
        self._auto_commit.restart_interval(now)

    def auto_commit_before_rebalance(self, deadline: float) -> Promise[Offsets] | None:
        """Commit all valid positions before partitions are revoked, with retries until `deadline` (ms).

        All earlier commits are sent without delay. Returns the commit's promise, or None if auto-commit is disabled or
        the generation is not valid.
        """
        if self._commits:
            self._commits[-1].hasten()  # sends all earlier commits, too, while the partitions are still owned
        if not self._auto_commit.enabled or not self._member.generation.valid:
            return None
        return self._auto_commit.before_rebalance(deadline)

    @property
    def auto_commit_enabled(self) -> bool:
        return self._auto_commit.enabled

    @property
    def has_error(self) -> bool:
        """True if another member has taken over this group_instance_id."""
        return self._fenced is not None

    def take_error(self) -> KafkaError | None:
        """Returns the error that every call must raise from now on, or None.

        It is set when the response to a commit shows that another member has taken over this group_instance_id.
        """
        return self._fenced

    @property
    def progress(self) -> list[Progress]:
        """The progress of commits, and of fetches of committed offsets."""
        return [self._commits.progress, self._fetches.pending.progress]

    # --- driving ---------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Returns the requests that are due, and the time (ms) until the next request is due.

        While the coordinator is unknown, no request is due. The call then requests a lookup, and fails the requests
        whose deadline has passed.
        """
        pending = len(self._commits) + len(self._fetches.pending)
        if not pending:
            return PollResult()
        if self._coordinator.connection_id is None:
            self._expire(now)
            self._coordinator.request_lookup()
            requests = []
            wait_ms = min(self._commits.deadline_wait_ms(now), self._fetches.pending.deadline_wait_ms(now))
        else:
            commits = self._commits.send(self._commits_to_send(), self._commit_request, now)
            fetches = self._fetches.poll(now)
            requests, wait_ms = commits.requests + fetches.requests, min(commits.wait_ms, fetches.wait_ms)
            self._expire(now)  # after sending, because a request past its deadline is still sent once, as in Java
        if len(self._commits) + len(self._fetches.pending) < pending:
            wait_ms = 0.0  # a promise finished without a response: its caller must not wait for the network
        return PollResult(requests, wait_ms)

    def _waiting_commit(self, commit: PendingCommit) -> PendingCommit | None:
        """Returns a commit in the queue that `commit` can be merged into, or None.

        Only commits without a deadline that wait behind MAX_IN_FLIGHT others are merged. So the queue stays short if a
        caller commits faster than the broker responds. A request identifies topics either by id or by name, so a commit
        with ids and a commit without ids are not merged.
        """
        if commit.deadline is not None or commit.is_auto_commit:
            return None
        for waiting in reversed(self._commits.after(MAX_IN_FLIGHT)):
            if waiting.in_flight or waiting.is_auto_commit or waiting.must_send or waiting.promise.done:
                return None
            offsets, ids = waiting.request()
            if bool(ids) == bool(commit.ids):
                return waiting
            if not offsets.keys().isdisjoint(commit.offsets):
                return None  # `commit` has newer offsets of the same partitions and must be sent later
        return None

    def _commits_to_send(self) -> list[PendingCommit]:
        """Returns the commits that may be sent: the oldest MAX_IN_FLIGHT ones.

        If a newer commit has `must_send`, returns all commits up to the newest one that has it.
        """
        must_send = max((n for n, commit in enumerate(self._commits, 1) if commit.must_send), default=0)
        return self._commits.first(max(must_send, MAX_IN_FLIGHT))

    def _expire(self, now: float) -> None:
        coordinator = str(self._coordinator.coordinator or "not found yet")
        for pending in (self._commits, self._fetches.pending):
            pending.expire(self._member.group_id, coordinator, now)

    def _fail_async_commits(self, error: KafkaError) -> None:
        """Fail the commits without a deadline that are not in flight, because a lookup of the coordinator failed.

        They do not wait for another lookup.
        """
        for commit in self._commits:
            if commit.deadline is None and not commit.in_flight:
                commit.fail(error)
        self._commits.drop_done()

    # --- OffsetCommit ----------------------------------------------------------------------------------------------

    def _commit_request(self, commit: PendingCommit) -> UnsentRequest | None:
        generation = Generation()
        instance_id = None
        if self._subscription.is_group_managed:
            if not self._member.may_commit:
                commit.fail(self._not_a_member())
                return None
            generation, instance_id = self._member.generation, self._member.group_instance_id
        offsets, ids = commit.request()
        parts = [(one, one.offsets) for one in (commit, *commit.merged)]
        message = commit_message(self._member.group_id, generation, instance_id, offsets, ids)
        return UnsentRequest(
            OFFSET_COMMIT,
            message,
            lambda reply: self._on_reply(parts, ids, generation, reply),
            node=self._coordinator.connection_id,
            max_version=last_version(ids),
        )

    def _not_a_member(self) -> KafkaError:
        group = self._member.group_id
        if self._member.rebalancing:
            return RebalanceInProgressError(
                f"offsets of group {group!r} cannot be committed while it rebalances; poll() to rejoin, then commit"
            )
        return self._protocol.fencing_error or CommitFailedError(
            f"this consumer is not a member of group {group!r} right now, so its partitions may belong to another one;"
            " poll() to rejoin. If this happens often, raise max_poll_interval_ms or lower max_poll_records"
        )

    def _on_reply(self, parts: list[tuple[PendingCommit, Offsets]], ids: Ids, sent: Generation, reply: Reply) -> None:
        """Finish or retry every commit of a request. `parts` contains the commits, each with the offsets that were sent
        for it."""
        for commit, _ in parts:
            commit.response_received()
        if reply.error is not None:
            if reply.error.retriable:
                self._coordinator.mark_unknown(reply.error, reply.now)
            for commit, _ in parts:
                commit.retry_or_fail(reply.error, reply.now, retriable=reply.error.retriable)
        else:
            self._metrics.on_commit_response(reply.now - reply.sent_at, reply.now)
            codes = commit_codes(reply.message, ids)
            for commit, offsets in parts:
                self._finish(commit, offsets, {tp: codes[tp] for tp in offsets if codes.get(tp)}, sent, reply.now)
        self._commits.drop_done()

    def _finish(
        self, commit: PendingCommit, offsets: Offsets, codes: Mapping[TopicPartition, int], sent: Generation, now: float
    ) -> None:
        unauthorized = set()
        for tp, code in codes.items():
            action = self._protocol.commit_actions[code]
            if action is not GroupErrorAction.TOPIC_AUTHORIZATION:
                where = f"commit of {tp} in group {self._member.group_id!r}"
                self._react(commit, sent, code, action, where, now)
                return
            unauthorized.add(tp.topic)
        if unauthorized:
            topics = frozenset(unauthorized)
            about = f"commit refused for {sorted(topics)}"
            commit.promise.set_exception(TopicAuthorizationError(about, topics=topics, operation="Read"))
            return
        if self._on_committed is not None:
            self._on_committed(offsets)
        commit.promise.set_result(offsets)

    def _react(
        self, commit: PendingCommit, sent: Generation, code: int, action: GroupErrorAction, where: str, now: float
    ) -> None:
        member = self._member
        unchanged = member.generation == sent
        if code == Errors.UNKNOWN_TOPIC_ID:
            self._protocol.on_unknown_topic_id()
        if code in TOPIC_GONE and (commit.is_auto_commit or self._protocol.is_recreated(commit.ids)):
            # The topic was deleted. Java retries until max_poll_interval_ms, and the member reads nothing meanwhile.
            commit.promise.set_exception(error_for(code, where, operation="Read"))
        elif action in (GroupErrorAction.RETRY, GroupErrorAction.COORDINATOR):
            if action is GroupErrorAction.COORDINATOR:
                self._coordinator.mark_unknown(error_for(code), now)
            commit.retry_or_fail(error_for(code, where), now, retriable=True)
        elif action is GroupErrorAction.STALE_EPOCH and commit.before_rebalance:
            commit.retry_or_fail(error_for(code, where), now, retriable=member.may_commit)
        elif action is GroupErrorAction.REJOIN:
            member.request_rejoin("a commit was refused because the group rebalances")
            commit.promise.set_exception(RebalanceInProgressError(where))
        elif action is GroupErrorAction.FENCED and unchanged:
            self._fenced = FencedInstanceIdError(where)
            commit.promise.set_exception(self._fenced)
        elif action is GroupErrorAction.RAISE:
            commit.promise.set_exception(error_for(code, where, operation="Read"))
        elif not unchanged and member.rebalancing:
            commit.promise.set_exception(RebalanceInProgressError(where))
        else:
            if unchanged and action is not GroupErrorAction.FENCED:
                keep_member_id = action is GroupErrorAction.RESET_KEEP_ID
                self._protocol.on_commit_refused(error_for(code), keep_member_id=keep_member_id)
            error = self._not_a_member()
            error.__cause__ = error_for(code, where)
            commit.promise.set_exception(error)
