"""One kconsumer member of a group as a process of its own: `python member.py '{"topics": [...], …}'`.

Prints one JSON object per line: what callbacks and polls reported, with the time on the machine-wide monotonic clock.
Ends cleanly when its standard input closes or a signal comes. Options are `Consumer`'s; `members.py` is the other end.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from typing import Any

import kconsumer
from kconsumer.errors import WakeupError


def say(event: str, **details: Any) -> None:
    """Report one event."""
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), **details}) + "\n")
    sys.stdout.flush()


class Reporter(kconsumer.RebalanceListener):
    """Reports the partitions that the callbacks receive."""

    def on_partitions_assigned(self, consumer: kconsumer.Consumer, partitions: tuple[Any, ...]) -> None:
        say("assigned", partitions=partitions)

    def on_partitions_revoked(self, consumer: kconsumer.Consumer, partitions: tuple[Any, ...]) -> None:
        say("revoked", partitions=partitions)

    def on_partitions_lost(self, consumer: kconsumer.Consumer, partitions: tuple[Any, ...]) -> None:
        say("lost", partitions=partitions)


def consume(consumer: kconsumer.Consumer, pause_s: float) -> None:
    """Poll until woken up. Report each batch once per partition."""
    while True:
        batch = consumer.poll(0.5)
        for tp, records in batch.by_partition().items():
            say("records", partition=tp, offsets=[record.offset for record in records])
        if pause_s and batch:
            time.sleep(pause_s)


def main() -> int:
    """Run one member from its JSON argument."""
    sys.setswitchinterval(float(os.environ.get("KCONSUMER_SWITCH_INTERVAL", sys.getswitchinterval())))
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level=settings.pop("log", "WARNING"), stream=sys.stderr, format="%(asctime)s %(message)s")
    topics, pause_s = settings.pop("topics"), settings.pop("pause_s", 0.0)
    consumer = kconsumer.Consumer(**settings)

    def stop_at_end_of_input() -> None:
        sys.stdin.read()
        consumer.wakeup()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    consumer.subscribe(topics, listener=Reporter())
    say("started")
    try:
        consume(consumer, pause_s)
    except WakeupError:
        consumer.close()
    say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
