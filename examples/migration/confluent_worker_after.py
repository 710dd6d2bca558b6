"""Adds up the amounts of orders until SIGTERM or Ctrl-C, and stores the offset of each order:
python confluent_worker_after.py HOST:PORT GROUP TOPIC [SECONDS].

With SECONDS, partitions without a committed offset begin with the orders of the last SECONDS.
"""

import json
import logging
import signal
import sys
import time
from collections import Counter

from kconsumer import Consumer, ConsumerRecord, TopicPartition

log = logging.getLogger("totals")


class Worker:
    """Reads the orders of a topic as a member of a group."""

    def __init__(self, servers: str, group: str, topic: str, seconds: float | None) -> None:
        self.running = True
        self.seconds = seconds
        self.totals: Counter[str] = Counter()
        self.consumer = Consumer.from_config(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": "totals",
                "auto.offset.reset": "earliest",
                "enable.auto.offset.store": False,
                "auto.commit.interval.ms": 1000,
                "partition.assignment.strategy": "cooperative-sticky",
                "fetch.wait.max.ms": 200,
                "isolation.level": "read_committed",  # the default of confluent-kafka
            }
        )
        self.consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)

    def assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        if self.seconds is not None:
            fresh = [tp for tp, at in consumer.committed(partitions, timeout=10).items() if at is None]
            since = int((time.time() - self.seconds) * 1000)
            if fresh:
                consumer.seek_to_time(since, *fresh)
        log.info("reading %s", sorted(tp.partition for tp in partitions))

    def revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        log.info("giving up %s", sorted(tp.partition for tp in partitions))

    def lost(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        log.warning("lost %s", sorted(tp.partition for tp in partitions))

    def handle(self, record: ConsumerRecord) -> None:
        try:
            order = json.loads(record.value)
        except ValueError:
            log.warning("skipping %s-%d@%d", record.topic, record.partition, record.offset)
            return
        key = (record.key or b"").decode()
        source = (record.header("source") or b"").decode()
        self.totals[key] += order["amount"]
        print(record.partition, record.offset, key, source, self.totals[key])

    def run(self) -> None:
        try:
            while self.running:
                for record in self.consumer.poll(timeout=0.5, max_records=100):
                    self.handle(record)
                    self.consumer.store_offsets(record)
        except KeyboardInterrupt:
            pass
        finally:
            for tp, end in self.consumer.end_offsets(self.consumer.assignment(), timeout=10).items():
                print(f"{tp}: {self.consumer.position(tp)} of {end}")
            self.consumer.close()


if __name__ == "__main__":
    worker = Worker(*sys.argv[1:4], float(sys.argv[4]) if len(sys.argv) > 4 else None)
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "running", False))
    worker.run()
