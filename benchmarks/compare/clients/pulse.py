"""Writes single records at a steady rate, each with the time of its creation, until standard input ends.

pulse.py BROKER TOPIC PARTITIONS RATE

A beat comes RATE times per second, at intervals that vary by up to half, so that it does not synchronize with timers of
clients. Each beat sends one record to every partition. A value begins with CLOCK_MONOTONIC in ns (8 bytes, big-endian),
which is the same in all processes of a machine, including Java's `System.nanoTime`. At the end it prints the delays of
the broker's acknowledgements as one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from functools import partial

from confluent_kafka import Producer

VALUE_BYTES = 100
OPTIONS = {"acks": "1", "linger.ms": 0, "log_level": 0}


def beat(producer: Producer, topic: str, partitions: int, took_us: list[int]) -> None:
    """Produce one record to each partition."""
    for partition in range(partitions):
        made = time.monotonic_ns()
        value = made.to_bytes(8, "big").ljust(VALUE_BYTES, b".")
        producer.produce(topic, value, partition=partition, on_delivery=partial(acknowledged, took_us, made))


def acknowledged(took_us: list[int], made: int, error: object, _message: object) -> None:
    """Record the delay of an acknowledgement. Raises RuntimeError for an error."""
    if error is not None:
        raise RuntimeError(f"a record was not written: {error}")
    took_us.append((time.monotonic_ns() - made) // 1000)


def main() -> None:
    """Beat until standard input ends."""
    bootstrap, topic, partitions, rate = sys.argv[1:]
    producer = Producer({"bootstrap.servers": bootstrap, **OPTIONS})
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    took_us: list[int] = []
    due = time.monotonic()
    while not ended.is_set():
        due += random.uniform(0.5, 1.5) / float(rate)
        while (remaining := due - time.monotonic()) > 0.001:
            producer.poll(remaining)
        time.sleep(max(0.0, due - time.monotonic()))  # librdkafka waits for whole milliseconds only
        beat(producer, topic, int(partitions), took_us)
    producer.flush(10)
    print(json.dumps({"us": took_us}))


if __name__ == "__main__":
    main()
