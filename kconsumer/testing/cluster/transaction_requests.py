"""Handles InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn for the transaction coordinator."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
from kconsumer.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdResponse,
)
from kconsumer.testing.cluster.acls import TOPIC, TRANSACTIONAL_ID
from kconsumer.testing.cluster.authorizer import ERRORS
from kconsumer.testing.cluster.fetch_reads import PartitionError, find_partition
from kconsumer.testing.cluster.requests import Request, handles
from kconsumer.testing.cluster.state import ClusterHandlers, ClusterState
from kconsumer.testing.cluster.topic import OFFSETS_TOPIC
from kconsumer.testing.cluster.transactions import (
    COMPLETE,
    ENDING,
    ENDS,
    ProducerIdAndEpoch,
    State,
    Transaction,
    TransactionError,
    Transactions,
)

FIRST_OF_BROKERS = 4  # the first version of AddPartitionsToTxn with several transactions
FIRST_WITH_EPOCH_BUMP = 5  # the first version of EndTxn after which the producer has the next epoch

#: For each API, the first version in which the error is PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
FIRST_WITH_FENCED = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}

#: A partition that a producer adds to its transaction, by topic and index.
Key = tuple[str, int]


class TransactionRequests(ClusterHandlers):
    """Handles the requests of producers to the transaction coordinator."""

    def __init__(self, cluster: ClusterState, transactions: Transactions) -> None:
        super().__init__(cluster)
        self._transactions = transactions

    def _require_coordinator(self, transactional_id: str, request: Request) -> None:
        """Raise TransactionError if the transactional id is empty, or if another broker is its coordinator."""
        if not transactional_id:
            raise TransactionError(Errors.INVALID_REQUEST)
        if self._cluster.coordinator(transactional_id, "transaction") is not request.broker:
            raise TransactionError(Errors.NOT_COORDINATOR)

    @handles(INIT_PRODUCER_ID)
    def _init_producer_id(self, request: Request, now: float) -> InitProducerIdResponse:
        message = request.message
        transactions = self._transactions
        if message.transactional_id is None:
            return InitProducerIdResponse(producer_id=transactions.new_producer_id(), producer_epoch=0)
        try:
            self._require_coordinator(message.transactional_id, request)
            expected = message.producer_id, message.producer_epoch
            if expected.count(-1) == 1:
                raise TransactionError(Errors.INVALID_REQUEST)
            found = transactions.init_producer(message.transactional_id, message.transaction_timeout_ms, now, expected)
        except TransactionError as error:
            return InitProducerIdResponse(error_code=_code(error, request), producer_epoch=-1)
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    # --- AddPartitionsToTxn ---

    @handles(ADD_PARTITIONS_TO_TXN)
    def _add_partitions(self, request: Request, now: float) -> AddPartitionsToTxnResponse:
        message = request.message
        if request.version < FIRST_OF_BROKERS:
            results = self._add(
                request,
                message.v3_and_below_transactional_id,
                (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
                message.v3_and_below_topics,
                now,
            )
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        found = []
        for row in message.transactions:
            producer = row.producer_id, row.producer_epoch
            if row.verify_only:
                results = self._verify(request, row.transactional_id, producer, row.topics)
            else:
                results = self._add(request, row.transactional_id, producer, row.topics, now)
            found.append(AddPartitionsToTxnResult(transactional_id=row.transactional_id, topic_results=results))
        return AddPartitionsToTxnResponse(results_by_transaction=found)

    def _add(
        self,
        request: Request,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: list[AddPartitionsToTxnTopic],
        now: float,
    ) -> list[AddPartitionsToTxnTopicResult]:
        """Add partitions to a transaction. If one of them is missing or not writable, none is added.

        Returns the response rows.
        """
        partitions = {key: self._cluster.partition(*key) for key in _keys(topics)}
        errors: dict[Key, int] = dict.fromkeys(partitions, Errors.NONE)
        for key, partition in partitions.items():
            if not self._cluster.acls.allowed(request, "WRITE", TOPIC, key[0]):
                errors[key] = Errors.TOPIC_AUTHORIZATION_FAILED
            elif partition is None:
                errors[key] = Errors.UNKNOWN_TOPIC_OR_PARTITION
        if any(errors.values()):
            return _results(topics, {key: error or Errors.OPERATION_NOT_ATTEMPTED for key, error in errors.items()})
        try:
            self._require_coordinator(transactional_id, request)
            transaction = self._transactions.check(transactional_id, producer)
        except TransactionError as error:
            return _results(topics, dict.fromkeys(errors, _code(error, request)))
        found = [partition for partition in partitions.values() if partition is not None]
        self._transactions.add_partitions(transaction, found, now)
        return _results(topics, errors)

    def _verify(
        self,
        request: Request,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: list[AddPartitionsToTxnTopic],
    ) -> list[AddPartitionsToTxnTopicResult]:
        """Check whether partitions are in a transaction, without adding them. Returns the response rows."""
        keys = _keys(topics)
        try:
            self._require_coordinator(transactional_id, request)
            present = self._transactions.check(transactional_id, producer).partitions
        except TransactionError as error:
            return _results(topics, dict.fromkeys(keys, _code(error, request)))
        absent = Errors.TRANSACTION_ABORTABLE
        return _results(topics, {key: Errors.NONE if key in present else absent for key in keys})

    # --- AddOffsetsToTxn ---

    @handles(ADD_OFFSETS_TO_TXN)
    def _add_offsets(self, request: Request, now: float) -> AddOffsetsToTxnResponse:
        message = request.message
        try:
            self._require_coordinator(message.transactional_id, request)
            producer = message.producer_id, message.producer_epoch
            transaction = self._transactions.check(message.transactional_id, producer)
        except TransactionError as error:
            return AddOffsetsToTxnResponse(error_code=_code(error, request))
        self._transactions.add_group(transaction, message.group_id, now)
        return AddOffsetsToTxnResponse()

    # --- EndTxn ---

    @handles(END_TXN)
    def _end(self, request: Request, now: float) -> EndTxnResponse:
        message = request.message
        try:
            self._require_coordinator(message.transactional_id, request)
            transaction = self._end_checked(message, request.version >= FIRST_WITH_EPOCH_BUMP, now)
        except TransactionError as error:
            return EndTxnResponse(error_code=_code(error, request))
        return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)

    def _end_checked(self, message: EndTxnRequest, second_version: bool, now: float) -> Transaction:
        """End the transaction of an EndTxn request. Returns the state of its transactional id.

        If an equal request has ended the transaction before, only returns the state. Raises TransactionError if the
        request is refused.
        """
        transactions = self._transactions
        transaction = transactions.get(message.transactional_id)
        if transaction is None:
            raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
        repeated = _is_repeated(transaction, message)
        if transaction.producer_id != message.producer_id and not repeated:
            raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
        if transaction.producer_epoch != message.producer_epoch and not repeated:
            raise TransactionError(Errors.PRODUCER_FENCED)
        empty_abort = second_version and not message.committed and not repeated
        if transaction.state is State.ONGOING or (empty_abort and transaction.state not in ENDING):
            transactions.end(transaction, now, commit=message.committed, bump_epoch=second_version)
            return transaction
        if transaction.state not in ENDS[message.committed]:
            raise TransactionError(Errors.INVALID_TXN_STATE)
        if transaction.state in ENDING:
            raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
        return transaction


def _is_repeated(transaction: Transaction, message: EndTxnRequest) -> bool:
    """Returns whether an EndTxn request repeats one that has already given the producer its next epoch."""
    if not transaction.second_version or transaction.state not in (*ENDING, *COMPLETE):
        return False
    same_id = transaction.producer_id == message.producer_id
    next_epoch = same_id and transaction.producer_epoch == message.producer_epoch + 1
    new_id = transaction.previous_producer_id == message.producer_id and transaction.producer_epoch == 0
    return next_epoch or new_id


def _keys(topics: list[AddPartitionsToTxnTopic]) -> list[Key]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(topics: list[AddPartitionsToTxnTopic], errors: Mapping[Key, int]) -> list[AddPartitionsToTxnTopicResult]:
    """Returns the error codes of partitions as response rows."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _code(error: TransactionError, request: Request) -> int:
    """Returns the error code of `error`, for the version of the request.

    If this version does not have PRODUCER_FENCED, returns INVALID_PRODUCER_EPOCH in place of it.
    """
    if error.code == Errors.PRODUCER_FENCED and request.version < FIRST_WITH_FENCED[request.api]:
        return Errors.INVALID_PRODUCER_EPOCH
    return error.code


STATES = {*(state.value for state in State), "Dead", "PrepareEpochFence"}


class TransactionQueries(ClusterHandlers):
    """Handles the requests that describe producers and transactions."""

    def __init__(self, cluster: ClusterState, transactions: Transactions) -> None:
        super().__init__(cluster)
        self._transactions = transactions

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
            allowed = self._cluster.acls.allowed(request, "READ", TOPIC, topic)
            if not allowed:
                raise PartitionError(ERRORS[TOPIC])
            partition = find_partition(self._cluster, request.broker.id, topic, index)
            if partition.leader != request.broker.id:
                raise PartitionError(Errors.NOT_LEADER_OR_FOLLOWER)
        except PartitionError as error:
            known = allowed and topic in self._cluster.topics
            text = None if known else "This server does not host this topic-partition, or the client may not read it."
            return DescribeProducersPartition(partition_index=index, error_code=error.code, error_message=text)
        return DescribeProducersPartition(partition_index=index, active_producers=partition.producers.states())

    @handles(DESCRIBE_TRANSACTIONS)
    def _describe(self, request: Request, _: float) -> DescribeTransactionsResponse:
        rows = [self._described(request, name) for name in request.message.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=rows)

    def _described(self, request: Request, transactional_id: str) -> DescribedTransaction:
        """Returns the row of one transactional id: the state of its transaction, or an error."""
        row = DescribedTransaction(transactional_id=transactional_id)
        found = self._transactions.get(transactional_id)
        if not self._cluster.acls.allowed(request, "DESCRIBE", TRANSACTIONAL_ID, transactional_id):
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
            if self._cluster.acls.allowed(request, "DESCRIBE", TOPIC, name)
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
            for found in self._transactions.all()
            if self._cluster.coordinator(found.transactional_id, "transaction") is request.broker
            and self._cluster.acls.allowed(request, "DESCRIBE", TRANSACTIONAL_ID, found.transactional_id)
            and (not message.state_filters or found.state.value in message.state_filters)
            and (not message.producer_id_filters or found.producer_id in message.producer_id_filters)
            and (message.duration_filter < 0 or wall_ms - found.started_ms > message.duration_filter)
            and pattern.fullmatch(found.transactional_id)
        ]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
