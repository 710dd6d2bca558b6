"""Processes up to ten records at a time: python examples/asyncio/concurrent_worker.py localhost:9092 my-group my-topic.

Records may finish in any order. Committed is, for each partition, the lowest offset that is not finished, so after a
crash no record is missing; those that were finished behind it are processed again.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable

from kconsumer import ConsumerRecord, RebalanceListener, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import CommitFailedError, RebalanceInProgressError, WakeupError

CONCURRENCY = 10


class Progress:
    """The records of one partition that are being processed."""

    def __init__(self) -> None:
        self.tasks: dict[int, asyncio.Task[None]] = {}  # offset -> task, in the order of the offsets
        self._end = 0  # the offset after the last record that was started

    def start(self, record: ConsumerRecord, task: asyncio.Task[None]) -> None:
        """Add a record. `task` processes it."""
        self.tasks[record.offset] = task
        self._end = record.offset + 1

    def finish(self, record: ConsumerRecord) -> None:
        """Remove a record that was processed."""
        del self.tasks[record.offset]

    def next_offset(self) -> int:
        """Returns the lowest offset that is not finished, which is the one to commit."""
        return next(iter(self.tasks), self._end)


class Worker(RebalanceListener):
    """Polls, and processes each record in a task of its own."""

    def __init__(self, consumer: AsyncConsumer, process: Callable[[ConsumerRecord], Awaitable[None]]) -> None:
        self._consumer = consumer
        self._process = process
        self._free = asyncio.Semaphore(CONCURRENCY)
        self._progress: dict[TopicPartition, Progress] = {}
        self._committed: dict[TopicPartition, int] = {}

    async def run(self, topics: Iterable[str]) -> None:
        """Work until `wakeup` is called. Then finish what was started. If a record fails, raise its error."""
        self._consumer.subscribe(topics, listener=self)
        async with asyncio.TaskGroup() as tasks:
            try:
                while True:
                    # While this waits for records, the tasks continue.
                    for record in await self._consumer.poll(timeout=1.0, max_records=CONCURRENCY):
                        await self._free.acquire()
                        self._start(record, tasks)
                    await self._commit()
            except WakeupError:
                pass
        await self._commit()

    def _start(self, record: ConsumerRecord, tasks: asyncio.TaskGroup) -> None:
        task = tasks.create_task(self._work(record))
        self._progress.setdefault(record.topic_partition, Progress()).start(record, task)

    async def _work(self, record: ConsumerRecord) -> None:
        try:
            await self._process(record)
        finally:
            self._free.release()
        self._progress[record.topic_partition].finish(record)

    async def _commit(self) -> None:
        """Commit the progress that has changed."""
        offsets = {partition: progress.next_offset() for partition, progress in self._progress.items()}
        changed = dict(offsets.items() - self._committed.items())
        if not changed:
            return
        try:
            await self._consumer.commit(changed)
        except (CommitFailedError, RebalanceInProgressError) as error:
            # The partitions may have a new owner, which reads these records again. The next poll rejoins.
            print(f"not committed: {error}", file=sys.stderr)
        else:
            self._committed |= changed

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: Iterable[TopicPartition]) -> None:
        """Finish the records of these partitions and commit them, so that the next owner reads none of them again."""
        started = [task for tp in partitions if tp in self._progress for task in self._progress[tp].tasks.values()]
        if started:
            await asyncio.wait(started)
        await self._commit()
        self._forget(partitions)

    async def on_partitions_lost(self, consumer: AsyncConsumer, partitions: Iterable[TopicPartition]) -> None:
        """Finish the records. Another member may own the partitions already, so a commit would fail."""
        started = [task for tp in partitions if tp in self._progress for task in self._progress[tp].tasks.values()]
        if started:
            await asyncio.wait(started)
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._progress.pop(tp, None)
            self._committed.pop(tp, None)


async def process(record: ConsumerRecord) -> None:
    """A placeholder for your work."""
    await asyncio.sleep(0.01)
    print(f"{record.topic}-{record.partition}@{record.offset}: {record.value!r}")


async def main(servers: str, group: str, *topics: str) -> None:
    """Work until Ctrl-C or SIGTERM."""
    async with AsyncConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: consumer.wakeup())
        await Worker(consumer, process).run(topics)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: concurrent_worker.py HOST:PORT GROUP TOPIC…")
    asyncio.run(main(*sys.argv[1:]))
