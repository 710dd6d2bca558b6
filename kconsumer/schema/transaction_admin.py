"""The APIs by which an administrator finds transactions that do not end (KIP-664). `kconsumer.testing` serves them.

DescribeProducers asks the leader of a partition, the others ask transaction coordinators.
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT16, INT32, INT64, STRING, Api, F, Message, array


class TopicRequest(Message):
    name: str = F(STRING)
    partition_indexes: list[int] = F(array(INT32))


class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = F(array(TopicRequest))


class ProducerState(Message):
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT32)
    last_sequence: int = F(INT32, default=-1)
    last_timestamp: int = F(INT64, default=-1)
    coordinator_epoch: int = F(INT32)
    current_txn_start_offset: int = F(INT64, default=-1)


class DescribeProducersPartition(Message):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    active_producers: list[ProducerState] = F(array(ProducerState))


class DescribeProducersTopic(Message):
    name: str = F(STRING)
    partitions: list[DescribeProducersPartition] = F(array(DescribeProducersPartition))


class DescribeProducersResponse(Message):
    throttle_time_ms: int = F(INT32)
    topics: list[DescribeProducersTopic] = F(array(DescribeProducersTopic))


DESCRIBE_PRODUCERS = Api(
    DescribeProducersRequest, DescribeProducersResponse, key=61, versions="0", flexible=0, throttle=0
)


class DescribeTransactionsRequest(Message):
    transactional_ids: list[str] = F(array(STRING))


class TransactionTopic(Message):
    topic: str = F(STRING)
    partitions: list[int] = F(array(INT32))


class DescribedTransaction(Message):
    error_code: int = F(INT16)
    transactional_id: str = F(STRING)
    transaction_state: str = F(STRING)
    transaction_timeout_ms: int = F(INT32)
    transaction_start_time_ms: int = F(INT64)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    topics: list[TransactionTopic] = F(array(TransactionTopic))


class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = F(INT32)
    transaction_states: list[DescribedTransaction] = F(array(DescribedTransaction))


DESCRIBE_TRANSACTIONS = Api(
    DescribeTransactionsRequest, DescribeTransactionsResponse, key=65, versions="0", flexible=0, throttle=0
)


class ListTransactionsRequest(Message):
    state_filters: list[str] = F(array(STRING))
    producer_id_filters: list[int] = F(array(INT64))
    duration_filter: int = F(INT64, "1+", default=-1)  # ms (KIP-994)
    transactional_id_pattern: str | None = F(STRING, "2+", null="2+", default=None)  # a regular expression (KIP-1152)


class ListedTransaction(Message):
    transactional_id: str = F(STRING)
    producer_id: int = F(INT64)
    transaction_state: str = F(STRING)


class ListTransactionsResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    unknown_state_filters: list[str] = F(array(STRING))
    transaction_states: list[ListedTransaction] = F(array(ListedTransaction))


LIST_TRANSACTIONS = Api(
    ListTransactionsRequest, ListTransactionsResponse, key=66, versions="0-2", flexible=0, throttle=0
)
