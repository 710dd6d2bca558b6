"""One member of the demo's group: a plain kconsumer program that reports to the runner.

It prints one JSON object per line: `assigned`, `revoked` and `lost` (partitions), `progress` (records so far,
positions, lag), and `left` at the end, with how often it saw each event. SIGTERM makes it leave the group.
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import sys
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress

from kconsumer import Consumer, ConsumerRecords, TopicPartition
from kconsumer.errors import WakeupError

REPORT_EVERY_S = 0.2


def report(event: str, **fields: object) -> None:
    """Send a report to the runner. If the runner has ended, BrokenPipeError ends the member."""
    print(json.dumps({"event": event, **fields}), flush=True)


def report_partitions(event: str, partitions: Sequence[TopicPartition]) -> None:
    """Report which partitions were assigned, revoked or lost."""
    report(event, partitions=[partition.partition for partition in partitions])


class Tally:
    """Counts how often this member saw each event (at most 255 times), and adds up the purchases."""

    def __init__(self, expected: int) -> None:
        self.records = 0
        self.cents = 0
        self.seen = bytearray(expected)

    def add(self, records: ConsumerRecords) -> None:
        """Count these records."""
        self.records += len(records)
        if self.seen:
            for record in records:
                self._add_event(record.value)

    def _add_event(self, event: dict[str, int]) -> None:
        number = event["seq"]
        self.seen[number] = min(255, self.seen[number] + 1)
        self.cents += event["cents"]

    def fields(self) -> dict[str, object]:
        """Return the counts as fields of the last report."""
        packed = base64.b64encode(zlib.compress(self.seen, 1)).decode()
        return {"records": self.records, "cents": self.cents, "seen": packed}


def follow(consumer: Consumer, tally: Tally) -> None:
    """Poll and report the progress, until SIGTERM makes a poll raise WakeupError."""
    reported = 0.0
    while True:
        tally.add(consumer.poll(timeout=REPORT_EVERY_S))
        if time.monotonic() - reported >= REPORT_EVERY_S:
            reported = time.monotonic()
            partitions = consumer.assignment()
            positions = {partition.partition: consumer.position(partition) for partition in partitions}
            lags = [consumer.current_lag(partition) for partition in partitions]
            lag = None if None in lags else sum(lag for lag in lags if lag is not None)
            report("progress", records=tally.records, positions=positions, lag=lag)


def main() -> None:
    """Join the group, read until SIGTERM, and leave the group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--client-id", required=True)
    parser.add_argument("--expect", type=int, default=0, help="number of demo events in the topic; 0: not ours")
    args = parser.parse_args()
    consumer = Consumer(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        client_id=args.client_id,
        assignors=["cooperative-sticky"],
        auto_offset_reset="earliest",
        heartbeat_interval_ms=500,
        session_timeout_ms=10_000,
        max_poll_records=2_000,
        value_deserializer=json.loads if args.expect else None,
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: consumer.wakeup())
    tally = Tally(args.expect)
    with consumer:
        consumer.subscribe(
            [args.topic],
            on_assign=lambda _consumer, partitions: report_partitions("assigned", partitions),
            on_revoke=lambda _consumer, partitions: report_partitions("revoked", partitions),
            on_lost=lambda _consumer, partitions: report_partitions("lost", partitions),
        )
        with suppress(WakeupError):
            follow(consumer, tally)
    report("left", **tally.fields())


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit("the demo's runner has ended")
