"""Adds up the amounts of orders until SIGTERM or Ctrl-C, and stores the offset of each order, with confluent-kafka:
python confluent_worker_before.py HOST:PORT GROUP TOPIC [SECONDS].

With SECONDS, partitions without a committed offset begin with the orders of the last SECONDS.
"""

import json
import logging
import signal
import sys
import time
from collections import Counter

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

log = logging.getLogger("totals")


class Worker:
    """Reads the orders of a topic as a member of a group."""

    def __init__(self, servers: str, group: str, topic: str, seconds: float | None) -> None:
        self.running = True
        self.seconds = seconds
        self.totals: Counter[str] = Counter()
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": "totals",
                "auto.offset.reset": "earliest",
                "enable.auto.offset.store": False,
                "auto.commit.interval.ms": 1000,
                "partition.assignment.strategy": "cooperative-sticky",
                "fetch.wait.max.ms": 200,
                "error_cb": self.on_error,
                "logger": log,
            }
        )
        self.consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)

    def on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            log.warning("no broker is connected: %s", error)
        elif error.fatal():
            self.running = False

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self.seconds is not None:
            known = {(at.topic, at.partition): at.offset for at in consumer.committed(partitions, timeout=10)}
            fresh = [at for at in partitions if known[at.topic, at.partition] == OFFSET_INVALID]
            since = int((time.time() - self.seconds) * 1000)
            wanted = [TopicPartition(at.topic, at.partition, since) for at in fresh]
            for at in consumer.offsets_for_times(wanted, timeout=10) if wanted else ():
                next(one for one in partitions if one.partition == at.partition).offset = at.offset
        consumer.incremental_assign(partitions)
        log.info("reading %s", sorted(at.partition for at in partitions))

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("giving up %s", sorted(at.partition for at in partitions))
        consumer.incremental_unassign(partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("lost %s", sorted(at.partition for at in partitions))

    def handle(self, message: Message) -> None:
        try:
            order = json.loads(message.value())
        except ValueError:
            log.warning("skipping %s-%d@%d", message.topic(), message.partition(), message.offset())
            return
        key = (message.key() or b"").decode()
        source = dict(message.headers() or []).get("source", b"").decode()
        self.totals[key] += order["amount"]
        print(message.partition(), message.offset(), key, source, self.totals[key])

    def run(self) -> None:
        try:
            while self.running:
                for message in self.consumer.consume(100, timeout=0.5):
                    error = message.error()
                    if error and error.code() == KafkaError._PARTITION_EOF:
                        continue
                    if error:
                        raise KafkaException(error)
                    self.handle(message)
                    self.consumer.store_offsets(message=message)
        except KeyboardInterrupt:
            pass
        finally:
            for at in self.consumer.position(self.consumer.assignment()):
                _, end = self.consumer.get_watermark_offsets(at, timeout=10)
                print(f"{at.topic}-{at.partition}: {at.offset} of {end}")
            self.consumer.close()


if __name__ == "__main__":
    worker = Worker(*sys.argv[1:4], float(sys.argv[4]) if len(sys.argv) > 4 else None)
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "running", False))
    worker.run()
