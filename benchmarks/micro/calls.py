"""Counts the Python function calls of an operation: `python benchmarks/micro/calls.py [--trace] [--engine classic]`.

The operations are a fetch cycle with one record, an empty poll, a commit, a heartbeat, and a share fetch cycle with one
record (see `operations.py`). Calls of Python functions and of builtin functions are counted, on the calling thread and
on the network thread. Calls inside compiled code are not, nor are those of the heartbeat thread, which has its own
times.

Each repetition has the same calls, so the count is exact. The result is the most frequent one of many repetitions,
because a heartbeat or an automatic commit may run in one of them.

Prints where the calls are, and with `--trace` every call in order. `BOUNDS` has the largest allowed number of calls;
`tests/unit/support/test_calls.py` checks it, except for heartbeats.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import kconsumer

sys.path.append(str(Path(__file__).parent))

import operations
from operations import (
    COMMIT,
    EMPTY,
    ENGINES,
    FETCH,
    HEARTBEAT,
    SHARE,
    SHARE_FETCH,
    Plan,
    Run,
    open_consumer,
    perform,
)

BOUNDS: dict[str, dict[str, int]] = {
    FETCH: {"classic": 10, "threaded": 21, "consumer protocol": 17},
    EMPTY: {"classic": 14, "threaded": 15, "consumer protocol": 13},
    COMMIT: {"classic": 232, "threaded": 423, "consumer protocol": 473},
    HEARTBEAT: {"classic": 307, "threaded": 302, "consumer protocol": 345},
    SHARE_FETCH: {SHARE: 195},
}
"""The largest number of calls, by operation and engine. Lower a bound when the engine needs fewer calls.

Eight calls of each iteration watch the progress of managers and partitions, so that no wait is silent. A heartbeat of
the classic engine needs 97 calls fewer than its bound if the response arrives before the caller waits again.
"""

HEARTBEAT_THREAD = "kconsumer-heartbeat"
PLAN = Plan(warm_up=4, times=19)
MAX_RUNS = 4  # while less than half of the repetitions have the same calls
PAUSE_NS = PLAN.heartbeat_ms * 1_000_000 // 3  # calls with such a pause between them belong to two repetitions
LIBRARY = Path(kconsumer.__file__).parents[1]
PREFIXES = (f"{LIBRARY}{os.sep}", f"{Path(os.__file__).parent}{os.sep}")
HARNESS = frozenset({__file__, operations.__file__})


class Call(NamedTuple):
    """One call."""

    ns: int  # when it was made
    thread: str
    depth: int  # in the stack
    function: str  # file and name, or for builtin functions module and name


# --- the measured process ---------------------------------------------------------------------------------------------


class Recorder:
    """Records calls on all threads with `sys.setprofile`, except those of this file and of `operations.py`."""

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
        if code.co_filename in HARNESS:
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


def measured(operation: str, engine: str, servers: str) -> None:
    """Perform the operation in the measured process, and print the calls as JSON."""
    recorder = Recorder()
    recorder.start()
    consumer = open_consumer(operation, engine, servers, PLAN)
    recorder.active = True
    perform(operation, consumer, PLAN)
    recorder.stop()
    print(json.dumps(recorder.calls), flush=True)
    consumer.close()


# --- the measuring process --------------------------------------------------------------------------------------------


def count(operation: str, engine: str) -> list[Call]:
    """Returns the calls of the most frequent repetition, in order."""
    repetitions: list[list[Call]] = []
    for _ in range(MAX_RUNS):
        repetitions += run_once(operation, engine)
        found, share = most_frequent(repetitions)
        if share >= 0.5:
            break
    return found


def run_once(operation: str, engine: str) -> list[list[Call]]:
    """Returns the calls of each repetition of one process, without those of the warm-up."""
    run = Run(operation, PLAN, lambda servers: [sys.executable, __file__, "--measured", operation, engine, servers])
    found = [Call(*row) for row in json.loads(run.output())]
    calls = sorted((call for call in found if not call.thread.startswith(HEARTBEAT_THREAD)), key=lambda call: call.ns)
    repetitions = split_at_pauses(calls) if operation == HEARTBEAT else split(calls, run.began)
    return repetitions[PLAN.warm_up : -1]


def split(calls: list[Call], began: list[int]) -> list[list[Call]]:
    """Returns the calls of each repetition. `began`: when the repetitions began (ns)."""
    repetitions: list[list[Call]] = [[] for _ in began]
    number = -1
    for call in calls:
        while number + 1 < len(began) and call.ns >= began[number + 1]:
            number += 1
        if number >= 0:
            repetitions[number].append(call)
    return repetitions


def split_at_pauses(calls: list[Call]) -> list[list[Call]]:
    """Returns the calls of each repetition. A pause of `PAUSE_NS` separates them."""
    repetitions: list[list[Call]] = []
    until = 0
    for call in calls:
        if call.ns >= until:
            repetitions.append([])
        repetitions[-1].append(call)
        until = call.ns + PAUSE_NS
    return repetitions


def most_frequent(repetitions: list[list[Call]]) -> tuple[list[Call], float]:
    """Returns a repetition whose functions are called as often as in most others, and the share of such repetitions."""
    kinds = [frozenset(Counter(call.function for call in calls).items()) for calls in repetitions]
    kind, times = Counter(kinds).most_common(1)[0]
    return repetitions[kinds.index(kind)], times / len(kinds)


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
    parser.add_argument("--engine", action="append", choices=[*ENGINES, SHARE], help="only this engine (repeatable)")
    parser.add_argument("--operation", action="append", choices=BOUNDS, help="only this operation (repeatable)")
    parser.add_argument("--top", type=int, help="print only this number of functions")
    parser.add_argument("--trace", action="store_true", help="print every call in order, with its thread")
    parser.add_argument("--measured", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        measured(*options.measured)
        return
    for operation in options.operation or BOUNDS:
        for engine in options.engine or BOUNDS[operation]:
            calls = count(operation, engine)
            builtin = sum(":" not in call.function for call in calls)
            bound = BOUNDS[operation][engine]
            print(f"{operation}, {engine}: {len(calls)} calls, {builtin} of builtin functions (at most {bound})")
            print(f"  {by_folder(calls)}")
            print(trace(calls) if options.trace else by_function(calls, options.top))


if __name__ == "__main__":
    main()
