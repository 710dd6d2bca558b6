"""A random model run with AsyncConsumers: calls are cancelled at random suspensions, while records are
written and the group rebalances. The rules of the random model test judge what the members saw.

Simulated members cancel their calls for hours (`Program.CANCEL`), but only at random times, and not at each suspension.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from kconsumer import RebalanceListener, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import RecordDeserializationError, StateError
from kconsumer.testing import FakeCluster
from support.harnesses.cancellation import Moment, cancelled_at
from support.model.group_model_checker import check, history
from support.model.group_model_events import EventLog, runs_of

pytestmark = pytest.mark.network_thread

T = TypeVar("T")
TPS = [TopicPartition(topic, partition) for topic in ("t", "u") for partition in range(3)]
MEMBERS = 3
SECONDS = 2.5
CALL_S = 10.0  # the timeout of calls; cancellation ends most of those that wait long
POISON = b"poison"


async def deserialize(data: bytes) -> bytes:
    """Suspend, and raise for the value POISON."""
    await asyncio.sleep(0)
    if data == POISON:
        raise ValueError("poison")
    return data


class Member(RebalanceListener):
    """A consumer, and the listener that records its callbacks."""

    def __init__(self, name: str, log: EventLog, drawn: random.Random, options: dict[str, Any]) -> None:
        self.name, self.log, self.random = name, log, drawn
        self.done: dict[TopicPartition, int] = {}
        self.cancelled = 0
        self.consumer = AsyncConsumer(**options)
        protocol = options["group_protocol"]
        log.add(name, "opened", protocol=protocol, static=False, options={})

    # --- callbacks -------------------------------------------------------------------------------------------------

    async def on_partitions_assigned(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        self.forget(partitions)
        self.log.add(self.name, "assigned", partitions=partitions, raises=False)
        await asyncio.sleep(self.random.choice([0, 0, 0.01]))
        if partitions and self.random.random() < 0.3:
            await self.position(partitions[-1])

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        await asyncio.sleep(self.random.choice([0, 0, 0.01]))
        if self.random.random() < 0.5:
            await self.commit({tp: self.done[tp] for tp in partitions if tp in self.done})
        self.forget(partitions)
        self.log.add(self.name, "revoked", partitions=partitions, raises=False)

    async def on_partitions_lost(self, consumer: AsyncConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        self.forget(partitions)
        self.log.add(self.name, "lost", partitions=partitions, raises=False)

    def forget(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Forget what was processed, because the ownership begins or ends."""
        for tp in partitions:
            self.done.pop(tp, None)

    # --- calls -----------------------------------------------------------------------------------------------------

    async def call(self, name: str, coroutine: Coroutine[Any, Any, T], *, cancel: bool = True) -> list[T]:
        """Await a call, and cancel it at a random suspension. Returns a list of its result, if it has one."""
        point = self.random.randint(1, 15) if cancel and self.random.random() < 0.7 else 1_000_000
        began, error, result = time.monotonic(), None, []
        try:
            hit, value = await cancelled_at(coroutine, point, self.random.choice(list(Moment)))
            self.cancelled += hit
            if not hit:
                result = [value]
        except Exception as raised:
            error = raised
        kind = None if error is None else type(error).__name__
        took_s = time.monotonic() - began
        self.log.add(self.name, "call", name=name, bound_s=CALL_S, took_s=took_s, error=kind, text=str(error or ""))
        if isinstance(error, RecordDeserializationError):
            self.processed([(error.topic_partition, error.offset)])
            self.seek(error.topic_partition, error.offset + 1)
        return result

    def processed(self, offsets: list[tuple[TopicPartition, int]]) -> None:
        """Record that records were returned and processed."""
        runs = runs_of(offsets)
        if runs:
            self.log.add(self.name, "returned", runs=runs)
            self.log.add(self.name, "finished", runs=runs)
            self.done.update({TopicPartition(*partition): last + 1 for partition, _, last in runs})

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Seek to an offset."""
        self.log.add(self.name, "sought", partition=tp, offset=offset)
        self.consumer.seek(tp, offset)
        self.done[tp] = offset

    async def poll(self) -> None:
        """Poll, with a commit of another task in some cases."""
        committing = asyncio.create_task(self.commit()) if self.random.random() < 0.2 else None
        await asyncio.sleep(0)
        poll = self.consumer.poll(self.random.choice([0, 0.02, 0.1]), self.random.choice([1, 5, 500]))
        for records in await self.call("poll", poll):
            self.processed([(record.topic_partition, record.offset) for record in records or ()])
        if committing is not None:
            await committing

    async def commit(self, offsets: dict[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or all positions."""
        known = {tp: at for tp, at in self.done.items() if tp in self.consumer.assignment()}
        if offsets is not None:
            self.log.add(self.name, "commit", offsets=offsets)
            known = offsets
        called_at = self.log.now()
        if await self.call("commit", self.consumer.commit(offsets, timeout=CALL_S), cancel=offsets is None):
            self.log.add(self.name, "acknowledged", called_at=called_at, offsets=known)

    async def position(self, tp: TopicPartition | None = None) -> None:
        """Look up the position of a partition."""
        assigned = sorted(self.consumer.assignment())
        if tp is None and assigned:
            tp = self.random.choice(assigned)
        if tp is not None:
            for offset in await self.call("position", self.assigned_position(tp)):
                if offset is not None:
                    self.log.add(self.name, "position", partition=tp, offset=offset)

    async def assigned_position(self, tp: TopicPartition) -> int | None:
        """Returns the position, or None if the partition was revoked meanwhile."""
        try:
            return await self.consumer.position(tp, CALL_S)
        except StateError:
            assert tp not in self.consumer.assignment()
            return None

    async def committed(self) -> None:
        """Look up what is committed."""
        began = self.log.now()
        for found in await self.call("committed", self.consumer.committed(TPS, CALL_S)):
            offsets = {tp: 0 if known is None else known.offset for tp, known in (found or {}).items()}
            self.log.add(self.name, "observed", began=began, offsets=offsets)

    async def end_offsets(self) -> None:
        """Look up the ends of the partitions."""
        await self.call("end_offsets", self.consumer.end_offsets(TPS, CALL_S))

    async def resubscribe(self) -> None:
        """Leave the group, and join it again. The last unsubscribe() waits for those that were cancelled."""
        self.log.add(self.name, "leaving")
        await self.call("unsubscribe", self.consumer.unsubscribe())
        await self.call("unsubscribe", self.consumer.unsubscribe(), cancel=False)
        self.left()
        self.subscribe()

    def subscribe(self) -> None:
        """Subscribe to one topic or both."""
        topics = self.random.choice([["t", "u"], ["t", "u"], ["t"]])
        self.consumer.subscribe(topics, listener=self)
        self.log.add(self.name, "subscribed", topics=topics)

    def left(self) -> None:
        """Record that the membership has ended."""
        self.log.add(self.name, "left")
        self.done.clear()

    async def run(self, ended: asyncio.Event) -> None:
        """Make random calls until the end, and close."""
        self.subscribe()
        while not ended.is_set():
            calls = [self.poll, self.commit, self.position, self.committed, self.end_offsets, self.resubscribe]
            # Other requests wait behind a JoinGroup or SyncGroup, and a member that waits keeps the group from joining.
            weights = [30, 4, 4, 2, 1, 1] if self.consumer.assignment() else [30, 0, 0, 0, 0, 0]
            await self.random.choices(calls, weights)[0]()
        self.log.add(self.name, "leaving")
        await self.call("close", self.consumer.close())
        await self.call("close", self.consumer.close(), cancel=False)
        self.left()


async def write(
    cluster: FakeCluster, written: dict[TopicPartition, list[int]], drawn: random.Random, ended: asyncio.Event
) -> None:
    """Write records to all partitions until the end."""
    while not ended.is_set():
        for tp, offsets in written.items():
            for _ in range(drawn.choice([0, 0, 1, 3])):
                value = POISON if drawn.random() < 0.01 else b"x"
                produced = cluster.produce(tp.topic, [value], partition=tp.partition)
                offsets += [metadata.offset for metadata in produced]
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(2))  # with and without auto-commit
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_random_calls(protocol: str, seed: int) -> None:
    """No record is lost, skipped or returned twice to one owner, and commits cover only what was processed."""
    drawn = random.Random(f"{protocol} {seed}")
    log = EventLog()
    written: dict[TopicPartition, list[int]] = {tp: [] for tp in TPS}
    options: dict[str, Any] = {
        "group_id": "g",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": seed % 2 == 0,
        "auto_commit_interval_ms": 50,
        "fetch_max_wait_ms": 20,
        "value_deserializer": deserialize,
        **({"heartbeat_interval_ms": 50} if protocol == "classic" else {}),
    }

    async def main(cluster: FakeCluster) -> list[Member]:
        ended = asyncio.Event()
        options["bootstrap_servers"] = cluster.bootstrap_servers
        members = [Member(f"m{n}", log, random.Random(drawn.random()), options) for n in range(MEMBERS)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write(cluster, written, drawn, ended))
            for member in members:
                tasks.create_task(member.run(ended))
            asyncio.get_running_loop().call_later(SECONDS, ended.set)
        return members

    with FakeCluster(group_consumer_heartbeat_interval_ms=50, group_consumer_assignment_interval_ms=50) as cluster:
        for topic in ("t", "u"):
            cluster.create_topic(topic, partitions=3)
        members = asyncio.run(main(cluster))
        assert not cluster.group("g").members
    findings = check(log.events, written)
    assert not findings, [
        str(findings[0]),
        *(event.about(findings[0].partition) for event in history(log.events, findings[0])),
    ]
    assert sum(member.cancelled for member in members) > 10
    assert any(event.kind == "returned" for event in log.events)
