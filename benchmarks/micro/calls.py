"""Counts the Python function calls of one fetch cycle: `python benchmarks/micro/calls.py [--trace] [engine …]`.

A cycle begins when a record is written while the consumer waits in `poll`. The record arrives, `poll` returns it, the
next fetch is sent, and the next `poll` waits. The consumer is the only member of a group and owns one partition. Calls
of Python functions and of builtin functions are counted, on the calling thread and on threads of the library. Calls
inside compiled code are not.

The consumer runs in a process of its own, on one processor, with real sockets and threads. `FakeCluster` is the broker.
A record is written only when all threads of the consumer wait, so each cycle has the same calls. The result is the most
frequent cycle of many, because a heartbeat or an automatic commit may run in one of them.

Prints where the calls are, and with `--trace` every call in order. `BOUNDS` has the largest allowed number of calls;
`tests/unit/support/test_calls.py` checks it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import kconsumer
from kconsumer import Consumer, ConsumerRecords
from kconsumer.testing import FakeCluster

BOUNDS: dict[str, int] = {
    "classic": 557,
    "threaded": 772,
    "consumer protocol": 786,
}
"""The largest number of calls of one cycle, by engine. Lower a bound when the engine needs fewer calls."""

ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer protocol": {"group_protocol": "consumer"},
}
TOPIC = GROUP = "calls"
WARM_UP, CYCLES = 10, 31
QUIET_CHECKS, CHECK_S = 3, 0.0005  # all threads wait if they do at this number of checks in a row
TIMEOUT_S = 30.0
LIBRARY = Path(kconsumer.__file__).parents[1]
PREFIXES = (f"{LIBRARY}{os.sep}", f"{Path(os.__file__).parent}{os.sep}")


class Call(NamedTuple):
    """One call."""

    ns: int  # when it was made
    thread: str
    depth: int  # in the stack
    function: str  # file and name, or for builtin functions module and name


# --- the measured process ---------------------------------------------------------------------------------------------


class Recorder:
    """Records calls on all threads with `sys.setprofile`, except calls of builtin functions by this file."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, int, str]] = []
        self.active = False
        self._depths: Counter[int] = Counter()

    def start(self) -> None:
        """Record the calling thread, and the threads that are started from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """Record no more calls."""
        self.active = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: Any, event: str, builtin: Any) -> None:
        code, thread = frame.f_code, threading.get_ident()
        if code.co_filename == __file__:
            return
        if event in ("return", "c_return", "c_exception"):
            self._depths[thread] -= 1
            return
        if self.active:
            name = name_of_code(code) if event == "call" else name_of_builtin(builtin)
            self.calls.append((time.monotonic_ns(), threading.current_thread().name, self._depths[thread], name))
        self._depths[thread] += 1


def name_of_code(code: Any) -> str:
    """Returns file and name of a function."""
    path = code.co_filename
    for prefix in PREFIXES:
        path = path.removeprefix(prefix)
    return f"{path}:{code.co_qualname}"


def name_of_builtin(function: Any) -> str:
    """Returns module and name of a builtin function. The function itself is not kept, as it refers to its object."""
    owner = getattr(function, "__self__", None)
    module = function.__module__ or type(owner).__module__
    return f"{module}.{function.__qualname__}"


def consume(engine: str, servers: str) -> None:
    """Read the records of all cycles, and print the calls as JSON."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[os.getpid() % len(processors) :][:1])
    sys.setswitchinterval(10.0)  # threads give way to each other only where they wait
    gc.disable()
    recorder = Recorder()
    recorder.start()
    consumer = Consumer(
        TOPIC, bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest", **ENGINES[engine]
    )
    while not read(consumer.poll(TIMEOUT_S)):
        pass
    print("ready", flush=True)
    recorder.active = True
    for _ in range(WARM_UP + CYCLES):
        if read(consumer.poll(TIMEOUT_S)) != 1:
            raise SystemExit("a poll returned another number of records than one")
    recorder.stop()
    print(json.dumps(recorder.calls), flush=True)
    consumer.close()


def read(records: ConsumerRecords) -> int:
    """Use the records as an application does. Returns their number."""
    count = 0
    for record in records:
        count += record.value is not None
    return count


# --- the measuring process --------------------------------------------------------------------------------------------


def count(engine: str) -> list[Call]:
    """Returns the calls of the most frequent cycle, in order."""
    with FakeCluster() as cluster:
        cluster.create_topic(TOPIC)
        cluster.produce(TOPIC, "first", partition=0)
        command = [sys.executable, __file__, "--consume", engine, cluster.bootstrap_servers]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError(f"the {engine} consumer read no record")
                began = []
                for number in range(WARM_UP + CYCLES):
                    wait_until_quiet(process)
                    began.append(time.monotonic_ns())
                    cluster.produce(TOPIC, str(number), partition=0)
                output = process.stdout.readline()
            finally:
                process.kill()
    return most_frequent(split([Call(*row) for row in json.loads(output)], began)[WARM_UP:-1])


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


def split(calls: list[Call], began: list[int]) -> list[list[Call]]:
    """Returns the calls of each cycle. `began`: when the cycles began (ns)."""
    cycles: list[list[Call]] = [[] for _ in began]
    number = -1
    for call in sorted(calls, key=lambda call: call.ns):
        while number + 1 < len(began) and call.ns >= began[number + 1]:
            number += 1
        if number >= 0:
            cycles[number].append(call)
    return cycles


def most_frequent(cycles: list[list[Call]]) -> list[Call]:
    """Returns the first of the cycles whose functions are called as often as in most other cycles."""
    kinds = [frozenset(Counter(call.function for call in cycle).items()) for cycle in cycles]
    kind, _ = Counter(kinds).most_common(1)[0]
    return cycles[kinds.index(kind)]


def by_function(calls: list[Call], top: int | None = None) -> str:
    """Returns a table of the functions that were called most often."""
    rows = Counter(call.function for call in calls).most_common(top)
    return "\n".join(f"  {times:4} {function}" for function, times in rows)


def by_folder(calls: list[Call]) -> str:
    """Returns one line with the number of calls in each package."""
    folders = Counter(call.function.rpartition(":")[0].rpartition("/")[0] or "builtin" for call in calls)
    return ", ".join(f"{folder} {times}" for folder, times in folders.most_common())


def trace(calls: list[Call]) -> str:
    """Returns all calls in order, indented by their depth."""
    least = {call.thread: min(other.depth for other in calls if other.thread == call.thread) for call in calls}
    threads = list(least)
    return "\n".join(
        f"  {threads.index(call.thread)} {'  ' * (call.depth - least[call.thread])}{call.function}" for call in calls
    )


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", nargs="*", help=f"one of {', '.join(ENGINES)}; default: all")
    parser.add_argument("--top", type=int, help="print only this number of functions")
    parser.add_argument("--trace", action="store_true", help="print every call in order, with its thread")
    parser.add_argument("--consume", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.consume:
        consume(*options.consume)
        return
    for engine in options.engine or ENGINES:
        calls = count(engine)
        builtin = sum(":" not in call.function for call in calls)
        print(f"{engine}: {len(calls)} calls, {builtin} of builtin functions (at most {BOUNDS[engine]})")
        print(f"  {by_folder(calls)}")
        print(trace(calls) if options.trace else by_function(calls, options.top))


if __name__ == "__main__":
    main()
