"""Commits what has been processed, and only that: python examples/manual_commit.py localhost:9092 my-group my-topic.

After a crash between processing and commit, records are read again; none is lost. A record that cannot be processed
is put aside, and the others are processed.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from kconsumer import Consumer, ConsumerRecord
from kconsumer.errors import CommitFailedError, RebalanceInProgressError


def process(record: ConsumerRecord) -> None:
    """A placeholder for your work. Raises ValueError for a value that is not JSON."""
    print(json.loads(record.value or b"null"))


def put_aside(record: ConsumerRecord, error: ValueError) -> None:
    """A placeholder for storing a record that cannot be processed."""
    print(f"{record.topic_partition} offset {record.offset}: {error}", file=sys.stderr)


def main(servers: str, group: str, *topics: str) -> None:
    """Poll, process the records, and commit, in a loop until Ctrl-C."""
    with Consumer(
        *topics,
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        while True:
            records = consumer.poll(timeout=1.0)
            for record in records:
                try:
                    process(record)
                except ValueError as error:
                    put_aside(record, error)
            if records:
                try:
                    consumer.commit(records)
                except (CommitFailedError, RebalanceInProgressError) as error:
                    # The partitions may have a new owner, which reads these records again. The next poll rejoins.
                    print(f"not committed: {error}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: manual_commit.py HOST:PORT GROUP TOPIC…")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
