"""Measures kconsumer.parallel: `python benchmarks/parallel.py [--records 300000] [--slow 1600] [--rounds 3]`.

One Kafka serves a topic with six partitions. Each figure comes from a new process and a new group.

- Overhead: a handler that does nothing. The CPU time and wall time per record of `process()`, minus those of a loop
  over `poll()`, which does nothing either. The least of the rounds counts.
- Speed-up: a handler that sleeps for 10 ms. The time of a loop that calls it for one record after the other, divided by
  that of `process()`, and by that of a pool written by hand as in docs/guides/threads.md.

Exits with 1 if the overhead of threads is more than 3 us of CPU time, or the best speed-up more than 5 % below the
number of workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "assignors")]

KEYS, PARTITIONS = 10_000, 6
MAX_US, MAX_LOSS = 3.0, 0.05
SLEEP_S = 0.01
OVERHEAD = [
    ("loop", "", 0),
    ("threads", "none", 8),
    ("threads", "partition", 8),
    ("threads", "key", 8),
    ("by hand", "none", 8),
    ("asyncio", "none", 8),
    ("processes", "none", 2),
]
SPEED_UP = [
    ("loop", "", 1),
    ("threads", "none", 8),
    ("threads", "key", 8),
    ("by hand", "none", 8),
    ("asyncio", "none", 8),
    ("threads", "none", 32),
    ("by hand", "none", 32),
    ("asyncio", "none", 32),
]


def nothing(record: object) -> None:
    """A handler that does nothing."""


async def nothing_async(record: object) -> None:
    """The same as a coroutine function."""


def sleep(record: object) -> None:
    """A handler that waits for something."""
    time.sleep(SLEEP_S)


async def sleep_async(record: object) -> None:
    """The same as a coroutine function."""
    await asyncio.sleep(SLEEP_S)


class Stopwatch:
    """Wall and CPU time from the first record on."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def start(self) -> None:
        """Start with the first record."""
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self, records: int) -> dict[str, float]:
        """Returns microseconds per record."""
        return {
            "wall": 1e6 * (time.perf_counter() - self.wall) / records,
            "cpu": 1e6 * (time.process_time() - self.cpu) / records,
        }


def loop(consumer: Any, handler: Any, records: int, workers: int) -> dict[str, float]:
    """Call the handler for one record after the other."""
    watch, count = Stopwatch(), 0
    while count < records:
        batch = consumer.poll(1.0, 500)
        if batch and not count:
            watch.start()
        for record in batch:
            handler(record)
        count += len(batch)
    return watch.stop(count)


def by_hand(consumer: Any, handler: Any, records: int, workers: int) -> dict[str, float]:
    """Use a ThreadPoolExecutor, with a window of 1000 records, and commit once per second."""
    watch, count, last = Stopwatch(), 0, time.monotonic()
    pending: dict[Any, list[tuple[int, Future[None]]]] = defaultdict(list)
    offsets: dict[Any, int] = {}
    with ThreadPoolExecutor(workers) as pool:
        while count < records or any(pending.values()):
            full = sum(map(len, pending.values())) >= 500
            batch = () if full or count >= records else consumer.poll(0.05, 500)
            if batch and not count:
                watch.start()
            for record in batch:
                pending[record.topic_partition].append((record.offset, pool.submit(handler, record)))
            count += len(batch)
            if not batch:
                time.sleep(0.001)
            for partition, started in pending.items():
                done = 0
                while done < len(started) and started[done][1].done():
                    offsets[partition] = started[done][0] + 1
                    done += 1
                del started[:done]
            if time.monotonic() - last > 1:
                consumer.commit_async(offsets)
                last = time.monotonic()
    return watch.stop(count)


class Counted:
    """Starts the stopwatch with the first record, and stops the run after the last."""

    def __init__(self, consumer: Any, records: int) -> None:
        self.watch, self.found = Stopwatch(), {"wall": 0.0, "cpu": 0.0}
        self._poll, self._records, self._taken = consumer.poll, records, 0
        self.processor: Any = None

    def poll(self, timeout: float, max_records: int) -> Any:
        """Poll until enough records are taken. Then wait until all are processed."""
        if self._taken >= self._records:
            summary = self.processor.summary()
            if summary.processed >= self._taken:
                self.found = self.watch.stop(self._taken)
                self.processor.stop()
            return self._poll(0.0, 1) if summary.processed >= self._taken else self._wait()
        batch = self._poll(timeout, max_records)
        if batch and not self._taken:
            self.watch.start()
        self._taken += len(batch)
        return batch

    def _wait(self) -> Any:
        from kconsumer import ConsumerRecords

        time.sleep(0.001)
        return ConsumerRecords.EMPTY


def ours(consumer: Any, handler: Any, records: int, workers: int, **arguments: Any) -> dict[str, float]:
    """Use `process`."""
    from kconsumer.parallel import Processor

    counted = Counted(consumer, records)
    consumer.poll = counted.poll
    counted.processor = Processor(consumer, handler, workers=workers, **arguments)
    counted.processor.run()
    return counted.found


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Measure one way in this process. Returns microseconds per record."""
    from kconsumer import Consumer

    work: Any = sleep if args.slow_handler else nothing
    with Consumer(
        "parallel",
        bootstrap_servers=args.servers,
        group_id=f"parallel-{os.getpid()}-{time.time_ns()}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        if args.way == "loop":
            return loop(consumer, work, args.count, 1)
        if args.way == "by hand":
            return by_hand(consumer, work, args.count, args.workers)
        if args.way == "asyncio":
            work = sleep_async if args.slow_handler else nothing_async
        return ours(consumer, work, args.count, args.workers, executor=args.way, order=args.order)


def in_process(servers: str, way: str, order: str, workers: int, records: int, *, slow: bool) -> dict[str, float]:
    """Measure one way in a new process."""
    command = [sys.executable, __file__, "--way", way, "--order", order, "--workers", str(workers)]
    command += ["--count", str(records), "--servers", servers, *(["--slow-handler"] if slow else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def fill(kafka: Any, records: int) -> None:
    """Write records of 100 bytes with keys."""
    kafka.create_topic("parallel", PARTITIONS)
    keys: list[bytes | None] = [b"key-%d" % (n % KEYS) for n in range(records)]
    kafka.produce("parallel", (b"x" * 100 for _ in range(records)), keys=keys)


def overhead(servers: str, records: int, rounds: int) -> float:
    """Print the overhead of each executor. Returns the largest CPU overhead of threads."""
    best: dict[tuple[str, str, int], dict[str, float]] = {}
    for _ in range(rounds):
        for way in OVERHEAD:
            count = records // 10 if way[0] == "processes" else records
            found = in_process(servers, *way, count, slow=False)
            before = best.setdefault(way, found)
            best[way] = {name: min(before[name], found[name]) for name in found}
    base = best[OVERHEAD[0]]
    print(f"a loop over poll(): {base['cpu']:.2f} us of CPU time per record, {base['wall']:.2f} us")
    print(f"{'overhead per record':30} {'CPU us':>8} {'us':>8}")
    for way in OVERHEAD[1:]:
        cpu, wall = (best[way][name] - base[name] for name in ("cpu", "wall"))
        print(f"{way[0]:10} {way[1]:10} {way[2]:2} workers {cpu:8.2f} {wall:8.2f}", flush=True)
    return max(best[way]["cpu"] - base["cpu"] for way in OVERHEAD if way[0] == "threads")


def speed_up(servers: str, records: int, rounds: int) -> float:
    """Print the speed-up of each executor. Returns the worst ratio of speed-up to workers, of threads."""
    best: dict[tuple[str, str, int], float] = {}
    for _ in range(rounds):
        for way in SPEED_UP:
            count = records // 8 if way[0] == "loop" else records * way[2] // 8
            found = in_process(servers, *way, count, slow=True)["wall"]
            best[way] = min(best.get(way, found), found)
    print(f"{'speed-up of a handler of 10 ms':30} {'times':>8} {'of ideal':>9}")
    for way in SPEED_UP[1:]:
        times = best[SPEED_UP[0]] / best[way]
        print(f"{way[0]:10} {way[1]:10} {way[2]:2} workers {times:8.2f} {times / way[2]:9.1%}", flush=True)
    return min(best[SPEED_UP[0]] / best[way] / way[2] for way in SPEED_UP if way[0] == "threads")


def main() -> int:
    """Start a broker and measure everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=300_000, help="for the overhead")
    parser.add_argument("--slow", type=int, default=1_600, help="for the speed-up with 8 workers")
    parser.add_argument("--rounds", type=int, default=3)
    for name, kind in (("way", str), ("order", str), ("servers", str), ("workers", int), ("count", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--slow-handler", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way is not None:
        print(json.dumps(measure(args)))
        return 0
    from support.brokers.kafka import KafkaCluster

    print(f"load before: {os.getloadavg()[0]:.1f}")
    with KafkaCluster() as kafka:
        fill(kafka, args.records)
        cpu = overhead(kafka.bootstrap_servers, args.records * 9 // 10, args.rounds)
        share = speed_up(kafka.bootstrap_servers, args.slow, args.rounds)
    return 0 if cpu <= MAX_US and share >= 1 - MAX_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
