"""A scripted broker that leads one topic whose partitions are logs of any bytes, served as they are."""

from __future__ import annotations

import time
from typing import Any

from kconsumer.schema import FETCH, METADATA
from kconsumer.schema.fetch import FetchableTopicResponse, FetchPartitionData, FetchResponse
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from support.fetching import TOPIC_ID, Log
from support.scripted_broker import Received, ScriptedBroker

IDLE_S = 0.01  # how long a fetch waits that finds nothing, in place of what it asks for


class LogBroker(ScriptedBroker):
    """Broker 0, leader of all partitions of topic `t`. A context manager."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__()
        self.logs = [Log() for _ in range(partitions)]
        self.on(METADATA, self._metadata)
        self.on(FETCH, self._fetch)

    @property
    def address(self) -> str:
        """For `bootstrap_servers`."""
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

    def _fetch(self, request: Received) -> FetchResponse:
        asked = [partition for topic in request.message.topics for partition in topic.partitions]
        answers = [self._read(partition) for partition in asked]
        if not any(answer.records for answer in answers):
            time.sleep(IDLE_S)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=answers)])

    def _read(self, asked: Any) -> FetchPartitionData:
        log = self.logs[asked.partition]
        return FetchPartitionData(
            partition_index=asked.partition,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=log.read(asked.fetch_offset, asked.partition_max_bytes),
        )
