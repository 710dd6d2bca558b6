"""Reads topics in a group for ever: python examples/quickstart.py localhost:9092 my-group my-topic."""

from __future__ import annotations

import signal
import sys

from kconsumer import Consumer
from kconsumer.errors import WakeupError


def main(servers: str, group: str, *topics: str) -> None:
    """Print each record. Ctrl-C ends the loop between two records; `close` then commits the positions."""
    with Consumer(*topics, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
        signal.signal(signal.SIGINT, lambda _number, _frame: consumer.wakeup())
        try:
            for record in consumer:
                print(f"{record.topic}-{record.partition}@{record.offset}: {record.value!r}")
        except WakeupError:
            print("leaving the group")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: quickstart.py HOST:PORT GROUP TOPIC…")
    main(*sys.argv[1:])
