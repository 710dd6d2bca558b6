"""Defects that reviewers found in the library, put back as mutations of the present code.

`NOT_SIMULATED` lists the findings that no simulation can meet, with the reason and a test that shows each of them.
"""

from __future__ import annotations

from simulation.mutation import Mutation

CLASSIC = "coordinator.classic_protocol.manager"
#: Lets the handlers of simulated signals run. The library does so only after a wait, when no step is unfinished.
RUN_HANDLERS = "{indent}from kconsumer._internal.deferred_signals import SIGNALS\n\n{indent}SIGNALS.run_noted()\n"

FINDINGS = (
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
        "A JoinGroup leaves its number behind, so the member waits for a response for ever.",
        "coordinator.classic_protocol.numbered_requests",
        "NumberedRequests.ended",
        "self.forget(number)",
        "self._abandoned.discard(number)",
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
        "_common.backoff",
        "RetryTimer.failed",
        "now + self._backoff.delay_ms(self.attempts)",
        "now",
    ),
    Mutation(
        "auto-commit-after-collect",
        "The auto-commit contains the records of the poll that starts it.",
        "consumer",
        "Consumer._poll",
        "return self._engine.poll(timeout_ms, max_records, max_bytes)",
        "engine = self._engine\n"
        "        records = engine.poll(timeout_ms, max_records, max_bytes)\n"
        "        group = engine.components.group\n"
        "        if group is not None:\n"
        "            with engine.changing():\n"
        "                engine.delivery.open = False\n"
        "                group.commits.maybe_auto_commit(engine.components.clock.now())\n"
        "        return records",
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
        "self._assignment.mark_awaiting_callback(added, awaiting=False)",
        "pass",
    ),
    Mutation(
        "deserializer-holds-lock",
        "Deserializers run while the lock is held, so no heartbeats are sent.",
        "fetching.collector",
        "Collector._processed",
        "with self._unlocked():",
        "if self._unlocked:",
    ),
    Mutation(
        "unsubscribed-flag-stays",
        "A partition whose topic was unsubscribed for a moment is never fetched again.",
        "state.assignment",
        "Assignment.set_unsubscribed",
        "if flags[tp.topic] != state.unsubscribed:",
        "if flags[tp.topic] and not state.unsubscribed:",
    ),
    Mutation(
        "handlers-inside-a-step",
        "A signal handler that raises runs after responses have arrived, and before they are handled.",
        "engine.dispatcher",
        "Dispatcher._end_step",
        "if ended:\n            woken_at",
        RUN_HANDLERS.format(indent=" " * 8).lstrip() + "        if ended:\n            woken_at",
    ),
    Mutation(
        "interrupted-leave",
        "If on_revoke is interrupted in unsubscribe(), the membership does not end.",
        "engine.operations",
        "Operations.leave",
        "finally:  # also after Ctrl-C in the callback: it is not called again, so the membership must end now",
        "else:",
    ),
    Mutation(
        "lookup-not-abandoned",
        "A lookup of committed offsets continues for partitions that were revoked, and the others wait for it.",
        "offsets.initial_positions",
        "PositionsManager.poll",
        "if self._requested_partitions == frozenset(waiting):",
        "if self._requested_partitions:",
    ),
    Mutation(
        "shared-offset-fetch",
        "committed() shares the lookup of the positions, so one wakeup ends both with an error.",
        "coordinator.offset_fetches",
        "OffsetFetches.fetch",
        "        promise: Promise[Committed] = Promise()\n",
        "        for pending in self.pending:\n"
        "            if pending.partitions == wanted:\n"
        "                return pending.promise\n"
        "        promise: Promise[Committed] = Promise()\n",
    ),
    Mutation(
        "closed-handshake-is-fatal",
        "If a broker closes two TLS handshakes in a row, poll() raises AuthenticationError.",
        "net.attempts",
        "ConnectionAttempts.continue_connecting",
        "            self._on_closed_in_handshake()\n",
        "            if self.failures:\n"
        "                from kconsumer.errors import AuthenticationError\n"
        "                self.disconnect(AuthenticationError(str(error)), now)\n"
        "                return\n",
    ),
    Mutation(
        "arriving-response-expires",
        "A request times out while its response is arriving.",
        "net.node",
        "NodeConnection._is_arriving",
        "return self.progress_at >= entered_at or (connection is not None and connection.receiving)",
        "return False",
    ),
    Mutation(
        "no-minimum-of-output",
        "A batch that is compressed by more than a factor of 64 cannot be read, however small it is.",
        "_internal.compression",
        "output_limit",
        "max(MIN_OUTPUT_LIMIT, MAX_RATIO * compressed_bytes)",
        "MAX_RATIO * compressed_bytes",
    ),
)

#: By finding: why a simulation does not meet it, and a test that fails if the defect is put back.
NOT_SIMULATED = {
    "commit() of a value that is no offset": (
        "Such values are refused before anything is queued. The programs of members commit what a poll has returned.",
        "tests/unit/public/test_offset_arguments.py::test_public_methods_refuse_before_anything_is_queued",
    ),
    "an exception of a signal handler at any bytecode": (
        (
            "A task of the simulation runs until it waits, so handlers run after waits and in user code only. "
            "These points are met: handlers-inside-a-step, interrupted-leave."
        ),
        "tests/brokerless/test_interruptions.py::test_exception_at_any_call",
    ),
    "close() of a signal handler at any bytecode": (
        "The same. CPython's SimpleQueue, in which a wait did not end after a handler, is not used any more.",
        "tests/brokerless/test_signal_handlers.py::test_handler_inside_a_call",
    ),
    "commits with and without topic ids in one request": (
        (
            "Needs more than ten commits in flight, of a topic that the consumer has no metadata of. The programs "
            "commit what they have read, so they know the ids of all topics."
        ),
        "tests/unit/coordinator/test_commit_topic_ids.py::test_commits_with_and_without_ids_are_not_merged",
    ),
    "a response that its handler cannot handle": (
        "The cluster model sends only valid responses, and the library logs the exception, which is a violation.",
        "tests/unit/engine/test_dispatcher.py::test_failing_handler_does_not_silence_the_others",
    ),
    "a fatal error of the consumer protocol that assign() does not end": (
        "No member of a group changes to assign(): the journal knows owners only from rebalance callbacks.",
        "tests/unit/coordinator/test_consumer_membership.py::test_a_fatal_error_ends_with_the_subscription",
    ),
    "commit(timeout=0) sends nothing": (
        (
            "An application cannot see the difference: it gets TimeoutError in both cases, and the next commit "
            "contains the same offsets."
        ),
        "tests/unit/coordinator/test_commit_manager.py::test_commit_without_time_is_sent_once",
    ),
    "read_range skips rows after an interruption": (
        (
            "The position moves after the last wait of a step, and nothing waits until the rows are returned. So "
            "only an exception between two bytecodes can come in between."
        ),
        "tests/brokerless/test_ranges_interrupted.py::test_a_range_interrupted_at_any_call",
    ),
    "batches that are decompressed in the background, and the garbage collector": (
        (
            "The threads without Python are not simulated, and the order in which the collector visits objects "
            "does not follow from a seed."
        ),
        "tests/brokerless/test_dropped_consumers.py::test_batches_decompressed_ahead",
    ),
}
