"""One reader of a soak as a process of its own: `python soak_reader.py '{"assign": {"topic": 5}, …}'`.

It reads the records of `soak_load.py`, by `assign` or as a member of a group, and checks every value. It prints one
JSON object per line: runs of consecutive records, rebalances, errors of commits, and sometimes the resources that the
process uses; `soak_journal.py` reads these lines. It closes the consumer and ends when its standard input is closed.
Options are those of `Consumer`. With `"asyncio": true`, the reader has an AsyncConsumer.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import resource
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import kconsumer
from kconsumer.errors import KafkaError, WakeupError
from support.aio.blocking import BlockingConsumer, ThreadRunners
from support.members.member import Reporter, say
from support.soak.soak_load import KEY, value_of

POLL_S = 0.5
STATUS_S = 1.0
COMMIT_S = 3.0
# Log lines after which offsets may be committed or not: the client does not know.
DOUBTS = ("commit", "lost coordinator")


class DoubtReporter(logging.Handler):
    """Reports when the client logs that the result of a commit is unknown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Report one line of the log."""
        text = record.getMessage()
        if any(word in text for word in DOUBTS) and "starting" not in text:
            say("doubt", text=text)


class CommitReporter:
    """An interceptor that reports the committed offsets."""

    def on_commit(self, offsets: dict[kconsumer.TopicPartition, kconsumer.OffsetAndMetadata]) -> None:
        """Report one commit."""
        say("committed", offsets=[(*tp, committed.offset) for tp, committed in offsets.items()])


class Listener(Reporter):
    """Reports what the callbacks receive; a member that commits by itself commits before its partitions are revoked."""

    def __init__(self, commits: str) -> None:
        self._commits = commits

    def on_partitions_assigned(self, consumer: kconsumer.Consumer, partitions: tuple[Any, ...]) -> None:
        """Report the partitions, and the generation."""
        say_generation(consumer)
        super().on_partitions_assigned(consumer, partitions)

    def on_partitions_revoked(self, consumer: kconsumer.Consumer, partitions: tuple[Any, ...]) -> None:
        """Commit what was read, then report."""
        if self._commits != "auto":
            commit(consumer)
        super().on_partitions_revoked(consumer, partitions)


def say_generation(consumer: kconsumer.Consumer) -> None:
    """Report the member id and the generation or member epoch, if this is a group member."""
    own = consumer.group_metadata()
    if own.generation_id > 0:
        say("generation", member_id=own.member_id, generation=own.generation_id)


def commit(consumer: kconsumer.Consumer) -> None:
    """Commit the offsets of what was read, and report if the commit may have failed."""
    try:
        consumer.commit(timeout=COMMIT_S)
    except KafkaError as error:
        say("doubt", text=f"{type(error).__name__}: {error}")


class Reader:
    """Polls, checks and reports. `commits`: auto, sync, async; `restless`: pauses and seeks now and then.

    `epochs`: the generation may change without a callback, and the coordinator stores it before the member receives
    it; in the classic protocol only when callbacks are called. `by_offset`: numbers of records are not checked.
    """

    def __init__(
        self, consumer: kconsumer.Consumer, commits: str, *, restless: bool, epochs: bool, by_offset: bool
    ) -> None:
        self._consumer, self._commits, self._restless, self._epochs = consumer, commits, restless, epochs
        self._by_offset = by_offset
        self._random = random.Random(1)
        self._next: dict[kconsumer.TopicPartition, int] = {}
        # One at a time: what waits for a busy coordinator keeps heartbeats waiting that are sent after it.
        self._committing = False
        self._status_due = 0.0
        self._slowest_poll_s = 0.0
        self.stopping = False

    def run(self) -> None:
        """Read until it is stopped."""
        while not self.stopping:
            began = time.monotonic()
            try:
                batch = self._consumer.poll(POLL_S, self._random.choice((20, 500, 5_000)))
            except WakeupError:
                return
            except KafkaError as error:
                # Whatever is wrong with brokers passes; a reader need not report it.
                say("raised", text=f"{type(error).__name__}: {error}")
                continue
            self._slowest_poll_s = max(self._slowest_poll_s, time.monotonic() - began)
            for tp, records in batch.by_partition().items():
                say("records", partition=tp, runs=runs_of(tp.partition, records, by_offset=self._by_offset))
                self._next[tp] = records[-1].offset + 1
            if batch:
                self._commit()
                if self._epochs:
                    say_generation(self._consumer)
            if time.monotonic() >= self._status_due:
                self._say_status()
                if self._restless:
                    self._fidget()

    def _commit(self) -> None:
        if self._commits == "sync":
            commit(self._consumer)
        elif self._commits == "async" and not self._committing:
            self._committing = True
            self._consumer.commit_async(callback=self._on_commit)

    def _on_commit(self, _: object, error: KafkaError | None) -> None:
        self._committing = False
        if error is not None:
            say("doubt", text=f"{type(error).__name__}: {error}")

    def _fidget(self) -> None:
        """Pause some partitions and resume the others; go back a little in one of them."""
        assigned = sorted(self._consumer.assignment())
        paused = {tp for tp in assigned if self._random.random() < 0.2}
        self._consumer.resume(*set(assigned) - paused)
        self._consumer.pause(*paused)
        tp = self._random.choice(assigned)
        if tp in self._next and self._random.random() < 0.3:
            self._next[tp] = max(0, self._next[tp] - self._random.choice((0, 1, 50, 3_000)))
            self._consumer.seek(tp, self._next[tp])
            say("sought", partition=tp, offset=self._next[tp])

    def _say_status(self) -> None:
        self._status_due = time.monotonic() + STATUS_S
        usage = resource.getrusage(resource.RUSAGE_SELF)
        say(
            "status",
            rss_kb=rss_kb(),
            fds=len(os.listdir("/proc/self/fd")) - 1,
            threads=threading.active_count(),
            cpu_s=usage.ru_utime + usage.ru_stime,
            slowest_poll_s=self._slowest_poll_s,
            states={str(tp): repr(status) for tp, status in self._consumer.partition_states().items()},
        )


def runs_of(partition: int, records: Any, *, by_offset: bool) -> list[tuple[int, int, int]]:
    """Returns runs in which offset and number rise by one: (first offset, first number, count). Checks the values.

    `by_offset`: the offset is the number.
    """
    runs: list[tuple[int, int, int]] = []
    for record in records:
        number, aborted = KEY.unpack(record.key)
        if aborted or record.value != value_of(partition, number):
            say("wrong", text=f"{record.topic_partition} offset {record.offset}: number {number}, aborted {aborted}")
        number = record.offset if by_offset else number
        if runs and runs[-1][0] + runs[-1][2] == record.offset and runs[-1][1] + runs[-1][2] == number:
            runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((record.offset, number, 1))
    return runs


def rss_kb() -> int:
    """Returns the process's anonymous memory (kB)."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


def main() -> int:
    """Run one reader from its JSON argument."""
    settings = json.loads(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kconsumer").addHandler(DoubtReporter())
    assigned, topics = settings.pop("assign", None), settings.pop("topics", None)
    restless, commits = settings.pop("restless", False), settings.pop("commits", "auto")
    by_offset = settings.pop("by_offset", False)
    asyncio = settings.pop("asyncio", False)
    create = partial(BlockingConsumer, ThreadRunners()) if asyncio else kconsumer.Consumer
    consumer: Any = create(
        **settings,
        enable_auto_commit=commits == "auto" and topics is not None,
        interceptors=[CommitReporter()] if topics else (),
    )
    epochs = settings.get("group_protocol") == "consumer"
    reader = Reader(consumer, commits, restless=restless, epochs=epochs, by_offset=by_offset)

    def stop_at_end_of_input() -> None:
        sys.stdin.read()
        reader.stopping = True
        consumer.wakeup()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    if topics:
        consumer.subscribe(topics, listener=Listener(commits))
        say("started")
    else:
        partitions = [kconsumer.TopicPartition(t, p) for t, count in assigned.items() for p in range(count)]
        consumer.assign(partitions)
        say("assigned", partitions=partitions)
    reader.run()
    if commits != "auto":
        commit(consumer)
    consumer.close()
    say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
