"""OffsetFetch: requests the offsets that a group has committed.

Decides what to request and what each error code means. It does not decide which position follows from a committed
offset (`offsets/initial_positions.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import PollResult, Promise, Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.coordinator.commit_messages import Ids, last_version, name_of, offset_fetch_message
from kconsumer.coordinator.commit_protocol import CommitProtocol
from kconsumer.coordinator.error_actions import GroupErrorAction
from kconsumer.coordinator.error_hints import OFFSETS_HINTS
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.pending_offsets import PendingOffsetFetch, PendingRequests
from kconsumer.errors import TopicAuthorizationError, error_for
from kconsumer.schema.offsets import OFFSET_FETCH
from kconsumer.types import OffsetAndMetadata, TopicPartition

Committed = dict[TopicPartition, OffsetAndMetadata | None]
FIRST_VERSION_WITH_GROUPS = 8


class OffsetFetches:
    """Fetches the committed offsets of one group."""

    def __init__(self, protocol: CommitProtocol, coordinator: CoordinatorManager, backoff: ExponentialBackoff) -> None:
        subject = f"group {protocol.member.group_id!r}"
        progress = Progress(subject, "committed offsets", OFFSETS_HINTS, after=coordinator.progress)
        self.pending: PendingRequests[PendingOffsetFetch] = PendingRequests("fetch of committed offsets", progress)
        self._protocol = protocol
        self._coordinator = coordinator
        self._retry_backoff = backoff

    def fetch(self, partitions: Collection[TopicPartition], deadline: float) -> Promise[Committed]:
        """Fetch the committed offset of each partition, with retries until `deadline` (ms).

        Returns a promise of a dict that maps each partition to its committed offset, or to None if it has none. Each
        call has its own request and promise, even for the same partitions. So a timeout of one caller does not fail the
        fetch of another.
        """
        wanted = frozenset(partitions)
        promise: Promise[Committed] = Promise()
        if wanted:
            backoff = RetryTimer(self._retry_backoff)
            self.pending.append(PendingOffsetFetch(promise, backoff, deadline, self.pending.progress, wanted))
        else:
            promise.set_result({})
        return promise

    def poll(self, now: float) -> PollResult:
        """Returns the requests that are due. Must be called only while the coordinator is known."""
        return self.pending.send(self.pending, self._request, now)

    def _request(self, fetch: PendingOffsetFetch) -> UnsentRequest:
        ids = self._protocol.current_ids(fetch.partitions)
        group_id = self._protocol.member.group_id
        return UnsentRequest(
            OFFSET_FETCH,
            offset_fetch_message(group_id, self._protocol.fetch_generation, fetch.partitions, ids),
            lambda reply: self._on_reply(fetch, ids, reply),
            node=self._coordinator.connection_id,
            max_version=last_version(ids),
        )

    def _on_reply(self, fetch: PendingOffsetFetch, ids: Ids, reply: Reply) -> None:
        fetch.response_received()
        if reply.error is not None:
            if reply.error.retriable:
                self._coordinator.mark_unknown(reply.error, reply.now)
            fetch.retry_or_fail(reply.error, reply.now, retriable=reply.error.retriable)
        else:
            self._on_response(fetch, ids, reply)
        self.pending.drop_done()

    def _on_response(self, fetch: PendingOffsetFetch, ids: Ids, reply: Reply) -> None:
        group = reply.message.groups[0] if reply.version >= FIRST_VERSION_WITH_GROUPS else reply.message
        where = f"committed offsets of group {self._protocol.member.group_id!r}"
        if group.error_code:
            action = self._protocol.fetch_group_actions[group.error_code]
            self._react(fetch, group.error_code, action, where, reply.now)
            return
        found: Committed = dict.fromkeys(sorted(fetch.partitions))
        unauthorized: set[str] = set()
        for tp, partition in _partitions(group, ids):
            code = partition.error_code
            action = self._protocol.fetch_partition_actions[code]
            if action is GroupErrorAction.TOPIC_AUTHORIZATION:
                unauthorized.add(tp.topic)
            elif code:
                self._react(fetch, code, action, f"{where} for {tp}", reply.now)
                return
            elif partition.committed_offset >= 0:
                found[tp] = OffsetAndMetadata(
                    partition.committed_offset, partition.metadata, partition.committed_leader_epoch
                )
        if unauthorized:
            topics = frozenset(unauthorized)
            about = f"{where}: refused for {sorted(topics)}"
            fetch.promise.set_exception(TopicAuthorizationError(about, topics=topics, operation="Describe"))
        else:
            fetch.promise.set_result(found)

    def _react(self, fetch: PendingOffsetFetch, code: int, action: GroupErrorAction, where: str, now: float) -> None:
        error = error_for(code, where, operation="Describe")
        if code == Errors.UNKNOWN_TOPIC_ID:
            self._protocol.on_unknown_topic_id()
        if action is GroupErrorAction.STALE_EPOCH and self._protocol.member.may_commit:
            action = GroupErrorAction.RETRY
        if action is GroupErrorAction.COORDINATOR:
            self._coordinator.mark_unknown(error, now)
        retriable = action in (GroupErrorAction.RETRY, GroupErrorAction.COORDINATOR)
        fetch.retry_or_fail(error, now, retriable=retriable)


def _partitions(group: Any, ids: Ids) -> list[tuple[TopicPartition, Any]]:
    """Returns (partition, part of the response that describes it) for each partition in the response `group`.

    Leaves out topics whose ids were not requested.
    """
    return [
        (TopicPartition(name, partition.partition_index), partition)
        for topic in group.topics
        if (name := name_of(topic, ids)) is not None
        for partition in topic.partitions
    ]
