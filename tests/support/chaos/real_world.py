"""Real time and real brokers for the members of the simulation, and the event log that they write there.

`MemberProcess` and its programs run unchanged: `RealWorld` stands for their simulation, and `EventLog` for their
journal. Each call of the journal becomes a line of JSON. `judge.py` makes the same calls on a real journal later.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from itertools import count
from types import SimpleNamespace
from typing import IO, Any, cast

from kconsumer import Consumer, ConsumerRecord, ShareConsumer, TopicPartition
from kconsumer.parallel import AsyncProcessor, Processor, ShareProcessor
from support.aio.blocking import BlockingConsumer, BlockingRun, ThreadRunners
from support.simulation.handler_journal import Running
from support.simulation.parallel_program import Application
from support.simulation.scenario import Workers

#: The options that replace those of virtual time: more records, and a request without a response ends sooner.
OPTIONS = {
    "max_poll_records": 500,
    "request_timeout_ms": 5_000,
    "retry_backoff_ms": 50,
    "metadata_max_age_ms": 20_000,
    "connections_max_idle_ms": 30_000,
    "auto_commit_interval_ms": 500,
}
OF_CONSUMERS = ("auto_commit_interval_ms",)  # not of share consumers


def now_ms(origin_s: float) -> float:
    """Returns the time (ms) since the begin of a run, on the clock that all processes of the machine share."""
    return (time.monotonic() - origin_s) * 1000


class EventLog:
    """Writes each call as a line: the time, the name of the method, and its arguments."""

    def __init__(self, output: IO[str], origin_s: float) -> None:
        self.now = 0.0  # programs set it; lines have a time of their own
        self.handlers = HandlerLog(self)
        self._output, self._origin_s = output, origin_s
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return partial(self.write, name)

    def write(self, name: str, *arguments: Any, **options: Any) -> None:
        """Write one line."""
        with self._lock:
            line = {"event": name, "at": now_ms(self._origin_s), "arguments": arguments, "options": options}
            self._output.write(json.dumps(line, default=_plain) + "\n")
            self._output.flush()


class HandlerLog:
    """Writes the calls for handlers of `kconsumer.parallel`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._numbers = count(os.getpid() << 32)  # unique among the processes of a member

    def __getattr__(self, name: str) -> Callable[..., None]:
        return partial(self._log.write, f"handlers.{name}")

    def start(self, member: str, record: ConsumerRecord) -> Running:
        """Write that a handler was called. Returns the call."""
        running = Running(next(self._numbers), member, record.topic_partition, record.offset, None, 0.0)
        self._log.write("handlers.start", member, record, number=running.number)
        return running


def _plain(value: Any) -> Any:
    """Returns something that can be written as JSON for an argument of a journal's method."""
    if isinstance(value, ConsumerRecord):
        return {"tp": value.topic_partition, "offset": value.offset, "key": value.key and value.key.decode()}
    if isinstance(value, Running):
        return {"running": value.number, "tp": value.tp, "offset": value.offset}
    return list(value) if isinstance(value, (set, frozenset)) or hasattr(value, "__next__") else vars(value)


class RealWorld:
    """What a member needs of its simulation: time, random numbers, consumers, timers."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._servers = settings["bootstrap_servers"]
        self._origin_s = settings["origin_s"]
        self.random = random.Random(settings["seed"])
        self.scheduler = self
        self.signals = SimpleNamespace(drop=bool)
        self.history: list[str] = []
        topics = {
            name: SimpleNamespace(partitions=[SimpleNamespace(index=n) for n in range(count)])
            for name, count in settings["partitions"].items()
        }
        self.cluster = SimpleNamespace(topics=topics)
        self._runners = ThreadRunners()

    @property
    def now(self) -> float:
        """The time in ms."""
        return now_ms(self._origin_s)

    def sleep(self, ms: float) -> None:
        """Let the member wait."""
        time.sleep(ms / 1000)

    def record(self, _who: str, what: str) -> None:
        """Remember what happens, for the report of a failure."""
        self.history.append(f"{self.now:10.0f} {what}")
        del self.history[:-200]

    def call_at(self, time_ms: float, call: Callable[[], object]) -> None:
        """Call a function on another thread at this time."""

        def run() -> None:
            with suppress(Exception):  # the consumer was closed meanwhile
                call()

        timer = threading.Timer(max(0.0, time_ms - self.now) / 1000, run)
        timer.daemon = True
        timer.start()

    def consumer(self, _process: object, *topics: str, asyncio: bool = False, **options: Any) -> Consumer:
        """Returns a new consumer. With `asyncio`, it is an AsyncConsumer."""
        chosen = {**options, **OPTIONS, "bootstrap_servers": self._servers}
        return (
            cast("Consumer", BlockingConsumer(self._runners, *topics, **chosen))
            if asyncio
            else Consumer(*topics, **chosen)
        )

    def share_consumer(self, _process: object, *, group_id: str, **options: Any) -> ShareConsumer:
        """Returns a new share consumer."""
        chosen = {**options, **{name: value for name, value in OPTIONS.items() if name not in OF_CONSUMERS}}
        return ShareConsumer(group_id=group_id, bootstrap_servers=self._servers, **chosen)

    def share_state(self, _group: str, _tp: TopicPartition, _offset: int) -> None:
        """Returns None: only the leader knows the state of a record."""

    def processor(self, _process: object, consumer: Consumer, handler: Any, **options: Any) -> Processor | BlockingRun:
        """Returns a run of `kconsumer.parallel`."""
        if isinstance(consumer, BlockingConsumer):
            return consumer.processor(AsyncProcessor, handler, **options)
        if options["executor"] == "processes":
            handler = WorkerHandler(self._settings, handler.__self__.workers)
        return Processor(consumer, handler, **options)

    def share_processor(
        self, _process: object, consumer: ShareConsumer, handler: Any, **options: Any
    ) -> ShareProcessor:
        """Returns a run of `kconsumer.parallel` with a share consumer."""
        return ShareProcessor(consumer, handler, **options)


class WorkerHandler:
    """The handler of a member in its worker processes, which write to the event log of the member.

    Each line is one write to the same pipe, and short, so lines of several processes do not mix.
    """

    def __init__(self, settings: dict[str, Any], workers: Workers) -> None:
        self._settings, self._workers = settings, workers

    def __call__(self, records: Any) -> None:
        """Process a record, or a batch of them."""
        if self._workers.batch is None:
            self._application.handle(records)
        else:
            self._application.handle_batch(records)

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerHandler, (self._settings, self._workers)

    @cached_property
    def _application(self) -> Application:
        world = RealWorld({**self._settings, "seed": os.getpid()})
        member: Any = SimpleNamespace(
            name=self._settings["name"],
            plan=SimpleNamespace(workers=self._workers),
            journal=EventLog(sys.stdout, self._settings["origin_s"]),
            simulation=world,
            draw=world.random.uniform,
            chance=lambda probability: world.random.random() < probability,
            catching_up=False,
        )
        return Application(member)
