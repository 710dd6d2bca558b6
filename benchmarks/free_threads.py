"""Measures how threads scale on two cores: `python benchmarks/free_threads.py [--rounds 5] [--check]`. No broker.

- Decoding: two threads decode as many batches each as one thread alone. The speed-up is 2.0 if they do not disturb each
  other and one thread alone uses one core. With zstd it uses more, because another thread of the process decompresses
  in advance. Then the speed-up is at most 2.0 divided by the cores that one uses. Their product is the speed-up if it
  used one core, and is printed, too.
- `kconsumer.parallel`: a handler in pure Python, for records of a `MockConsumer`, with one and two threads, or
  processes.

With the GIL, threads that run Python code have a speed-up of 1.0; a free-threaded Python is needed for more. Rounds of
one and two workers take turns, and the least time of each counts. `--check` exits with 1 if this product is less than
1.8 for any decoding, or if threads with the handler have less than 1.7.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "assignors")]

from kconsumer import decode_batches
from kconsumer.parallel import process
from kconsumer.testing import MockConsumer
from kconsumer.testing.batches import Rec, build_batch

RECORDS, PASSES, HANDLED = 10_000, 100, 3_000
MIN_DECODING, MIN_HANDLER = 1.8, 1.7
PARTITION = ("t", 0)


def values(data: bytes) -> int:
    """Read the value of each record."""
    return sum(len(record.value) for record in decode_batches(data))


def columns(data: bytes) -> int:
    """Build Arrow columns."""
    return decode_batches(data).to_arrow().num_rows


def decode(data: bytes, work: Callable[[bytes], int], threads: int) -> float:
    """Returns the seconds in which each thread has decoded the data PASSES times."""
    barrier = threading.Barrier(threads + 1)

    def run() -> None:
        barrier.wait()
        for _ in range(PASSES):
            work(data)

    started = [threading.Thread(target=run) for _ in range(threads)]
    for thread in started:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in started:
        thread.join()
    return time.perf_counter() - began


def cores(data: bytes, work: Callable[[bytes], int]) -> float:
    """Returns how many cores one thread that decodes keeps busy, with the thread that decompresses for it."""
    used, began = time.process_time(), time.perf_counter()
    decode(data, work, 1)
    return (time.process_time() - used) / (time.perf_counter() - began)


def handle(record: Any) -> int:
    """A handler in pure Python, of some 200 us."""
    total = 0
    for number in range(3_000):
        total += number ^ record.offset
    return total


def handled(executor: Any, workers: int) -> float:
    """Returns the seconds in which HANDLED records were processed."""
    options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with MockConsumer("t", consumer_timeout_ms=1000, **options) as consumer:
        consumer.rebalance([PARTITION])
        consumer.add_records(PARTITION, [b"x"] * HANDLED)
        began = time.perf_counter()
        summary = process(consumer, handle, executor=executor, workers=workers, order="none")
        took = time.perf_counter() - began
        assert summary.processed == HANDLED
        return took


def speed_up(measure: Callable[[int], float], amount_grows: bool, rounds: int) -> float:
    """Measure one and two workers in turn. Returns how many times more two of them do in the same time."""
    best = [min(times) for times in zip(*([measure(1), measure(2)] for _ in range(rounds)), strict=True)]
    return (2 if amount_grows else 1) * best[0] / best[1]


def main() -> int:
    """Measure and print everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"Python {platform.python_version()}, GIL {'on' if gil else 'off'}, load {os.getloadavg()[0]:.1f}")
    rows = [Rec(b"%d: " % n + b"x" * 90, b"key %d" % n) for n in range(RECORDS)]
    found: dict[str, float] = {}
    for codec in ("none", "lz4", "zstd"):
        data = b"".join(build_batch(rows[at : at + 200], base_offset=at, codec=codec) for at in range(0, RECORDS, 200))
        for work in (values, columns):
            name = f"decoding, {codec}, {work.__name__}"
            speed = speed_up(lambda threads, d=data, w=work: decode(d, w, threads), True, args.rounds)
            used = cores(data, work)
            found[name] = speed * used
            print(f"{name:40} {speed:5.2f}   one thread uses {used:.2f} cores: {found[name]:.2f}", flush=True)
    for executor in ("threads", "processes"):
        name = f"handler in Python, {executor}"
        found[name] = speed_up(lambda workers, e=executor: handled(e, workers), False, args.rounds)
        print(f"{name:40} {found[name]:5.2f}", flush=True)
    decoding = [speed for name, speed in found.items() if name.startswith("decoding")]
    enough = min(decoding) >= MIN_DECODING and found["handler in Python, threads"] >= MIN_HANDLER
    return int(args.check and not enough)


if __name__ == "__main__":
    raise SystemExit(main())
