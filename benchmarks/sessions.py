"""Measures many partitions: bytes per Fetch request, and CPU time per poll (`python benchmarks/sessions.py`).

A consumer reads a topic of 2,000 partitions on a real broker: first the backlog, then with no new records, then with
a few partitions that get records. The figures of the last two must not grow with the number of partitions.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kconsumer
from kconsumer.net import connection
from kconsumer.schema.fetch import FETCH

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.kafka import KafkaCluster

sizes: list[int] = []  # bytes of each Fetch request that was sent


def count_bytes() -> None:
    """Record the size of every Fetch request when it is encoded."""
    encode = connection.encode_request

    def measured(api: Any, *rest: Any) -> bytes:
        data: bytes = encode(api, *rest)
        if api is FETCH:
            sizes.append(len(data))
        return data

    connection.encode_request = measured


def phase(name: str, seconds: float, consumer: kconsumer.Consumer, produce: Callable[[], None] | None = None) -> None:
    """Poll for `seconds` and print the CPU time of this thread. `produce` runs before each poll and is not counted."""
    sizes.clear()
    polls: list[float] = []
    records = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if produce is not None:
            produce()
        before = time.thread_time()
        records += len(consumer.poll(0.1))
        polls.append((time.thread_time() - before) * 1e6)
    requests = f"{len(sizes)} of {statistics.median(sizes):.0f} bytes (max {max(sizes)})" if sizes else "none"
    print(
        f"{name:<28} {len(polls):>6} polls, {records:>7} records, CPU per poll: median"
        f" {statistics.median(polls):>6.0f} us, mean {statistics.mean(polls):>6.0f}, max {max(polls):>6.0f};"
        f" fetches: {requests}",
        flush=True,
    )


def main() -> None:
    """Start a broker, fill the topic, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--active", type=int, default=20, help="partitions that get records in the last phase")
    args = parser.parse_args()
    count_bytes()
    with KafkaCluster() as kafka:
        topic = kafka.create_topic("many", args.partitions)
        producer = kafka.producer({"linger.ms": 20})
        for number in range(50 * args.partitions):
            producer.produce(topic, b"x" * 100, partition=number % args.partitions)
            producer.poll(0)
        producer.flush(60)
        partitions = [kconsumer.TopicPartition(topic, number) for number in range(args.partitions)]
        with kconsumer.Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            remaining = 50 * args.partitions
            began, cpu = time.monotonic(), time.process_time()
            while remaining > 0:
                remaining -= len(consumer.poll(1.0))
            took, cpu = time.monotonic() - began, time.process_time() - cpu
            print(f"{'start and backlog':<28} {took:.2f} s, CPU {cpu:.2f} s; largest request {max(sizes)} bytes")
            phase("nothing to read", args.seconds, consumer)

            def trickle() -> None:
                for number in range(args.active):
                    producer.produce(topic, b"y" * 100, partition=number * (args.partitions // args.active))
                producer.flush(10)

            phase(f"{args.active} partitions with records", args.seconds, consumer, trickle)


if __name__ == "__main__":
    main()
