"""The operations that `calls.py` and `instructions.py` count, and the process that runs them.

A consumer is the only member of a group and owns one partition. It runs in a process of its own, on one processor, with
real sockets and threads; `FakeCluster` is the broker. The next repetition of an operation begins only when all threads
of the consumer wait, so each repetition does the same.

- fetch cycle: a record is written while the consumer waits in `poll`. The record arrives, `poll` returns it, the next
  fetch is sent, and the next `poll` waits.
- empty poll: `poll(0)` while a fetch is in flight.
- commit: `commit()`, from the call to its return.
- heartbeat: a heartbeat while the consumer waits in `poll`, and its response.
- share fetch cycle: as the fetch cycle, of a `ShareConsumer` in implicit mode. The next `poll` accepts the record.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kconsumer import Consumer, ConsumerRecords, ShareConsumer
from kconsumer.testing import FakeCluster

ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer protocol": {"group_protocol": "consumer"},
}
FETCH, EMPTY, COMMIT, HEARTBEAT = OPERATIONS = ("fetch cycle", "empty poll", "commit", "heartbeat")
SHARE_FETCH = "share fetch cycle"
SHARE = "share"  # in place of an engine: a ShareConsumer has only one
TOPIC = GROUP = "operations"
NO_OTHER_REQUESTS: dict[str, Any] = {
    "fetch_max_wait_ms": 60_000,
    "request_timeout_ms": 90_000,
    "enable_auto_commit": False,
}
NO_HEARTBEATS_MS = 14_000
QUIET_CHECKS, CHECK_S = 3, 0.0005  # all threads wait if they do at this number of checks in a row
TIMEOUT_S = 120.0

Hook = Callable[[], object]


class Plan(NamedTuple):
    """How often an operation is repeated."""

    warm_up: int  # repetitions before each batch that are not counted
    times: int  # repetitions of a batch
    batches: int = 1
    heartbeat_ms: int = 40  # the interval, if heartbeats are the operation

    @property
    def repetitions(self) -> int:
        """The number of all repetitions."""
        return self.batches * (self.warm_up + self.times)


# --- the measured process ---------------------------------------------------------------------------------------------


def open_consumer(operation: str, engine: str, servers: str, plan: Plan) -> Consumer | ShareConsumer:
    """Returns a consumer that has read the first record. It runs on one processor, and sends no other requests."""
    _be_quiet()
    consumer = _open_share(servers) if operation == SHARE_FETCH else _open(operation, engine, servers, plan)
    while not use(consumer.poll(TIMEOUT_S)):
        pass
    return consumer


def _be_quiet() -> None:
    """Run on one processor, with threads that give way to each other only where they wait."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[os.getpid() % len(processors) :][:1])
    sys.setswitchinterval(10.0)  # threads give way to each other only where they wait
    gc.disable()


def _open(operation: str, engine: str, servers: str, plan: Plan) -> Consumer:
    options = ENGINES[engine] | NO_OTHER_REQUESTS
    if options.get("group_protocol") != "consumer":
        options["heartbeat_interval_ms"] = heartbeat_ms(operation, plan)
    return Consumer(TOPIC, bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest", **options)


def _open_share(servers: str) -> ShareConsumer:
    return ShareConsumer(TOPIC, bootstrap_servers=servers, group_id=GROUP, fetch_max_wait_ms=29_000)


def heartbeat_ms(operation: str, plan: Plan) -> int:
    """Returns the heartbeat interval."""
    return plan.heartbeat_ms if operation == HEARTBEAT else NO_HEARTBEATS_MS


def perform(operation: str, consumer: Any, plan: Plan, begin: Hook = bool, end: Hook = bool) -> list[float]:
    """Repeat an operation. Calls `begin` after the warm-up of each batch, and `end` at its end.

    Returns how many operations each batch had, without its warm-up.
    """
    print("ready", flush=True)
    repeat = REPETITIONS[operation]
    beats = operation == HEARTBEAT
    done = []
    for _ in range(plan.batches):
        repeat(consumer, plan.warm_up, plan)
        before = _heartbeat_total(consumer) if beats else 0
        begin()
        repeat(consumer, plan.times, plan)
        end()
        done.append(_heartbeat_total(consumer) - before if beats else plan.times)
    return done


def use(records: ConsumerRecords) -> int:
    """Use the records as an application does. Returns their number."""
    count = 0
    for record in records:
        count += record.value is not None
    return count


def _fetch(consumer: Consumer | ShareConsumer, times: int, _plan: Plan) -> None:
    for _ in range(times):
        if use(consumer.poll(TIMEOUT_S)) != 1:
            raise SystemExit("a poll returned another number of records than one")


def _poll(consumer: Consumer, times: int, _plan: Plan) -> None:
    for _ in range(times):
        os.read(0, 1)
        if consumer.poll(0):
            raise SystemExit("a poll returned records")


def _commit(consumer: Consumer, times: int, _plan: Plan) -> None:
    for _ in range(times):
        os.read(0, 1)
        consumer.commit()


def _wait_for_heartbeats(consumer: Consumer, times: int, plan: Plan) -> None:
    consumer.poll((times + 0.5) * plan.heartbeat_ms / 1000)


def _heartbeat_total(consumer: Consumer) -> float:
    (total,) = [value for name, value in consumer.metrics().items() if name.name == "heartbeat-total"]
    return total


REPETITIONS: dict[str, Callable[[Any, int, Plan], None]] = {
    FETCH: _fetch,
    EMPTY: _poll,
    COMMIT: _commit,
    HEARTBEAT: _wait_for_heartbeats,
    SHARE_FETCH: _fetch,
}


# --- the measuring process --------------------------------------------------------------------------------------------


class Run:
    """A process that performs an operation, while this process lets each repetition begin.

    `command(servers)`: the arguments of the process. It calls `open_consumer` and `perform` with the same operation and
    plan, and prints one more line.
    """

    def __init__(self, operation: str, plan: Plan, command: Callable[[str], list[str]]) -> None:
        self._operation, self._plan, self._command = operation, plan, command
        self.began: list[int] = []  # when the repetitions began, warm-up included (ns)

    def output(self) -> str:
        """Returns the last line that the process prints."""
        interval_ms = heartbeat_ms(self._operation, self._plan)
        with (
            FakeCluster(
                group_consumer_heartbeat_interval_ms=interval_ms, group_share_heartbeat_interval_ms=NO_HEARTBEATS_MS
            ) as cluster,
            self._process(cluster) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the consumer read no record")
            for _ in range(self._plan.repetitions if self._operation != HEARTBEAT else 0):
                wait_until_quiet(process)
                self.began.append(time.monotonic_ns())
                if self._operation in (FETCH, SHARE_FETCH):
                    cluster.produce(TOPIC, "value", partition=0)
                else:
                    os.write(process.stdin.fileno(), b"\n")
            return process.stdout.readline()

    @contextmanager
    def _process(self, cluster: FakeCluster) -> Iterator[subprocess.Popen[str]]:
        cluster.create_topic(TOPIC)
        cluster.produce(TOPIC, "first", partition=0)
        if self._operation == SHARE_FETCH:
            cluster.configure_group(GROUP, share_auto_offset_reset="earliest")
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = self._command(cluster.bootstrap_servers)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


def wait_until_quiet(process: subprocess.Popen[str]) -> None:
    """Wait until all threads of a process wait."""
    quiet, until = 0, time.monotonic() + TIMEOUT_S
    while quiet < QUIET_CHECKS:
        if time.monotonic() > until or process.poll() is not None:
            raise RuntimeError("the consumer ended, or never waited")
        time.sleep(CHECK_S)
        quiet = quiet + 1 if waits(process.pid) else 0


def waits(pid: int) -> bool:
    """Returns True if all threads of a process wait."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)
