"""Processes records of a topic in eight threads: python examples/parallel.py localhost:9092 my-group my-topic.

Records of a key are processed one after the other. A record that fails three times is printed as a dead letter. Ctrl-C
or SIGTERM waits for the handlers, commits what they have finished, and leaves the group.
"""

from __future__ import annotations

import sys

from kconsumer import Consumer, ConsumerRecord
from kconsumer.parallel import Retry, process


def handle(record: ConsumerRecord) -> None:
    """A placeholder for your work, such as a request to a service."""
    print(record.key, record.value, flush=True)


def dead_letter(record: ConsumerRecord, error: BaseException) -> None:
    """Put a record aside. A producer could write it to another topic."""
    print(f"{record.topic}-{record.partition} offset {record.offset}: {error}", file=sys.stderr)


def main(servers: str, group: str, topic: str) -> None:
    """Process until a signal comes."""
    with Consumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        retry = Retry(attempts=3, backoff_s=0.1)
        summary = process(consumer, handle, workers=8, order="key", retry=retry, on_failure=dead_letter)
    print(f"{summary.processed} processed, {summary.failed} dead letters, ended by {summary.reason}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: parallel.py HOST:PORT GROUP TOPIC")
    main(*sys.argv[1:])
