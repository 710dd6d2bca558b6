"""TxnOffsetCommit: offsets that become the committed ones when their transaction is committed."""

from __future__ import annotations

from functools import partial

from kconsumer._common.error_codes import Errors
from kconsumer.schema.transactions import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kconsumer.testing.cluster.groups.group import GroupError, GroupHandlers
from kconsumer.testing.cluster.groups.offset_commits import (
    KnownPartition,
    PartitionErrors,
    commit_each,
    committed_offset,
    group_for_commit,
    known_partitions,
)
from kconsumer.testing.cluster.requests import Request, handles

TOPIC_IDS_VERSION = 6
LOADING_VERSION = 2  # before, producers cannot handle COORDINATOR_LOAD_IN_PROGRESS
STALE_MEMBER: dict[int, int] = {Errors.STALE_MEMBER_EPOCH: Errors.ILLEGAL_GENERATION}


class OffsetTransactions(GroupHandlers):
    """Handles TxnOffsetCommit."""

    @handles(TXN_OFFSET_COMMIT)
    def _commit(self, request: Request, now: float) -> TxnOffsetCommitResponse:
        errors = PartitionErrors()
        by_id = request.version >= TOPIC_IDS_VERSION
        partitions = known_partitions(self._coordinator.cluster, request.message.topics, errors, by_id=by_id)
        commit_each(partitions, errors, partial(self._accept, request, now), partial(self._stage, request, now))
        return TxnOffsetCommitResponse(topics=[_response_topic(*item) for item in errors.topics.items()])

    def _accept(self, request: Request, now: float, partitions: list[KnownPartition]) -> None:
        """Raise GroupError if the transaction or the group does not accept the offsets."""
        message = request.message
        self._validate(request, now)
        error = self._coordinator.cluster.transactions.verify_group(
            message.transactional_id,
            (message.producer_id, message.producer_epoch),
            message.group_id,
            request.version,
            now,
        )
        if error:
            raise GroupError(error)
        epoch = message.generation_id_or_member_epoch
        create = epoch < 0 or self._coordinator.is_old(message.group_id)
        missing = None if create else Errors.ILLEGAL_GENERATION
        group = group_for_commit(self._coordinator, message.group_id, missing, now)
        try:
            group.validate_offset_commit(
                message.member_id, message.group_instance_id, epoch, transactional=True, version=request.version
            )
            for partition in partitions:
                group.validate_commit_partition(message.member_id, epoch, partition.topic.name, partition.index)
        except GroupError as rejected:
            raise GroupError(STALE_MEMBER.get(rejected.error, rejected.error)) from rejected

    def _validate(self, request: Request, now: float) -> None:
        """Raise GroupError if the broker is not the coordinator, or has not loaded the group.

        In the latter case, the error is COORDINATOR_LOAD_IN_PROGRESS, or COORDINATOR_NOT_AVAILABLE in versions that do
        not have this error.
        """
        try:
            self._coordinator.validate(request.message.group_id, request, now)
        except GroupError as error:
            if error.error == Errors.COORDINATOR_LOAD_IN_PROGRESS and request.version < LOADING_VERSION:
                raise GroupError(Errors.COORDINATOR_NOT_AVAILABLE) from error
            raise

    def _stage(self, request: Request, now: float, partition: KnownPartition) -> int:
        """Store the offset of one partition until the transaction ends. Returns the error code."""
        offset = committed_offset(self._coordinator.cluster, partition.request, now)
        if offset is None:
            return Errors.OFFSET_METADATA_TOO_LARGE
        message = request.message
        self._coordinator.offsets.stage(
            message.producer_id, message.group_id, partition.topic.name, partition.index, offset
        )
        return Errors.NONE


def _response_topic(key: tuple[str, bytes], rows: list[tuple[int, int]]) -> TxnOffsetCommitResponseTopic:
    name, topic_id = key
    partitions = [TxnOffsetCommitResponsePartition(partition_index=index, error_code=error) for index, error in rows]
    return TxnOffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
