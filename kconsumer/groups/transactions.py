"""The requests that find open transactions (KIP-664): what each contains, and how its response is parsed.

`manager.py` sends them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import Reply
from kconsumer.groups.manager import QueryKind
from kconsumer.groups.responses import raise_error
from kconsumer.groups.types import OpenTransaction
from kconsumer.schema.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ProducerState,
    TopicRequest,
)
from kconsumer.types import Node, TopicPartition

NEEDS = "finding open transactions needs Kafka 3.0"
OpenProducer = tuple[TopicPartition, ProducerState]


def open_producers(partitions: Iterable[TopicPartition]) -> QueryKind:
    """Returns the request for the producers with an open transaction in partitions of one leader."""
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    rows = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    return QueryKind(
        DESCRIBE_PRODUCERS,
        lambda _: DescribeProducersRequest(topics=rows),
        _parse_producers,
        needs=NEEDS,
        final_codes=(Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_OR_PARTITION),  # another broker leads now
    )


def _parse_producers(reply: Reply) -> list[OpenProducer]:
    found = []
    for topic in reply.message.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            raise_error(row.error_code, f"producers of {tp}", row.error_message, "Read")
            found += [(tp, producer) for producer in row.active_producers if producer.current_txn_start_offset >= 0]
    return found


def transactional_ids(producer_ids: Collection[int]) -> QueryKind:
    """Returns the request for the transactional ids of these producers that a broker coordinates."""
    message = ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producer_ids))
    return QueryKind(LIST_TRANSACTIONS, lambda _: message, _parse_ids, needs=NEEDS)


def _parse_ids(reply: Reply) -> list[str]:
    raise_error(reply.message.error_code, "listing transactions")
    return [row.transactional_id for row in reply.message.transaction_states]


def descriptions(ids: list[str]) -> QueryKind:
    """Returns the request for the state of transactions that a broker coordinates."""
    message = DescribeTransactionsRequest(transactional_ids=ids)
    return QueryKind(DESCRIBE_TRANSACTIONS, lambda _: message, _parse_descriptions, needs=NEEDS)


def _parse_descriptions(reply: Reply) -> list[DescribedTransaction]:
    found = []
    for row in reply.message.transaction_states:
        if row.error_code != Errors.TRANSACTIONAL_ID_NOT_FOUND:  # it has expired meanwhile
            raise_error(row.error_code, f"transactional id {row.transactional_id!r}")
            found.append(row)
    return found


def open_transaction(
    tp: TopicPartition, producer: ProducerState, known: tuple[Node, DescribedTransaction] | None, wall_ms: int
) -> OpenTransaction:
    """Returns an open transaction. `known` is its coordinator and what that stores, or None if none knows it."""
    node, described = known or (None, DescribedTransaction())
    contains = any(tp.topic == row.topic and tp.partition in row.partitions for row in described.topics)
    since = described.transaction_start_time_ms if contains else producer.last_timestamp
    return OpenTransaction(
        tp,
        producer.producer_id,
        producer.producer_epoch,
        producer.current_txn_start_offset,
        None if since < 0 else max(0, wall_ms - since) / 1000,
        node,
        described.transactional_id if known else None,
        described.transaction_state if known else None,
        hanging=not contains,
    )
