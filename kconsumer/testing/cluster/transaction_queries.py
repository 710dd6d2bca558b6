"""DescribeProducers, DescribeTransactions and ListTransactions, by which stuck transactions are found (KIP-664)."""

from __future__ import annotations

import re

from kconsumer._common.error_codes import Errors
from kconsumer.schema.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribedTransaction,
    DescribeProducersPartition,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsResponse,
    TransactionTopic,
)
from kconsumer.testing.cluster.acls import TOPIC, TRANSACTIONAL_ID
from kconsumer.testing.cluster.authorizer import ERRORS
from kconsumer.testing.cluster.fetch_reads import PartitionError, find_partition
from kconsumer.testing.cluster.requests import ClusterHandlers, Request, handles
from kconsumer.testing.cluster.topic import OFFSETS_TOPIC
from kconsumer.testing.cluster.transactions import ENDING, State, Transaction

STATES = {*(state.value for state in State), "Dead", "PrepareEpochFence"}


class TransactionQueries(ClusterHandlers):
    """Handles the requests that describe producers and transactions."""

    @handles(DESCRIBE_PRODUCERS)
    def _describe_producers(self, request: Request, _: float) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                DescribeProducersTopic(
                    name=topic.name,
                    partitions=[self._producers(request, topic.name, index) for index in topic.partition_indexes],
                )
                for topic in request.message.topics
            ]
        )

    def _producers(self, request: Request, topic: str, index: int) -> DescribeProducersPartition:
        """Returns the row of one partition: the producers that have written to it, or an error."""
        try:
            if not self._cluster.authorizer.allowed(request, "READ", TOPIC, topic):
                raise PartitionError(ERRORS[TOPIC])
            partition = find_partition(self._cluster, request.broker.id, topic, index)
            if partition.leader != request.broker.id:
                raise PartitionError(Errors.NOT_LEADER_OR_FOLLOWER)
        except PartitionError as error:
            text = None if topic in self._cluster.topics else "This server does not host this topic-partition."
            return DescribeProducersPartition(partition_index=index, error_code=error.code, error_message=text)
        return DescribeProducersPartition(partition_index=index, active_producers=partition.producers.states())

    @handles(DESCRIBE_TRANSACTIONS)
    def _describe(self, request: Request, _: float) -> DescribeTransactionsResponse:
        rows = [self._described(request, name) for name in request.message.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=rows)

    def _described(self, request: Request, transactional_id: str) -> DescribedTransaction:
        """Returns the row of one transactional id: the state of its transaction, or an error."""
        row = DescribedTransaction(transactional_id=transactional_id)
        found = self._cluster.transactions.get(transactional_id)
        if not self._cluster.authorizer.allowed(request, "DESCRIBE", TRANSACTIONAL_ID, transactional_id):
            row.error_code = ERRORS[TRANSACTIONAL_ID]
        elif not transactional_id:
            row.error_code = Errors.INVALID_REQUEST
        elif self._cluster.coordinator(transactional_id, "transaction") is not request.broker:
            row.error_code = Errors.NOT_COORDINATOR
        elif found is None:
            row.error_code = Errors.TRANSACTIONAL_ID_NOT_FOUND
        else:
            row.transaction_state, row.transaction_timeout_ms = found.state.value, found.timeout_ms
            row.transaction_start_time_ms = found.started_ms
            row.producer_id, row.producer_epoch = found.producer_id, found.producer_epoch
            row.topics = self._topics(request, found)
        return row

    def _topics(self, request: Request, transaction: Transaction) -> list[TransactionTopic]:
        """Returns the partitions of an open transaction by topic, those of committed offsets included."""
        if transaction.state not in (State.ONGOING, *ENDING):
            return []
        offsets = {self._cluster.coordinator_partition(group, "group").index for group in transaction.groups}
        keys = {*transaction.partitions, *((OFFSETS_TOPIC, index) for index in offsets)}
        return [
            TransactionTopic(topic=name, partitions=sorted(index for topic, index in keys if topic == name))
            for name in sorted({topic for topic, _ in keys})
            if self._cluster.authorizer.allowed(request, "DESCRIBE", TOPIC, name)
        ]

    @handles(LIST_TRANSACTIONS)
    def _list(self, request: Request, now: float) -> ListTransactionsResponse:
        message = request.message
        unknown = [name for name in message.state_filters if name not in STATES]
        if unknown and len(unknown) == len(message.state_filters):
            return ListTransactionsResponse(unknown_state_filters=unknown)
        try:
            pattern = re.compile(message.transactional_id_pattern or "(?s).*")
        except re.error:
            return ListTransactionsResponse(error_code=Errors.INVALID_REGULAR_EXPRESSION)
        wall_ms = self._cluster.wall_ms(now, request.broker)
        rows = [
            ListedTransaction(
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.value,
            )
            for found in self._cluster.transactions.all()
            if self._cluster.coordinator(found.transactional_id, "transaction") is request.broker
            and self._cluster.authorizer.allowed(request, "DESCRIBE", TRANSACTIONAL_ID, found.transactional_id)
            and (not message.state_filters or found.state.value in message.state_filters)
            and (not message.producer_id_filters or found.producer_id in message.producer_id_filters)
            and (message.duration_filter < 0 or wall_ms - found.started_ms > message.duration_filter)
            and pattern.fullmatch(found.transactional_id)
        ]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
