"""Posts each record to an HTTP server: python examples/asyncio/http_forwarder.py localhost:9092 group topic http://….

The records of a partition are posted one after the other, those of different partitions at the same time. A slow or
failing server makes the queues grow: a partition whose queue is full is paused, so the consumer fetches no more of it,
but continues to poll and stays in its group. Records are committed after the server has accepted them.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Iterable

import aiohttp

from kconsumer import ConsumerRecord, ConsumerRecords, RebalanceListener, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import CommitFailedError, RebalanceInProgressError, WakeupError

FULL, LOW = 100, 20  # records in a queue: pause the partition from FULL on, resume it from LOW on
RETRY_S = 0.5


class Sender:
    """Posts the records of one partition in their order."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tasks: asyncio.TaskGroup) -> None:
        self._session = session
        self._url = url
        self._added = asyncio.Event()
        self.queue: deque[ConsumerRecord] = deque()  # the first one is being posted
        self.next_offset: int | None = None  # the offset after the last record that the server has accepted
        self.task = tasks.create_task(self._run())

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Post these records after those in the queue."""
        self.queue.extend(records)
        self._added.set()

    async def _run(self) -> None:
        while True:
            while self.queue:
                record = self.queue[0]
                await self._post(record)
                self.queue.popleft()
                self.next_offset = record.offset + 1
            self._added.clear()
            await self._added.wait()

    async def _post(self, record: ConsumerRecord) -> None:
        """Post a record until the server accepts it."""
        while True:
            try:
                async with self._session.post(self._url, data=record.value or b"") as response:
                    response.raise_for_status()
                    return
            except (aiohttp.ClientError, TimeoutError) as error:
                print(f"{record.topic_partition} offset {record.offset}: {error}", file=sys.stderr)
                await asyncio.sleep(RETRY_S)


class Forwarder(RebalanceListener):
    """Polls, and passes each record to the sender of its partition."""

    def __init__(self, consumer: AsyncConsumer, session: aiohttp.ClientSession, url: str) -> None:
        self._consumer = consumer
        self._session = session
        self._url = url
        self._senders: dict[TopicPartition, Sender] = {}

    async def run(self, topics: Iterable[str]) -> None:
        """Forward records until `wakeup` is called."""
        self._consumer.subscribe(topics, listener=self)
        async with asyncio.TaskGroup() as tasks:
            try:
                while True:
                    self._add(await self._consumer.poll(timeout=0.1), tasks)
                    self._pause_and_resume()
                    await self._commit(self._senders)
            except WakeupError:
                pass
            finally:
                await self._end(self._senders)
        # The consumer is closed next. It calls on_partitions_revoked, which commits.

    def _add(self, records: ConsumerRecords, tasks: asyncio.TaskGroup) -> None:
        for partition, added in records.by_partition().items():
            if partition not in self._senders:
                self._senders[partition] = Sender(self._session, self._url, tasks)
            self._senders[partition].add(added)

    def _pause_and_resume(self) -> None:
        paused = self._consumer.paused()
        for partition, sender in self._senders.items():
            if partition not in paused and len(sender.queue) >= FULL:
                self._consumer.pause(partition)
            elif partition in paused and len(sender.queue) <= LOW:
                self._consumer.resume(partition)

    async def _commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit what the server has accepted since the last commit."""
        accepted = {tp: self._senders[tp].next_offset for tp in partitions if tp in self._senders}
        offsets = {tp: offset for tp, offset in accepted.items() if offset is not None}
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except (CommitFailedError, RebalanceInProgressError) as error:
            # The partitions may have a new owner, which posts these records again. The next poll rejoins.
            print(f"not committed: {error}", file=sys.stderr)
            return
        for tp, offset in offsets.items():
            if self._senders[tp].next_offset == offset:
                self._senders[tp].next_offset = None

    async def _end(self, partitions: Iterable[TopicPartition]) -> None:
        """Cancel the requests of these partitions. The records in their queues are read again later."""
        tasks = [self._senders[tp].task for tp in partitions if tp in self._senders]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: Iterable[TopicPartition]) -> None:
        """End the requests of these partitions, and commit what was accepted. The next owner posts the others."""
        await self._end(partitions)
        await self._commit(partitions)
        self._forget(partitions)

    async def on_partitions_lost(self, consumer: AsyncConsumer, partitions: Iterable[TopicPartition]) -> None:
        """End the requests of these partitions. Another member may own them already, so a commit would fail."""
        await self._end(partitions)
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._senders.pop(partition, None)


async def main(servers: str, group: str, topic: str, url: str) -> None:
    """Forward records until Ctrl-C or SIGTERM."""
    async with (
        aiohttp.ClientSession() as session,
        AsyncConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        ) as consumer,
    ):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: consumer.wakeup())
        await Forwarder(consumer, session, url).run([topic])


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: http_forwarder.py HOST:PORT GROUP TOPIC URL")
    asyncio.run(main(*sys.argv[1:]))
