"""read_topic and scan_topic: all partitions of a topic between two points, as one table or batch by batch.

Decides which partitions are read in parallel and how many batches may wait to be returned. However reading ends, no
thread is left running.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kconsumer.arrow import RecordBatch, SparkBatch, Table
from kconsumer.clock import Clock, Timer
from kconsumer.errors import StateError, TimeoutError
from kconsumer.ranges import offset_bounds
from kconsumer.ranges.client import RangeClient
from kconsumer.ranges.offset_bounds import EARLIEST, LATEST, Point
from kconsumer.ranges.progress import ProgressLine
from kconsumer.ranges.reader import MAX_POLL_S, Limits, Schema
from kconsumer.records import ConsumerRecords
from kconsumer.types import TopicPartition

Ranges = dict[TopicPartition, tuple[int, int]]
Progress = Callable[[int, int], object] | bool | None
Found = queue.SimpleQueue["Step | BaseException | None"]
Step = tuple[RecordBatch | None, int]  # a batch, and how many offsets it advanced
MAX_THREADS = 4
MIN_MEMORY = 8 << 20  # of the fetched data of each thread
MAX_WAITING_BATCHES = 2  # per thread, before it waits until they are taken


def read_topic(
    topic: str,
    *,
    bootstrap_servers: str | Sequence[str],
    start: Point = EARLIEST,
    end: Point = LATEST,
    columns: Iterable[str] | None = None,
    progress: Progress = None,
    threads: int | None = None,
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 16 << 20,
    max_rows: int = 200_000,
    **options: Any,
) -> Table:
    """Returns all records of a topic's partitions between two points, as a table in memory.

    `start` and `end` are `earliest`, `latest` (as of now), an offset (limited to what each partition contains) or a
    `datetime` with a time zone: the first record of that time or later. Records of one partition are in order.
    `progress` is by default a line on stderr if that is a terminal; True writes it in any case, False never, and a
    function is called with the finished and the total count of offsets. `threads` read in parallel, by default one per
    processor, at most four. `options` are those of `Consumer`.

    Raises OffsetOutOfRangeError if records are deleted while they are being read, TimeoutError if there is no progress
    for `default_api_timeout_ms`, ValueError if the topic does not exist.
    """
    with scan_topic(
        topic,
        bootstrap_servers=bootstrap_servers,
        start=start,
        end=end,
        columns=columns,
        progress=progress,
        threads=threads,
        isolation_level=isolation_level,
        max_bytes=max_bytes,
        max_rows=max_rows,
        **options,
    ) as reader:
        return Table(reader.columns, list(reader))


def scan_topic(
    topic: str,
    *,
    bootstrap_servers: str | Sequence[str],
    start: Point = EARLIEST,
    end: Point = LATEST,
    columns: Iterable[str] | None = None,
    schema: Schema = "kconsumer",
    progress: Progress = False,
    threads: int | None = None,
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 4 << 20,
    max_rows: int = 20_000,
    **options: Any,
) -> TopicReader:
    """Returns an iterator over the batches of what `read_topic` reads, in bounded memory.

    It takes the arguments of `read_topic`. Leaving the `with` block early, or `close()`, ends reading and its threads.
    """
    limits = Limits(columns, schema, max_rows, max_bytes)
    for point in (start, end):
        offset_bounds.check(point)
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    client = RangeClient(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level, **options)
    with client:  # for offsets only; each thread reads with its own connections and its share of the memory
        ranges = find_ranges(client, topic, start, end)
    shares = split_ranges(ranges, threads or min(os.cpu_count() or 1, MAX_THREADS))
    memory = max(client.config.buffer_memory // max(len(shares), 1), MIN_MEMORY)
    work = [(client.with_options(buffer_memory=memory), share) for share in shares]
    total = sum(after - at for at, after in ranges.values())
    return TopicReader(limits, work, progress_callback(progress, topic), total)


def progress_callback(progress: Progress, topic: str) -> Callable[[int, int], object] | None:
    """Returns the function that is called with the progress, or None."""
    if callable(progress):
        return progress
    wanted = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    return ProgressLine(topic, sys.stderr, Clock()) if wanted else None


def find_ranges(client: RangeClient, topic: str, start: Point, end: Point) -> Ranges:
    """Returns the offsets to read of each partition; the end is never before the start."""
    found = client.topics([topic]).get(topic)
    if found is None:
        raise ValueError(f"topic {topic!r} does not exist on {client.options['bootstrap_servers']}")
    partitions = sorted(TopicPartition(topic, info.partition) for info in found.partitions)
    first, last = client.beginning_offsets(partitions), client.end_offsets(partitions)
    starts = offset_bounds.resolve(client.consumer, start, first, last)
    ends = offset_bounds.resolve(client.consumer, end, first, last)
    clipped = {tp: min(max(starts[tp], first[tp]), last[tp]) for tp in partitions}
    return {tp: (clipped[tp], max(clipped[tp], min(ends[tp], last[tp]))) for tp in partitions}


def split_ranges(ranges: Ranges, count: int) -> list[Ranges]:
    """Split the ranges that are not empty into at most `count` shares with about as many offsets each."""
    shares: list[Ranges] = [{} for _ in range(count)]
    sizes = [0] * count
    for tp, (at, after) in sorted(ranges.items(), key=lambda item: item[1][0] - item[1][1]):
        if at < after:
            smallest = sizes.index(min(sizes))
            shares[smallest][tp] = (at, after)
            sizes[smallest] += after - at
    return [share for share in shares if share]


def read_share(client: RangeClient, share: Ranges, limits: Limits) -> Iterator[Step]:
    """Read ranges of several partitions, each until its end."""
    ends = {tp: after for tp, (_, after) in share.items()}
    left = {tp: at for tp, (at, _) in share.items()}
    with client.in_use():
        consumer = client.consumer
        consumer.assign(left)
        for tp, at in left.items():
            consumer.seek(tp, at)
        while left:
            records = _poll(client, left, limits)
            batch = records.to_arrow(limits.names, ends=ends)
            before = sum(left.values())
            moved = {tp: min(found.offset, ends[tp]) for tp, found in records.next_offsets().items() if tp in left}
            offsets = sum((left | moved).values()) - before
            left |= moved
            for tp in [tp for tp, at in moved.items() if at == ends[tp]]:
                del left[tp]
                consumer.pause(tp)
            yield (SparkBatch(batch) if batch and limits.schema == "spark" else batch or None), offsets


def _poll(client: RangeClient, left: Mapping[TopicPartition, int], limits: Limits) -> ConsumerRecords:
    """Returns records, or positions that moved. Raises TimeoutError when there are neither for too long."""
    timer = Timer(Clock(), client.timeout_ms)
    while True:
        records = client.consumer._poll(MAX_POLL_S, limits.max_rows, limits.max_bytes)
        if records.next_offsets():
            return records
        if timer.expired:
            where = ", ".join(f"{tp} at offset {at}" for tp, at in left.items())
            raise TimeoutError(f"no data for {client.timeout_ms / 1000:g} s while reading {where}")


class _Exchange:
    """What the reading threads and the caller share.

    Its parts cannot be left locked by Ctrl-C. `queue.Queue` and `threading.Event` are Python code that holds a lock: an
    exception during it would keep the lock, and `close()` would wait for ever.
    """

    def __init__(self, capacity: int) -> None:
        self.found: Found = queue.SimpleQueue()
        self.stopped = False
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one entry for each batch that may be put
        self.make_room(capacity)

    def put(self, step: Step) -> None:
        """Pass a step to the caller. Blocks until the caller has taken enough of the earlier steps."""
        self._room.get()
        self.found.put(step)

    def make_room(self, count: int) -> None:
        """Let the threads put this many more steps."""
        for _ in range(count):
            self._room.put(None)


def _run(client: RangeClient, share: Ranges, limits: Limits, exchange: _Exchange) -> None:
    """Read the ranges of one client in a thread, and pass the steps to the caller, until the end or a stop."""
    try:
        if exchange.stopped:
            return
        for step in read_share(client, share, limits):
            exchange.put(step)
            if exchange.stopped:
                return
        exchange.found.put(None)
    except BaseException as error:  # never Ctrl-C, which is raised in the main thread
        if not exchange.stopped:
            exchange.found.put(error)
    finally:
        if exchange.stopped:
            client.close()


class TopicReader:
    """Iterates over the Arrow batches of a topic; ends after the last one, or with `close()` or `with`."""

    def __init__(
        self,
        limits: Limits,
        work: list[tuple[RangeClient, Ranges]],
        progress: Callable[[int, int], object] | None,
        total: int,
    ) -> None:
        self.total = total
        self.done = 0
        self._limits = limits
        self._progress = progress
        self._work = work
        self._incomplete = ""  # why there are no more batches although the topic was not read to its end
        self._exchange = _Exchange(MAX_WAITING_BATCHES * len(work))
        self._threads: list[threading.Thread] = []
        self._steps = self._read_in_caller() if len(work) < 2 else self._read_in_threads()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as in `kconsumer.arrow`."""
        return self._limits.names

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        if self._incomplete:
            raise StateError(
                f"{self._incomplete} at {self.done} of {self.total} offsets: the rest was not read; call"
                " scan_topic() again to read it"
            )
        try:
            for batch, offsets in self._steps:
                self.done += offsets
                if self._progress is not None:
                    self._progress(self.done, self.total)
                if batch:
                    return batch
        except BaseException:
            self._incomplete = "reading was ended by an exception"
            self.close()
            raise
        self._finish()
        raise StopIteration

    def _read_in_caller(self) -> Iterator[Step]:
        for client, share in self._work:
            yield from read_share(client, share, self._limits)

    def _read_in_threads(self) -> Iterator[Step]:
        for number, (client, share) in enumerate(self._work):
            arguments = (client, share, self._limits, self._exchange)  # not self: see __del__
            thread = threading.Thread(target=_run, args=arguments, name=f"kconsumer-topic-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        left = len(self._threads)
        while left:
            found = self._exchange.found.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                left -= 1
            else:
                self._exchange.make_room(1)
                yield found

    def close(self) -> None:
        """End reading. When it returns, there are no threads and no connections. May be called again."""
        if self.done < self.total and not self._incomplete:
            self._incomplete = "the reader was closed"
        self._finish()

    def _finish(self) -> None:
        self._exchange.stopped = True
        for client, _ in self._work:
            if self._threads:
                client.wakeup()
        while alive := [thread for thread in self._threads if thread.is_alive()]:
            self._exchange.make_room(len(alive))
            for thread in alive:
                thread.join(0.01)
        for client, _ in self._work:
            client.close()
        # Last: after an interruption close() is called again and needs them.
        self._steps, self._threads, self._exchange.found = iter(()), [], queue.SimpleQueue()
        if isinstance(self._progress, ProgressLine):
            self._progress.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._exchange.stopped:
            self.close()

    def __repr__(self) -> str:
        return f"<TopicReader at {self.done} of {self.total} offsets, {len(self._work)} threads>"
