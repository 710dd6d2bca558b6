"""The example's data: orders of a web shop over an hour, the same on every run; a few of them are not orders."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import Producer

PARTITIONS = 6
OPENS_MS = 1_780_272_000_000  # 2026-06-01 00:00 UTC
SPAN_MS = 3_600_000
SPOILED_EVERY = 5_003  # one order in this many is followed by a record that is no order
COUNTRIES = {"DE": 30, "FR": 22, "IN": 18, "JP": 12, "BR": 10, "NG": 8}
SPOILED = (b'{"order_id": 1, "ordered', b"\xff\xfe\x00", b'{"order_id": 7, "country": "DE"}', b"[]", None)


class Order(NamedTuple):
    """One valid record."""

    order_id: int
    ordered_at: int
    country: str
    item: str
    cents: int

    def value(self) -> bytes:
        """Return the value of the record."""
        return json.dumps(self._asdict()).encode()


def orders(count: int) -> Iterator[Order]:
    """Yield valid orders 0 to `count` - 1, sorted by time. The number of orders per minute grows over time."""
    rng = random.Random(2026)
    names, weights = list(COUNTRIES), list(COUNTRIES.values())
    for number in range(count):
        share = number / count
        moment = OPENS_MS + int(SPAN_MS * (share**0.7 if share else 0))
        country = rng.choices(names, weights)[0]
        yield Order(number, moment, country, f"sku-{rng.randrange(900):03d}", rng.randrange(199, 25_000))


def spoiled(count: int) -> int:
    """Return the number of invalid records that `fill` writes in addition to `count` valid orders."""
    return (count - 1) // SPOILED_EVERY + 1 if count else 0


def fill(bootstrap_servers: str, topic: str, count: int, report: Callable[[int], None]) -> None:
    """Write `count` orders and some invalid records to a topic. Raises RuntimeError if the broker refuses a record."""
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 400_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failures.append(error),
        }
    )

    def produce(number: int, value: bytes | None, timestamp: int) -> None:
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS, timestamp=timestamp)
                return
            except BufferError:
                producer.poll(0.05)

    for number, order in enumerate(orders(count)):
        if number % SPOILED_EVERY == 0:
            produce(number, SPOILED[number // SPOILED_EVERY % len(SPOILED)], order.ordered_at)
        produce(number, order.value(), order.ordered_at)
        if number % 50_000 == 0:
            producer.poll(0)
            report(number)
    waiting = producer.flush(60)
    if waiting or failures:
        raise RuntimeError(f"filling {topic} failed: {failures[0] if failures else f'{waiting} records unsent'}")
    report(count)
