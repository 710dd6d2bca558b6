"""The same member as `member.py`, written with confluent-kafka."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer


def say(event: str, **details: Any) -> None:
    """Report one event."""
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), **details}) + "\n")
    sys.stdout.flush()


def names(partitions: list[Any]) -> list[tuple[str, int]]:
    """Returns librdkafka's partitions as pairs of topic and number."""
    return sorted((tp.topic, tp.partition) for tp in partitions)


def main() -> int:
    """Run one member from its JSON argument: librdkafka options, and topics."""
    settings = json.loads(sys.argv[1])
    topics = settings.pop("topics")
    stop = threading.Event()

    def stop_at_end_of_input() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    consumer = Consumer({"log_level": 0, **settings})
    consumer.subscribe(
        topics,
        on_assign=lambda _c, partitions: say("assigned", partitions=names(partitions)),
        on_revoke=lambda _c, partitions: say("revoked", partitions=names(partitions)),
        on_lost=lambda _c, partitions: say("lost", partitions=names(partitions)),
    )
    say("started")
    while not stop.is_set():
        by_partition: dict[tuple[str, int], list[int]] = {}
        for message in consumer.consume(500, 0.2):
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is None and topic is not None and partition is not None and offset is not None:
                by_partition.setdefault((topic, partition), []).append(offset)
        for read, offsets in by_partition.items():
            say("records", partition=read, offsets=offsets)
    consumer.close()
    say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
