"""Handles OffsetCommit and TxnOffsetCommit: checks which partitions exist and whether the group accepts the commit.

The offsets of TxnOffsetCommit become the committed ones when their transaction is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.offsets import (
    OFFSET_COMMIT,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kconsumer.schema.transactions import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator, GroupHandlers
from kconsumer.testing.cluster.groups.group import Group
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import GroupError, Request, handles
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.topic import Topic
from kconsumer.testing.cluster.transactions import Transactions

TOPIC_IDS_VERSION = 10
GROUP_NOT_FOUND_VERSION = 9  # before, a missing group is reported as ILLEGAL_GENERATION
NO_RETENTION = -1


class PartitionErrors:
    """The error of each partition in a request about partitions, by topic, in the order of Kafka's responses."""

    def __init__(self) -> None:
        self.topics: dict[tuple[str, bytes], list[tuple[int, int]]] = {}  # by name and id as in the request

    def add(self, topic: Any, partition: int, error: int) -> None:
        """Add the error of one partition. `topic` is its row in the request."""
        self.topics.setdefault((topic.name, getattr(topic, "topic_id", b"")), []).append((partition, error))


class KnownPartition:
    """An existing partition that a request names: its topic and its rows in the request."""

    def __init__(self, topic: Topic, row: Any, partition: Any) -> None:
        self.topic = topic
        self.row = row  # of the topic in the request
        self.request = partition  # the row of the partition in the request
        self.index: int = partition.partition_index


def known_partitions(
    cluster: ClusterState, topics: Sequence[Any], errors: PartitionErrors, *, by_id: bool = False
) -> list[KnownPartition]:
    """Returns the partitions of a request that exist. Adds an error for each other partition to `errors`.

    `by_id`: whether the request identifies topics by id.
    """
    known = []
    for row in topics:
        topic = cluster.topics_by_id.get(row.topic_id) if by_id else cluster.topics.get(row.name)
        missing = Errors.UNKNOWN_TOPIC_ID if by_id and topic is None else Errors.UNKNOWN_TOPIC_OR_PARTITION
        for partition in row.partitions:
            if topic is not None and 0 <= partition.partition_index < len(topic.partitions):
                known.append(KnownPartition(topic, row, partition))
            else:
                errors.add(row, partition.partition_index, missing)
    return known


def commit_each(
    partitions: list[KnownPartition],
    errors: PartitionErrors,
    accept: Callable[[list[KnownPartition]], None],
    store: Callable[[KnownPartition], int],
) -> None:
    """Store the offsets of `partitions`, and add the error code of each partition to `errors`.

    `accept`: called once with all partitions. If it raises GroupError, no offset is stored, and all partitions get the
    error code of this exception. It is not called if `partitions` is empty.
    `store`: stores the offset of one partition, and returns its error code.
    """
    try:
        if partitions:
            accept(partitions)
    except GroupError as error:
        for partition in partitions:
            errors.add(partition.row, partition.index, error.error)
        return
    for partition in partitions:
        errors.add(partition.row, partition.index, store(partition))


class OffsetCommits(GroupHandlers):
    """Handles OffsetCommit."""

    # --- OffsetCommit ---

    @handles(OFFSET_COMMIT)
    def _commit(self, request: Request, now: float) -> OffsetCommitResponse:
        errors = PartitionErrors()
        by_id = request.version >= TOPIC_IDS_VERSION
        partitions = known_partitions(self._coordinator.cluster, request.message.topics, errors, by_id=by_id)
        commit_each(partitions, errors, partial(self._accept, request, now), partial(self._store, request, now))
        return OffsetCommitResponse(topics=[_response_topic(*item) for item in errors.topics.items()])

    def _accept(self, request: Request, now: float, partitions: list[KnownPartition]) -> None:
        """Raise GroupError if the group does not accept a commit."""
        message = request.message
        self._coordinator.validate(message.group_id, request, now, allow_empty_id=True)
        epoch = message.generation_id_or_member_epoch
        named = request.version >= GROUP_NOT_FOUND_VERSION and not self._coordinator.is_old(message.group_id)
        missing = Errors.GROUP_ID_NOT_FOUND if named else Errors.ILLEGAL_GENERATION
        group = group_for_commit(self._coordinator, message.group_id, missing if epoch >= 0 else None, now)
        group.validate_offset_commit(
            message.member_id, message.group_instance_id, epoch, transactional=False, version=request.version
        )
        for partition in partitions:
            group.validate_commit_partition(message.member_id, epoch, partition.topic.name, partition.index)
        group.on_offset_commit(message.member_id, now)

    def _store(self, request: Request, now: float, partition: KnownPartition) -> int:
        message = request.message
        offset = committed_offset(self._coordinator.cluster, partition.request, now, message.retention_time_ms)
        if offset is None:
            return Errors.OFFSET_METADATA_TOO_LARGE
        self._coordinator.cluster.offsets.put(message.group_id, partition.topic.name, partition.index, offset)
        return Errors.NONE


def group_for_commit(coordinator: GroupCoordinator, group_id: str, missing: int | None, now: float) -> Group:
    """Returns the group of a commit. If there is none, raises GroupError with the code `missing`.

    If `missing` is None, creates a classic group instead. This is allowed only for commits without a generation or
    member epoch.
    """
    group = coordinator.get(group_id)
    if group is None:
        if missing is not None:
            raise GroupError(missing)
        group = ClassicGroup(coordinator, group_id, now)
        coordinator.add(group)
    return group


def committed_offset(
    cluster: ClusterState, row: Any, now: float, retention_ms: int = NO_RETENTION
) -> CommittedOffset | None:
    """Returns the offset to store for a partition's row of a request, or None if its metadata is too long."""
    metadata = row.committed_metadata or ""
    if len(metadata.encode("utf-16-be")) // 2 > cluster.settings.offset_metadata_max_bytes:
        return None
    wall_ms = cluster.wall_ms(now)
    expire_ms = None if retention_ms == NO_RETENTION else wall_ms + retention_ms
    return CommittedOffset(row.committed_offset, row.committed_leader_epoch, metadata, wall_ms, expire_ms)


def _response_topic(key: tuple[str, bytes], rows: list[tuple[int, int]]) -> OffsetCommitResponseTopic:
    name, topic_id = key
    partitions = [OffsetCommitResponsePartition(partition_index=index, error_code=error) for index, error in rows]
    return OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)


TXN_TOPIC_IDS_VERSION = 6
LOADING_VERSION = 2  # before, producers cannot handle COORDINATOR_LOAD_IN_PROGRESS
STALE_MEMBER: dict[int, int] = {Errors.STALE_MEMBER_EPOCH: Errors.ILLEGAL_GENERATION}


class OffsetTransactions(GroupHandlers):
    """Handles TxnOffsetCommit."""

    def __init__(self, coordinator: GroupCoordinator, transactions: Transactions) -> None:
        super().__init__(coordinator)
        self._transactions = transactions

    @handles(TXN_OFFSET_COMMIT)
    def _commit(self, request: Request, now: float) -> TxnOffsetCommitResponse:
        errors = PartitionErrors()
        by_id = request.version >= TXN_TOPIC_IDS_VERSION
        partitions = known_partitions(self._coordinator.cluster, request.message.topics, errors, by_id=by_id)
        commit_each(partitions, errors, partial(self._accept, request, now), partial(self._stage, request, now))
        return TxnOffsetCommitResponse(topics=[_transaction_topic(*item) for item in errors.topics.items()])

    def _accept(self, request: Request, now: float, partitions: list[KnownPartition]) -> None:
        """Raise GroupError if the transaction or the group does not accept the offsets."""
        message = request.message
        self._validate(request, now)
        error = self._transactions.verify_group(
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
        self._coordinator.cluster.offsets.stage(
            message.producer_id, message.group_id, partition.topic.name, partition.index, offset
        )
        return Errors.NONE


def _transaction_topic(key: tuple[str, bytes], rows: list[tuple[int, int]]) -> TxnOffsetCommitResponseTopic:
    name, topic_id = key
    partitions = [TxnOffsetCommitResponsePartition(partition_index=index, error_code=error) for index, error in rows]
    return TxnOffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
