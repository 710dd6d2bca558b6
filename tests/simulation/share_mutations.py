"""Defects of share consumers that the simulation must find. Some of them the library had."""

from __future__ import annotations

from simulation.mutation import Mutation

MUTATIONS = [
    Mutation(
        "lock-counts-from-the-response",
        "A member counts the time of a lock from the response, which may arrive long after the broker has locked.",
        "share.responses",
        "ShareResponseHandler._locked_until",
        "reply.sent_at + self.lock_timeout_ms",
        "reply.now + self.lock_timeout_ms",
    ),
    Mutation(
        "expired-records-returned",
        "A poll returns buffered records whose lock has expired.",
        "share.buffer",
        "ShareBuffer.drop_expired",
        "if fetch.locked_until <= now:",
        "if now < 0:",
    ),
    Mutation(
        "expired-renewals-returned",
        "A poll returns renewed records whose lock has expired since.",
        "share.acknowledgements",
        "AcquiredBatch.drop_expired",
        "if self._renewed_until[offset] <= now",
        "if now < 0",
    ),
    Mutation(
        "late-renewals-returned",
        "A poll returns records whose lock had expired before they were renewed.",
        "share.acknowledgements",
        "AcquiredBatch.renewals_done",
        "and lock.since < self.locked_until(offset):",
        "and lock:",
    ),
    Mutation(
        "records-before-unsubscribe-returned",
        "A poll returns records of a fetch that was in flight when the member unsubscribed.",
        "share.manager",
        "ShareManager._on_fetched",
        "{} if broker.closing else wanted",
        "wanted",
    ),
    Mutation(
        "unsubscribed-records-returned",
        "A poll returns buffered records of a topic that is not subscribed any more.",
        "share.engine",
        "ShareEngine._next_fetch",
        "if fetch.topic_partition.topic in parts.subscription.subscribed_topics():",
        "if parts.subscription.subscribed_topics():",
    ),
    Mutation(
        "unreached-records-accepted",
        "The next poll accepts the records that a `for` loop has not reached.",
        "share.engine",
        "ShareEngine._finish_last_poll",
        "left = offsets_of(unreached())",
        "left: dict[TopicPartition, set[int]] = {}",
    ),
    Mutation(
        "one-type-for-all",
        "All records of a range are acknowledged with the type of the first one.",
        "share.acknowledgements",
        "_add_batch",
        "kinds[:1] if len(set(kinds)) == 1 else kinds",
        "kinds[:1]",
    ),
    Mutation(
        "dead-letters-accepted",
        "kconsumer.parallel accepts a record whose last attempt has failed.",
        "parallel.acquired_records",
        "ShareTracker.skip",
        "AcknowledgeType.REJECT",
        "AcknowledgeType.ACCEPT",
    ),
    Mutation(
        "accepted-at-close",
        "close() accepts the records of the last poll in implicit mode.",
        "share.engine",
        "ShareEngine._end_sessions",
        "self._send(None, timer.deadline)",
        "self._accept({}) or self._send(None, timer.deadline)",
    ),
    Mutation(
        "failures-reported-as-success",
        "Acknowledgements of a request that has failed are reported as successful.",
        "share.manager",
        "ShareManager._on_failed",
        "self._complete(each, failure.error, now)",
        "self._complete(each, None, now)",
    ),
]
