"""A streaming query that runs while a test changes what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.spark.spark_parity import Stream, offsets


@contextmanager
def running(stream: Stream, interval: str = "100 milliseconds") -> Iterator[Any]:
    """Run the query until the block ends, with a micro-batch in every interval that has new records."""
    query = stream.start(processingTime=interval)
    try:
        yield query
    finally:
        query.stop()


def read_up_to(query: Any) -> dict[str, dict[str, int]]:
    """Returns the offsets at which the last completed micro-batch ended. Raises the query's error."""
    if not query.isActive and query.exception() is not None:
        raise query.exception()
    report = query.lastProgress
    return (report and offsets(report["sources"][0]["endOffset"])) or {}


def wait_for_all(query: Any, kafka: Kafka, topic: str, timeout_s: float = 90) -> None:
    """Wait until the query has read all records that the topic has now."""
    ends = {str(partition): end for partition, end in kafka.end_offsets(topic).items()}
    wait_until(lambda: read_up_to(query).get(topic) == ends, timeout_s, f"reading {topic} up to {ends}")


def wait_for_count(query: Any, topic: str, count: int, timeout_s: float = 90) -> None:
    """Wait until the query has read this many offsets of a topic; sends nothing to brokers, which tests kill
    meanwhile.
    """
    wait_until(
        lambda: sum(read_up_to(query).get(topic, {}).values()) == count, timeout_s, f"reading {count} of {topic}"
    )
