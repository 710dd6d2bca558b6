"""read_topic and scan_topic: read all partitions of a topic between two points, into a table or batch by batch.

Decides which partitions are read in parallel, and how many batches may wait for the caller. When reading has ended, for
whatever reason, no thread is left running.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kconsumer._client.offset_arguments import at_least_one
from kconsumer._common.closing import Closing
from kconsumer.arrow import RecordBatch, Table
from kconsumer.errors import StateError
from kconsumer.ranges import offset_bounds
from kconsumer.ranges.client import RangeClient
from kconsumer.ranges.limits import Limits, Schema
from kconsumer.ranges.offset_bounds import EARLIEST, LATEST, Point
from kconsumer.ranges.progress import ProgressLine
from kconsumer.ranges.topic_steps import (
    Progress,
    Ranges,
    RangesInTurn,
    Step,
    find_ranges,
    progress_callback,
    topic_names,
)

MAX_THREADS = 4
MIN_MEMORY = 8 << 20  # the least `buffer_memory` of a thread (bytes)
# The maximum number of batches that wait for the caller, for each thread. The threads block while it is reached.
MAX_WAITING_BATCHES = 2


def read_topic(
    topic: str | Iterable[str],
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
    """Returns all records of a topic, or of several topics, between two points, as a table in memory.

    `start` and `end` are each `earliest`, `latest` (the current end), an offset, or a `datetime` with a time zone (the
    first record of that time or later). An offset outside a partition is replaced by the partition's first or end
    offset. The records of one partition are in order. `threads` is the number of threads that read in parallel; the
    default is the number of processors, but at most four. `options` are those of `Consumer`.

    By default, a progress line is written to stderr if stderr is a terminal. With `progress` True, it is always
    written, and with False never. If `progress` is a function, it is called with the number of offsets that were read,
    and the number of all offsets.

    Raises OffsetOutOfRangeError if records are deleted while they are being read, TimeoutError if there is no progress
    for `default_api_timeout_ms`, and ValueError if a topic does not exist.
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
    topic: str | Iterable[str],
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
    """Returns an iterator over the records that `read_topic` would return, as Arrow batches in bounded memory.

    The arguments are those of `read_topic`, and `schema` is that of `read_range`. To end reading and its threads early,
    call `close()` or leave a `with` block.
    """
    topics, limits = topic_names(topic), Limits(columns, schema, max_rows, max_bytes)
    for point in (start, end):
        offset_bounds.check(point)
    chosen = min(os.cpu_count() or 1, MAX_THREADS) if threads is None else at_least_one("threads", threads)
    client = RangeClient(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level, **options)
    # This client only looks up offsets: each thread reads with its own connections and its part of the memory.
    with client, client.in_use():
        ranges = client.consumer._run(find_ranges(client, topics, start, end))
    by_thread = split_ranges(ranges, chosen)
    memory = max(client.config.buffer_memory // max(len(by_thread), 1), MIN_MEMORY)
    work = [(client.with_options(buffer_memory=memory), part) for part in by_thread]
    total = sum(after - at for at, after in ranges.values())
    return TopicReader(limits, work, progress_callback(progress, topics), total)


def split_ranges(ranges: Ranges, count: int) -> list[Ranges]:
    """Divide the ranges among at most `count` threads. Returns the ranges of each thread.

    Empty ranges are left out. The threads get about the same number of offsets.
    """
    by_thread: list[Ranges] = [{} for _ in range(count)]
    sizes = [0] * count
    for tp, (at, after) in sorted(ranges.items(), key=lambda item: item[1][0] - item[1][1]):
        if at < after:
            smallest = sizes.index(min(sizes))
            by_thread[smallest][tp] = (at, after)
            sizes[smallest] += after - at
    return [part for part in by_thread if part]


def read_ranges(client: RangeClient, ranges: Ranges, limits: Limits) -> Iterator[Step]:
    """Read the ranges of one thread until all of them have ended.

    Yields pairs of a batch and the number of offsets read since the previous pair. The batch is None if these offsets
    have no records.
    """
    with client.in_use():
        reading = RangesInTurn(client, ranges, limits)
        while reading.left:
            yield client.consumer._run(reading.read())


class _StepQueue:
    """A bounded queue that passes batches from the reading threads to the caller.

    It consists of `queue.SimpleQueue` objects, because Ctrl-C cannot leave these locked. `queue.Queue` and
    `threading.Event` are Python code that holds a lock. If an exception interrupted this code, the lock would stay
    locked, and `close()` would wait for ever.
    """

    def __init__(self, capacity: int) -> None:
        #: Steps. None means that a thread has read all its ranges, and an exception that it has ended the thread.
        self.items: queue.SimpleQueue[Step | BaseException | None] = queue.SimpleQueue()
        self.stopped = False  # reading has ended, and the threads must end, too
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()  # one entry for each step that may be put
        self.release(capacity)

    def put(self, step: Step) -> None:
        """Pass a step, that is, a batch and the number of offsets read, to the caller. Blocks while the queue is
        full."""
        self._permits.get()
        self.items.put(step)

    def release(self, count: int) -> None:
        """Make room in the queue for `count` more steps. Threads that wait in `put` then continue."""
        for _ in range(count):
            self._permits.put(None)


def _run(client: RangeClient, ranges: Ranges, limits: Limits, steps: _StepQueue) -> None:
    """Read the ranges of one thread, and pass the batches to the caller through the queue `steps`.

    This is the main function of a reading thread. It returns early after `steps.stopped` was set.
    """
    try:
        if steps.stopped:
            return
        for step in read_ranges(client, ranges, limits):
            steps.put(step)
            if steps.stopped:
                return
        steps.items.put(None)
    except BaseException as error:  # never Ctrl-C, which is raised in the main thread
        if not steps.stopped:
            steps.items.put(error)
    finally:
        if steps.stopped:
            client.close()


class TopicReader(Closing):
    """Iterates over the Arrow batches of a topic.

    Reading ends after the last batch, in `close()`, or at the end of a `with` block.
    """

    def __init__(
        self,
        limits: Limits,
        work: list[tuple[RangeClient, Ranges]],
        progress: Callable[[int, int], object] | None,
        total: int,
    ) -> None:
        self.total = total  # the number of offsets to read
        self.done = 0  # the number of offsets read until now
        self._limits = limits
        self._progress = progress
        self._work = work
        self._incomplete = ""  # why reading ended early; empty if it did not
        self._queue = _StepQueue(MAX_WAITING_BATCHES * len(work))
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
        for client, ranges in self._work:
            yield from read_ranges(client, ranges, self._limits)

    def _read_in_threads(self) -> Iterator[Step]:
        for number, (client, ranges) in enumerate(self._work):
            arguments = (client, ranges, self._limits, self._queue)  # no self: it would prevent __del__
            thread = threading.Thread(target=_run, args=arguments, name=f"kconsumer-topic-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        left = len(self._threads)
        while left:
            found = self._queue.items.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                left -= 1
            else:
                self._queue.release(1)
                yield found

    def close(self) -> None:
        """End reading. Waits until all threads have ended and all connections are closed. May be called repeatedly."""
        if self.done < self.total and not self._incomplete:
            self._incomplete = "the reader was closed"
        self._finish()

    def _finish(self) -> None:
        self._queue.stopped = True
        for client, _ in self._work:
            if self._threads:
                client.wakeup()
        while alive := [thread for thread in self._threads if thread.is_alive()]:
            self._queue.release(len(alive))
            for thread in alive:
                thread.join(0.01)
        for client, _ in self._work:
            client.close()
        # These are cleared last: if an exception interrupts this method, the next call needs them.
        self._steps, self._threads, self._queue.items = iter(()), [], queue.SimpleQueue()
        if isinstance(self._progress, ProgressLine):
            self._progress.end()

    def __del__(self) -> None:
        if not self._queue.stopped:
            self.close()

    def __repr__(self) -> str:
        return f"<TopicReader at {self.done} of {self.total} offsets, {len(self._work)} threads>"
