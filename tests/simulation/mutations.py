"""Mutations: defects that are put into the library on purpose, to show that the simulation finds them.

A mutation replaces text in the source of one function. The changed module is compiled, and the function gets the code
of its changed version, so that every reference to it has the defect. Applying a mutation raises an error if its text is
not in the source exactly once, so that a mutation cannot become void when the library changes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """A defect. `old` is the text of the function `where` that `new` replaces."""

    name: str
    description: str
    module: str  # without the prefix "kconsumer."
    where: str  # the qualified name of a function
    old: str
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Gives the library this defect until the context ends."""
        function = self._function()
        before, function.__code__ = function.__code__, self._code()
        try:
            yield
        finally:
            function.__code__ = before

    def _function(self) -> FunctionType:
        found: Any = importlib.import_module(f"kconsumer.{self.module}")
        for part in self.where.split("."):
            found = inspect.getattr_static(found, part)
        function = found.fget if isinstance(found, property) else found
        if not isinstance(function, FunctionType):
            raise TypeError(f"{self.name}: {self.where} is no function")
        return function

    def _code(self) -> CodeType:
        """Returns the code of the changed function."""
        module = importlib.import_module(f"kconsumer.{self.module}")
        lines = inspect.getsource(module).splitlines(keepends=True)
        block, number = inspect.getsourcelines(self._function())
        text = "".join(block)
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.where} contains {self.old!r} {text.count(self.old)} times, not once")
        first, last = number - 1, number - 1 + len(block)
        changed = "".join([*lines[:first], text.replace(self.old, self.new), *lines[last:]])
        codes = _codes(compile(changed, module.__file__ or "", "exec"))
        return next(code for code in codes if code.co_qualname == self.where)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


CLASSIC = "coordinator.classic_protocol.manager"
CLASSIC_HEARTBEAT = "coordinator.classic_protocol.heartbeat"
CONSUMER = "coordinator.consumer_protocol.manager"
CONSUMER_HEARTBEAT = "coordinator.consumer_protocol.heartbeat"
COMMITS = "coordinator.commits"

MUTATIONS = (
    # --- what reviewers had found ---
    Mutation(
        "commit-at-sync",
        "The positions are committed when the SyncGroup response arrives, and not in the next poll.",
        CLASSIC,
        "ClassicMembership._on_sync",
        "self._steps.add(lambda now: self._begin_complete(sent, assignment, now))\n"
        "        member.transition_to(MemberState.COMPLETING)",
        "member.transition_to(MemberState.COMPLETING)\n        self._begin_complete(sent, assignment, reply.now)",
    ),
    Mutation(
        "sync-error-keeps-state",
        "After a failed SyncGroup the member keeps its state, in which it neither joins nor syncs.",
        CLASSIC,
        "ClassicMembership._on_sync",
        'self._react(SYNC_ACTIONS, message.error_code, sent, "sync", reply.now)\n'
        "            if member.state is MemberState.SYNCING:",
        'self._react(SYNC_ACTIONS, message.error_code, sent, "sync", reply.now)\n'
        "            self._sync_assignments, self._leader = None, None\n"
        "            if not member:",
    ),
    Mutation(
        "join-number-taken-first",
        "A JoinGroup that fails leaves its number behind, so the member waits for a response for ever.",
        CLASSIC,
        "ClassicMembership._is_current",
        "self._request_number = 0",
        "self._request_number = 0 if self._member.generation.valid else number",
    ),
    Mutation(
        "old-commit-retried",
        "The retry of an older commit sends its old offsets, after a newer commit was accepted.",
        "coordinator.pending_offsets",
        "PendingCommit.supersede",
        "self._newer.update(",
        "dict().update(",
    ),
    Mutation(
        "no-backoff",
        "Retries do not wait.",
        "backoff",
        "RetryTimer.failed",
        "now + self._backoff.delay_ms(self.attempts)",
        "now",
    ),
    Mutation(
        "auto-commit-after-collect",
        "The auto-commit contains the records of the poll that starts it.",
        "engine.base",
        "Engine._collect",
        "step.unfinished = False\n            if parts.user_calls.waiting:",
        "step.unfinished = False\n                if parts.group is not None:\n"
        "                    parts.group.commits.maybe_auto_commit(self._clock.now())\n"
        "            if parts.user_calls.waiting:",
    ),
    Mutation(
        "poll-after-close-in-callback",
        "A poll continues although a commit callback has closed the consumer.",
        "engine.base",
        "Engine._poll_full",
        "if not self._ready_to_poll:  # a commit callback",
        "if self is None:  # a commit callback",
    ),
    Mutation(
        "network-thread-after-close",
        "close() returns before it has ended the network thread.",
        "engine.threaded",
        "ThreadedDriver.release_to_caller",
        "network, self._network = self._network, None",
        "network, self._network = None, self._network",
    ),
    Mutation(
        "callback-flag-stays",
        "The flag that stops fetching a partition until on_assign has returned is never cleared.",
        "coordinator.membership",
        "Membership._on_assigned_done",
        "self._subscription.mark_awaiting_callback(added, awaiting=False)",
        "pass",
    ),
    Mutation(
        "deserializer-holds-lock",
        "Deserializers run while the lock is held, so no heartbeats are sent.",
        "fetching.collector",
        "Collector._deserialized",
        "with self._unlocked():",
        "if self._unlocked:",
    ),
    # --- classic membership ---
    Mutation(
        "no-rejoin-after-revocation",
        "A cooperative member does not join again after it has revoked partitions.",
        CLASSIC,
        "ClassicMembership._queue_changes",
        'self._member.request_rejoin("need to revoke partitions and re-join")',
        "pass",
    ),
    Mutation(
        "revoked-partitions-kept",
        "A cooperative member keeps the partitions for which it has called on_revoke.",
        CLASSIC,
        "ClassicMembership._queue_changes",
        "self._steps.add(lambda at: self._apply_assignment(assigned, added, at))",
        "self._steps.add(lambda at: self._apply_assignment(assigned | frozenset(revoked), added, at))",
    ),
    Mutation(
        "eager-keeps-assignment",
        "An eager member does not give its partitions up before it joins.",
        CLASSIC,
        "ClassicMembership._queue_revocation",
        "elif self.rebalance_protocol is RebalanceProtocol.EAGER:",
        "elif not owned:",
    ),
    Mutation(
        "metadata-change-unnoticed",
        "The leader does not rebalance the group when a topic gets partitions.",
        CLASSIC,
        "ClassicMembership._rejoin_not_needed",
        "if self._leader.outdated(self._cluster):",
        "if self._leader is None:",
    ),
    Mutation(
        "leader-forgets-partition",
        "The leader leaves out the last partition of each assignment that has several.",
        "coordinator.classic_protocol.leader",
        "assignment_bytes",
        "_by_topic(assignment.partitions)",
        "_by_topic(assignment.partitions[:-1] or assignment.partitions)",
    ),
    Mutation(
        "lost-partitions-kept",
        "A member that was thrown out of the group does not call on_lost, and keeps its partitions.",
        CLASSIC,
        "ClassicMembership._queue_revocation",
        "if not self._member.generation.valid:\n            gone = owned",
        "if not self._member.generation.valid:\n            gone = []",
    ),
    Mutation(
        "heartbeats-too-late",
        "Heartbeats are sent after the session timeout.",
        CLASSIC_HEARTBEAT,
        "HeartbeatManager.poll",
        "now + self._config.heartbeat_interval_ms",
        "now + 2 * self._config.session_timeout_ms",
    ),
    Mutation(
        "rebalance-unnoticed",
        "A member ignores the response that the group rebalances.",
        CLASSIC_HEARTBEAT,
        "HeartbeatManager._react",
        "if member.state is MemberState.STABLE:",
        "if member.state is MemberState.UNJOINED:",
    ),
    Mutation(
        "heartbeat-flag-stays",
        "A heartbeat that fails stays in flight for ever.",
        CLASSIC_HEARTBEAT,
        "HeartbeatManager._on_reply",
        "self._in_flight = False",
        "self._in_flight = reply.error is not None",
    ),
    Mutation(
        "unknown-member-keeps-generation",
        "A member that the coordinator does not know continues with its generation.",
        CLASSIC_HEARTBEAT,
        "HeartbeatManager._react",
        "member.reset(str(error_for(code)), keep_member_id=reaction is GroupErrorAction.RESET_KEEP_ID)",
        "pass",
    ),
    Mutation(
        "poll-interval-not-restarted",
        "A poll does not restart the poll interval.",
        "coordinator.membership",
        "AbstractHeartbeatManager.poll_started",
        "self._poll_deadline = now",
        "self._poll_deadline = self._poll_deadline if self._poll_deadline < FOREVER else now",
    ),
    # --- the consumer protocol ---
    Mutation(
        "epoch-not-updated",
        "The member epoch of responses is ignored after the first one.",
        "coordinator.consumer_protocol.state",
        "ConsumerMember.update_epoch",
        "self.member_epoch = member_epoch",
        "self.member_epoch = self.member_epoch or member_epoch",
    ),
    Mutation(
        "fenced-member-stays-out",
        "A fenced member does not join again.",
        CONSUMER,
        "ConsumerMembership.on_fenced",
        "self._lose_all(lambda _now: member.transition_to(MemberState.JOINING), now)",
        "self._lose_all(None, now)",
    ),
    Mutation(
        "fenced-member-keeps-partitions",
        "A fenced member keeps its partitions.",
        CONSUMER,
        "ConsumerMembership._lose_all",
        "if owned:",
        "if owned is None:",
    ),
    Mutation(
        "revocation-without-callback",
        "Partitions are given up without a call of on_revoke.",
        CONSUMER,
        "ConsumerMembership._reconcile",
        "if known := self._known_to_listener(revoked):",
        "if known := self._known_to_listener([]):",
    ),
    Mutation(
        "consumer-heartbeat-stays-in-flight",
        "A heartbeat without a response stays in flight for ever.",
        CONSUMER_HEARTBEAT,
        "ConsumerHeartbeatManager._on_reply",
        "if number == self._in_flight:",
        "if number == self._in_flight and reply.error is None:",
    ),
    Mutation(
        "lookup-stays-in-flight",
        "A FindCoordinator request that fails stays in flight for ever.",
        "coordinator.lookup",
        "CoordinatorManager._on_reply",
        "self._in_flight = False",
        "self._in_flight = reply.error is not None",
    ),
    Mutation(
        "coordinator-not-forgotten",
        "A coordinator that refuses requests is not forgotten.",
        "coordinator.lookup",
        "CoordinatorManager.mark_unknown",
        "self.coordinator = None",
        "pass",
    ),
    Mutation(
        "commit-stays-in-flight",
        "A commit that has a response stays in flight for ever.",
        "coordinator.pending_offsets",
        "PendingRequest.response_received",
        "self.in_flight = False",
        "pass",
    ),
    Mutation(
        "failed-commit-reported-as-done",
        "A commit that the coordinator refuses for the moment is reported as successful.",
        COMMITS,
        "CommitManager._react",
        "commit.retry_or_fail(error_for(code, where), now, retriable=True)",
        "commit.promise.set_result(commit.offsets)",
    ),
    Mutation(
        "commit-of-next-offset",
        "Auto-commits contain the position after the next record.",
        "state.subscription",
        "SubscriptionState.all_consumed",
        "OffsetAndMetadata(position.offset,",
        "OffsetAndMetadata(position.offset + 1,",
    ),
    Mutation(
        "committed-offset-ignored",
        "A partition starts at the reset policy in spite of its committed offset.",
        "offsets.initial_positions",
        "PositionsManager._apply",
        "if offset is None or",
        "if offset is None or offset.offset >= 0 or",
    ),
    Mutation(
        "starts-behind-committed-offset",
        "A partition starts after the record at the committed offset.",
        "offsets.initial_positions",
        "PositionsManager._apply",
        "subscription.seek(tp, offset.offset,",
        "subscription.seek(tp, offset.offset + 1,",
    ),
    Mutation(
        "stale-data-returned",
        "Buffered data is returned although the position was changed.",
        "fetching.collector",
        "Collector._drain",
        "or position.offset != fetch.position",
        "",
    ),
    Mutation(
        "data-of-revoked-partition-returned",
        "Buffered data of a partition that is being revoked is returned.",
        "fetching.collector",
        "Collector._drain",
        "not state.fetchable\n            or position is None",
        "position is None",
    ),
    Mutation(
        "resume-ignored",
        "A paused partition stays paused.",
        "state.subscription",
        "SubscriptionState.resume",
        "self.get(tp).resume()",
        "self.get(tp)",
    ),
    # --- subscriptions, plugins, rebalances that move records ---
    Mutation(
        "unsubscribed-records-returned",
        "Records of topics that are no longer subscribed are returned.",
        "state.subscription",
        "SubscriptionState._update_fetchable",
        "not self.matches_subscription(topic)",
        "False",
    ),
    Mutation(
        "no-backoff-of-positions",
        "A lookup of committed offsets that fails is repeated without a pause.",
        "offsets.initial_positions",
        "PositionsManager._pause_ms",
        "self._backoff.failed(now)",
        "pass",
    ),
    Mutation(
        "no-commit-before-rebalance",
        "Positions are not committed before partitions are revoked.",
        "coordinator.membership",
        "Membership._commit_first",
        "self._steps.wait_for(self._commits.auto_commit_before_rebalance(now + self._config.max_poll_interval_ms))",
        "self._steps.wait_for(None)",
    ),
)
