"""Writes records at a steady rate with little CPU time of its own: rate_producer.py BROKER TOPIC PARTITIONS RATE.

Up to 200 records per second, each record is a batch of its own. At higher rates, 200 times per second the records of
that time are written, spread evenly over the partitions, as producers do that wait 5 ms for more records (`linger.ms`).
The times vary by up to half of the interval, so that they do not synchronize with timers of clients. Batches are built
once and sent again, so the producer takes little CPU time even at a million records per second.

The broker must be the leader of all partitions. Records for which it has no time are dropped and counted, so no backlog
grows. Each line of standard input prints how many records were written and dropped since the last one. The end of the
input ends the program.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any

from kconsumer._core.codec import decode_response, encode_request
from kconsumer._core.wire import FrameBuffer
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kconsumer.testing.batches import build_batch

VERSION = 9
VALUE = b"x" * 100
MAX_BATCHES_PER_S = 200
MAX_BATCH_RECORDS = 600  # 64 KiB
MAX_IN_FLIGHT_S = 0.1  # requests of this time may be without a response before records are dropped
NEW_TOPIC_S = 10.0  # the broker may refuse records of a new topic for a moment
NOT_LEADER, UNKNOWN_TOPIC = 6, 3


@cache
def batch(records: int) -> bytes:
    """Returns a batch of records with the time of its first use."""
    return build_batch([VALUE] * records, timestamp=int(time.time() * 1000))


def spread(records: int, partitions: int, first: int) -> dict[int, int]:
    """Returns how many records each partition gets. If there are fewer than partitions, begins with the first one."""
    least, more = divmod(records, partitions)
    counts = {(first + number) % partitions: least + (number < more) for number in range(partitions)}
    return {partition: count for partition, count in counts.items() if count}


def requests(counts: dict[int, int]) -> Iterator[dict[int, int]]:
    """Yield the records of each request. A request has one batch for each partition."""
    while counts:
        yield {partition: min(count, MAX_BATCH_RECORDS) for partition, count in counts.items()}
        counts = {
            partition: count - MAX_BATCH_RECORDS for partition, count in counts.items() if count > MAX_BATCH_RECORDS
        }


class Producer:
    """One connection to the broker."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.in_flight = 0  # requests
        self._began = time.monotonic()
        self._topic = topic
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameBuffer()

    def send(self, counts: dict[int, int]) -> None:
        """Send one request. `counts`: the records of each partition."""
        rows = [PartitionProduceData(index=partition, records=batch(count)) for partition, count in counts.items()]
        topics = [TopicProduceData(name=self._topic, partition_data=rows)]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
        self._socket.sendall(encode_request(PRODUCE, VERSION, 0, "rate", request))
        self.in_flight += 1

    def receive(self) -> None:
        """Take the responses that have arrived. Raises RuntimeError if a record was not written.

        Refused records of a new topic count as written: no consumer is measured yet.
        """
        while self.in_flight:
            try:
                size = self._socket.recv_into(self._frames.recv_view(), 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not size:
                raise RuntimeError("the broker has closed the connection")
            for frame in self._frames.received(size):
                response: Any = decode_response(PRODUCE, VERSION, frame)[1]
                codes = {row.error_code for topic in response.responses for row in topic.partition_responses}
                if time.monotonic() < self._began + NEW_TOPIC_S:
                    codes -= {NOT_LEADER, UNKNOWN_TOPIC}
                if codes - {0}:
                    raise RuntimeError(f"records were not written: error codes {sorted(codes)}")
                self.in_flight -= 1


class Load:
    """Writes at a rate, and counts."""

    def __init__(self, producer: Producer, partitions: int, rate: float) -> None:
        self._producer, self._partitions, self._rate = producer, partitions, rate
        self._interval = 1 / min(rate, MAX_BATCHES_PER_S)
        self._first = 0
        self._rest = 0.0
        self.sent = self.dropped = 0

    def run(self) -> None:
        """Write until the process ends. An error ends it."""
        try:
            self._run()
        except Exception:
            traceback.print_exc()
            os._exit(1)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            due += random.uniform(0.5, 1.5) * self._interval
            late = time.monotonic() - due
            time.sleep(max(0.0, -late))
            self._producer.receive()
            self._write(late)

    def _write(self, late: float) -> None:
        self._rest += self._rate * self._interval
        records = int(self._rest)
        self._rest -= records
        parts = list(requests(spread(records, self._partitions, self._first)))
        self._first = (self._first + records) % self._partitions
        if late > MAX_IN_FLIGHT_S or self._producer.in_flight > max(2, MAX_IN_FLIGHT_S / self._interval) * len(parts):
            self.dropped += records
            return
        for counts in parts:
            self._producer.send(counts)
        self.sent += records


def main() -> None:
    """Write until standard input ends."""
    bootstrap, topic, partitions, rate = sys.argv[1:]
    load = Load(Producer(bootstrap, topic), int(partitions), float(rate))
    threading.Thread(target=load.run, daemon=True).start()
    sent = dropped = 0
    for _ in sys.stdin:
        print(load.sent - sent, load.dropped - dropped, flush=True)
        sent, dropped = load.sent, load.dropped


if __name__ == "__main__":
    main()
