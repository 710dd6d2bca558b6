"""A member of a share group in a process of its own, which writes what happens to a file, a line of JSON per event.

    python share_member.py '{"topic": …, "bootstrap_servers": …, "group_id": …, "log": PATH, "seed": 7}'

What it does with a record depends on the record's value: every 50th is rejected, and some are released the first time.
It writes the records of a poll before it acknowledges them, so a kill at any moment loses no event. SIGTERM ends it.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import IO, Any

from kconsumer import AcknowledgeType, ShareConsumer, ShareRecord, TopicPartition
from kconsumer.errors import KafkaError, WakeupError

REJECTED, RELEASED = 50, 7  # every record with such a number
Key = tuple[int, int]  # partition and offset


def kind_of(number: int, delivery_count: int) -> AcknowledgeType:
    """Returns how a record is acknowledged."""
    if number % REJECTED == 0:
        return AcknowledgeType.REJECT
    return AcknowledgeType.RELEASE if number % RELEASED == 1 and delivery_count == 1 else AcknowledgeType.ACCEPT


class Member:
    """The member, and its event log."""

    def __init__(self, settings: dict[str, Any], log: IO[str]) -> None:
        self._log = log
        self._random = random.Random(settings.pop("seed"))
        self._sent: dict[Key, str] = {}
        self._stopped = False
        self._consumer = ShareConsumer(
            settings.pop("topic"),
            share_acknowledgement_mode="explicit",
            on_acknowledge=self._on_acknowledge,
            **settings,
        )

    def stop(self, *_: object) -> None:
        """End the loop of `run`."""
        self._stopped = True
        self._consumer.wakeup()

    def run(self) -> None:
        """Receive and acknowledge records until the member is stopped, then close."""
        while not self._stopped:
            try:
                self._step()
            except WakeupError:
                continue
            except KafkaError as error:
                self._write("error", str(error))
        self._consumer.close()
        self._write("closed", None)

    def _step(self) -> None:
        records = [record for record in self._consumer.poll(0.3) if isinstance(record, ShareRecord)]
        if not records:
            return
        self._write("received", [(r.partition, r.offset, r.delivery_count, int(r.value or b"")) for r in records])
        for record in records:
            kind = kind_of(int(record.value or b""), record.delivery_count)
            self._sent[record.partition, record.offset] = kind.name
            self._consumer.acknowledge(record, kind)
            if self._random.random() < 0.02:
                time.sleep(self._random.random() * 0.05)
        if self._random.random() < 0.5:
            self._consumer.commit(timeout=10.0)
        elif self._random.random() < 0.5:
            self._consumer.commit_async()

    def _on_acknowledge(self, offsets: dict[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
        done = [
            (tp.partition, offset, self._sent.get((tp.partition, offset), ""))
            for tp, found in offsets.items()
            for offset in sorted(found)
        ]
        self._write("done" if error is None else "refused", done)

    def _write(self, event: str, what: object) -> None:
        self._log.write(json.dumps([time.monotonic(), event, what]) + "\n")
        self._log.flush()


def main() -> None:
    """Run a member with the settings in the first argument."""
    settings = json.loads(sys.argv[1])
    with Path(settings.pop("log")).open("w") as log:
        member = Member(settings, log)
        signal.signal(signal.SIGTERM, member.stop)
        member.run()


if __name__ == "__main__":
    main()
