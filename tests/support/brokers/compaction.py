"""A topic whose log has gaps, because keys were overwritten and half of the transactions were aborted."""

from __future__ import annotations

import time

from support.brokers.kafka import Kafka

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
END = 4 * 50 + 4 * 4 + 1
"""The end offset: records, transactions with their markers, and one record that stays in the open segment."""


def write_compacted(kafka: Kafka, topic: str) -> None:
    """Create the topic with one partition and fill it; the broker compacts it within some seconds."""
    kafka.create_topic(topic, config=COMPACTED)
    transactions = kafka.producer({"transactional.id": topic})
    transactions.init_transactions(30)
    for turn in range(4):
        keys = [b"key-%d" % (number % 7) for number in range(50)]
        kafka.produce(topic, [b"%d" % turn] * 50, keys=keys)
        transactions.begin_transaction()
        for key in (b"a", b"b", b"c"):
            transactions.produce(topic, b"in a transaction", key)
        transactions.flush(30)
        if turn % 2:
            transactions.abort_transaction(30)
        else:
            transactions.commit_transaction(30)
        time.sleep(0.15)  # a segment ends according to the timestamps of its records
    kafka.produce(topic, [b"last"], keys=[b"last"])
