"""The first record after seek() is returned at once, even while the broker holds a fetch that waits for new records."""

from __future__ import annotations

import time

import pytest

from kconsumer import Consumer, TopicPartition
from support.brokers.kafka import Kafka
from support.harnesses.polling import read

MAX_WAIT_MS = 20_000
ENGINES = [{"engine": "classic"}, {"engine": "threaded"}]


@pytest.mark.parametrize("options", ENGINES, ids=lambda options: options["engine"])
def test_seek_back_does_not_wait_for_the_fetch_in_flight(
    kafka: Kafka, topic_name: str, options: dict[str, str]
) -> None:
    """Ten seeks back complete before the fetch at the end of the log, which the broker holds for 20 s.

    Each record after them is returned once and in order.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"%d" % n for n in range(20)])
    tp = TopicPartition(topic_name, 0)
    settings = {"fetch_max_wait_ms": MAX_WAIT_MS, "request_timeout_ms": 2 * MAX_WAIT_MS}
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", **settings, **options
    ) as consumer:
        consumer.assign([tp])
        assert 20 == len(read(consumer, 20))
        assert not consumer.poll(0.5)
        taken = []
        for _ in range(10):
            began = time.monotonic()
            consumer.seek(tp, 5)
            assert list(range(5, 20)) == [record.offset for record in read(consumer, 15)]
            taken.append(1000 * (time.monotonic() - began))
            consumer.poll(0.05)
        assert sum(taken) < MAX_WAIT_MS
        # The records that the fetch in flight returns for the old position are dropped, and the next fetch continues.
        kafka.produce(topic_name, [b"20"])
        assert [20] == [record.offset for record in read(consumer, 1)]
        consumer.close(0.5)  # the response that ends the fetch session arrives after that of the waiting fetch
