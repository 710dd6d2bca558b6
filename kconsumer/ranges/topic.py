"""read_topic and scan_topic: all partitions of a topic between two points, as one table or batch after batch.

Decides which partitions are read side by side, how many batches may wait to be taken, and how it all ends: whatever
happens, no thread is left behind.
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
from kconsumer.ranges.reader import LONGEST_POLL_S, Limits, Schema
from kconsumer.records import ConsumerRecords
from kconsumer.types import TopicPartition

Ranges = dict[TopicPartition, tuple[int, int]]
Progress = Callable[[int, int], object] | bool | None
Found = queue.SimpleQueue["Step | BaseException | None"]
Step = tuple[RecordBatch | None, int]  # and how many offsets it went on
MOST_THREADS = 4
LEAST_MEMORY = 8 << 20  # of the fetched data of each thread
WAITING_BATCHES = 2  # of each thread, until it waits for them to be taken


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
    """All records of a topic's partitions between two points, as a table in memory.

    `start` and `end` are `earliest`, `latest` (as of now), an offset (clipped to what each partition holds) or a
    `datetime` with a time zone: the first record of that time or later. Records of one partition come in order.
    `progress`: a line on the terminal if stderr is one; True for it anywhere, False for nowhere, or a function, called
    with how many offsets are done and how many there are. `threads` read side by side, by default as many as there
    are processors, up to four. `options` are those of `Consumer`.

    Raises OffsetOutOfRangeError if records are deleted while they are being read, TimeoutError if nothing comes for
    `default_api_timeout_ms`, ValueError if there is no such topic.
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
    """What `read_topic` reads, batch after batch as they are iterated over, in bounded memory.

    Takes what `read_topic` takes. Leaving the `with` block early, or `close()`, ends reading and its threads.
    """
    limits = Limits(columns, schema, max_rows, max_bytes)
    for point in (start, end):
        offset_bounds.check(point)
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    client = RangeClient(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level, **options)
    with client:  # it only asks; whoever reads has a share of the memory, and connections of its own
        ranges = find_ranges(client, topic, start, end)
    shares = share_out(ranges, threads or min(os.cpu_count() or 1, MOST_THREADS))
    memory = max(client.config.buffer_memory // max(len(shares), 1), LEAST_MEMORY)
    work = [(client.with_options(buffer_memory=memory), share) for share in shares]
    total = sum(after - at for at, after in ranges.values())
    return TopicReader(limits, work, show(progress, topic), total)


def show(progress: Progress, topic: str) -> Callable[[int, int], object] | None:
    """Whom to tell how far reading is."""
    if callable(progress):
        return progress
    wanted = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    return ProgressLine(topic, sys.stderr, Clock()) if wanted else None


def find_ranges(client: RangeClient, topic: str, start: Point, end: Point) -> Ranges:
    """The offsets to read of each partition; never the end before the start."""
    found = client.topics([topic]).get(topic)
    if found is None:
        raise ValueError(f"there is no topic {topic!r} on {client.options['bootstrap_servers']}")
    partitions = sorted(TopicPartition(topic, info.partition) for info in found.partitions)
    first, last = client.beginning_offsets(partitions), client.end_offsets(partitions)
    starts = offset_bounds.resolve(client.consumer, start, first, last)
    ends = offset_bounds.resolve(client.consumer, end, first, last)
    clipped = {tp: min(max(starts[tp], first[tp]), last[tp]) for tp in partitions}
    return {tp: (clipped[tp], max(clipped[tp], min(ends[tp], last[tp]))) for tp in partitions}


def share_out(ranges: Ranges, most: int) -> list[Ranges]:
    """The ranges that are not empty in at most so many shares of about as many offsets."""
    shares: list[Ranges] = [{} for _ in range(most)]
    sizes = [0] * most
    for tp, (at, after) in sorted(ranges.items(), key=lambda item: item[1][0] - item[1][1]):
        if at < after:
            smallest = sizes.index(min(sizes))
            shares[smallest][tp] = (at, after)
            sizes[smallest] += after - at
    return [share for share in shares if share]


def steps_of(client: RangeClient, share: Ranges, limits: Limits) -> Iterator[Step]:
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
    """Records, or positions that moved. TimeoutError when there are neither for too long."""
    timer = Timer(Clock(), client.patience_ms)
    while True:
        records = client.consumer._poll(LONGEST_POLL_S, limits.max_rows, limits.max_bytes)
        if records.next_offsets():
            return records
        if timer.expired:
            where = ", ".join(f"{tp} at offset {at}" for tp, at in left.items())
            raise TimeoutError(f"nothing came for {client.patience_ms / 1000:g} s while reading {where}")


class _Exchange:
    """What the reading threads and the caller share.

    Made of parts that Ctrl-C cannot leave locked. `queue.Queue` and `threading.Event` run as Python code that holds a
    lock: an exception in the middle of it would keep the lock, and `close()` would wait for ever.
    """

    def __init__(self, capacity: int) -> None:
        self.found: Found = queue.SimpleQueue()
        self.stopped = False
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()  # one entry for each batch that may be put
        self.make_room(capacity)

    def put(self, step: Step) -> None:
        """Hand a step to the caller, as soon as it has taken enough of those before."""
        self._room.get()
        self.found.put(step)

    def make_room(self, count: int) -> None:
        """Let the threads put this many steps more."""
        for _ in range(count):
            self._room.put(None)


def _run(client: RangeClient, share: Ranges, limits: Limits, exchange: _Exchange) -> None:
    """In a thread: read a share until its end, or until the exchange is stopped."""
    try:
        if exchange.stopped:
            return
        for step in steps_of(client, share, limits):
            exchange.put(step)
            if exchange.stopped:
                return
        exchange.found.put(None)
    except BaseException as error:  # Ctrl-C does not come here: it is for the main thread
        if not exchange.stopped:
            exchange.found.put(error)
    finally:
        if exchange.stopped:
            client.close()


class TopicReader:
    """Iterates over the Arrow batches of a topic; ends itself after the last one, or with `close()` or `with`."""

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
        self._incomplete = ""  # why no batch comes any more, although the topic was not read to its end
        self._exchange = _Exchange(WAITING_BATCHES * len(work))
        self._threads: list[threading.Thread] = []
        self._steps = self._one_by_one() if len(work) < 2 else self._side_by_side()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as kconsumer names them."""
        return self._limits.names

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        if self._incomplete:
            raise StateError(
                f"{self._incomplete} at {self.done} of {self.total} offsets: what follows was not read; call"
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

    def _one_by_one(self) -> Iterator[Step]:
        for client, share in self._work:
            yield from steps_of(client, share, self._limits)

    def _side_by_side(self) -> Iterator[Step]:
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
        """End reading: when it returns, there are no threads and no connections. May be called again."""
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
        # Not before: a close() that was interrupted is done again.
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
