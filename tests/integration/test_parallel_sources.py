"""kconsumer.parallel with an AsyncConsumer and a ShareConsumer: each record is processed, and committed or accepted."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from kconsumer import ConsumerRecord, ShareConsumer, groups, parallel
from kconsumer.aio import AsyncConsumer
from support.brokers.kafka import Kafka
from support.members.share_groups import configure_group

pytestmark = pytest.mark.network_thread

RECORDS, PARTITIONS = 600, 3


@pytest.fixture
def written(kafka: Kafka, topic_name: str) -> None:
    """A topic with records in three partitions."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    kafka.produce(topic_name, [b"%d" % n for n in range(RECORDS)], keys=[b"key-%d" % (n % 20) for n in range(RECORDS)])


class Calls(Counter[bytes]):
    """Counts calls for each value. Stops the runs when each value was counted."""

    def add(self, record: ConsumerRecord) -> None:
        """Count a call."""
        self[record.value] += 1
        if len(self) == RECORDS:
            parallel.stop()


@pytest.mark.usefixtures("written")
def test_an_async_consumer(kafka: Kafka, topic_name: str, engine: dict[str, Any]) -> None:
    """Two members, of which one begins later, process each record once, and commit all of them."""
    calls = Calls()
    options = {name: value for name, value in engine.items() if name != "engine"}

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.005)
        calls.add(record)

    async def run() -> parallel.Summary:
        async with AsyncConsumer(
            topic_name,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=topic_name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        ) as consumer:
            return await parallel.process(consumer, handle, workers=5, order="key", executor="asyncio")

    async def run_both() -> list[parallel.Summary]:
        first = asyncio.create_task(run())
        while not calls:
            await asyncio.sleep(0.01)
        return await asyncio.gather(first, run())

    summaries = asyncio.run(run_both())
    assert {1} == set(calls.values())
    assert (RECORDS, 0) == (sum(s.processed for s in summaries), sum(s.abandoned for s in summaries))
    assert kafka.end_offsets(topic_name) == kafka.committed(topic_name, topic_name)


@pytest.mark.consumer_protocol
@pytest.mark.usefixtures("written")
def test_a_share_consumer(kafka: Kafka, topic_name: str) -> None:
    """Records are accepted, or rejected after the last attempt. Nothing is left for the group."""
    configure_group(kafka.bootstrap_servers, topic_name, {"share.auto.offset.reset": "earliest"})
    calls = Calls()

    def handle(record: ConsumerRecord) -> None:
        if record.value == b"55":
            raise ValueError
        calls.add(record)

    def bury(record: ConsumerRecord, error: BaseException) -> None:
        calls.add(record)

    with ShareConsumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        share_acknowledgement_mode="explicit",
    ) as consumer:
        retry = parallel.Retry(attempts=2, backoff_s=0.01)
        summary = parallel.process(consumer, handle, workers=4, order="none", retry=retry, on_failure=bury)
    assert (RECORDS - 1, 1, 1) == (summary.processed, summary.failed, summary.retries)
    assert {1} == set(calls.values())
    offsets = groups.offsets(topic_name, bootstrap_servers=kafka.bootstrap_servers)
    assert (PARTITIONS, {0}) == (len(offsets), {offset.lag for offset in offsets.values()})
