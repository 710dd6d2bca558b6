"""A scripted broker that leads one topic whose partitions are logs of any bytes, served as they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kconsumer.ranges import Gap
from kconsumer.schema.fetch import FETCH, FetchableTopicResponse, FetchPartitionData, FetchResponse
from kconsumer.schema.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.schema.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kconsumer.testing.batches import build_batch
from support.fakes.scripted_broker import Received, ScriptedBroker
from support.harnesses.fetching import TOPIC_ID, Log

EARLIEST = -2  # the timestamp that ListOffsets takes for it
IDLE_S = 0.002  # how long a fetch that finds nothing waits, in place of `max_wait_ms`; meanwhile nothing is served

# What `compacted` has.
BATCHES, SIZE, SPAN = 4, 10, 13  # records and offsets of a batch: its last three offsets were compacted
OFFSETS = [SPAN * batch + n for batch in range(BATCHES) for n in range(SIZE)]
GAPS = tuple(Gap(SPAN * batch + SIZE, SPAN * (batch + 1), "compaction") for batch in range(BATCHES))


class LogBroker(ScriptedBroker):
    """Broker 0, leader of all partitions of topic `t`. A context manager."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__()
        self.logs = [Log() for _ in range(partitions)]
        self.on(METADATA, self._metadata)
        self.on(FETCH, self._fetch)
        self.on(LIST_OFFSETS, self._list_offsets)

    @property
    def address(self) -> str:
        """Returns host:port, for `bootstrap_servers`."""
        return f"{self.host}:{self.port}"

    def _metadata(self, _: Received) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=p, leader_id=0, replica_nodes=[0], isr_nodes=[0])
            for p in range(len(self.logs))
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host=self.host, port=self.port)],
            topics=[MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)],
        )

    def _list_offsets(self, request: Received) -> ListOffsetsResponse:
        """Returns the start offset of a log for timestamp -2 (earliest), otherwise the end offset."""
        topics = []
        for topic in request.message.topics:
            found = [
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    timestamp=-1,
                    offset=log.start if asked.timestamp == EARLIEST else log.end,
                )
                for asked in topic.partitions
                for log in [self.logs[asked.partition_index]]
            ]
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, request: Received) -> FetchResponse:
        asked = [partition for topic in request.message.topics for partition in topic.partitions]
        rows = [self._read(partition) for partition in asked]
        if not any(row.records for row in rows):
            time.sleep(IDLE_S)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=rows)])

    def _read(self, asked: Any) -> FetchPartitionData:
        log = self.logs[asked.partition]
        return FetchPartitionData(
            partition_index=asked.partition,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=log.read(asked.fetch_offset, asked.partition_max_bytes),
        )


@contextmanager
def compacted() -> Iterator[LogBroker]:
    """Run a broker with two partitions that have the same records, OFFSETS and GAPS, and one record behind them."""
    with LogBroker(2) as broker:
        for log in broker.logs:
            for base in range(0, BATCHES * SPAN, SPAN):
                values = [b"%d" % (base + n) for n in range(SIZE)]
                log.add(build_batch(values, base_offset=base, last_offset_delta=SPAN - 1), base + SPAN)
            log.append(100)  # beyond the end of the range, so that no fetch waits
        yield broker
