"""A coordinator that disturbs its only member: a rebalance, an eviction, a response that cannot be parsed.

The leader's plugin assigns in the classic protocol; in the consumer protocol a rebalance takes one partition away and
gives it back. Committed offsets have a leader epoch, so that they are validated.
"""

from __future__ import annotations

import struct
from typing import Any

from kconsumer.schema import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
)
from kconsumer.schema.consumer_group import ConsumerGroupHeartbeatAssignment, ConsumerGroupHeartbeatTopicPartitions
from kconsumer.schema.offsets import EpochEndOffset, OffsetForLeaderTopicResult
from kconsumer.testing.batches import build_batch
from support.fakes.group_broker import REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, GroupBroker
from support.fakes.scripted_broker import Received, read_request
from support.harnesses.fetching import TOPIC_ID

MEMBER_ID_REQUIRED, FENCED_MEMBER_EPOCH = 79, 110
INTERVAL_MS = 5


class CoordinatorBroker(GroupBroker):
    """Two partitions; the first has a committed offset. A context manager."""

    def __init__(self) -> None:
        super().__init__(2)
        self.committed[0] = 2
        self._target: tuple[int, ...] = (0, 1)  # of the member of the consumer protocol
        self._rebalance = self._evict = False
        self._garbled: dict[str, int] = {}  # by api: how many responses until the one that cannot be parsed
        self.on(METADATA, self._cluster)
        self.on(OFFSET_FOR_LEADER_EPOCH, self._end_of_epoch)
        self.on(SASL_HANDSHAKE, SASL_HANDSHAKE.response(mechanisms=["OAUTHBEARER"]))
        self.on(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response())

    # --- what a test does ---

    def produce(self, count: int) -> None:
        """Append records with keys to both partitions; their values are their offsets."""
        for log in self.logs:
            end = log.end + count
            pairs = [(b"key", b"%d" % offset) for offset in range(log.end, end)]
            log.add(build_batch(pairs, base_offset=log.end, leader_epoch=0), end)

    def rebalance(self) -> None:
        """Make the member join again; in the consumer protocol it also loses a partition and gets it back."""
        self._rebalance = True

    def evict(self) -> None:
        """Respond to heartbeats with "unknown member" until the member joins again."""
        self._evict = True

    def garble(self, api: str, number: int) -> None:
        """Make the n-th response of this kind from now on invalid."""
        self._garbled[api] = number

    def garbled(self, api: str) -> bool:
        """Returns whether the invalid response was sent."""
        return self._garbled[api] <= 0

    # --- responses ---

    def respond(self, frame: bytes) -> Any:
        """Respond as a scripted broker does, except for the response that must be invalid."""
        out = super().respond(frame)
        request = read_request(frame)
        left = self._garbled.get(request.api.name)
        if left is not None:
            self._garbled[request.api.name] = left - 1
            if left == 1:
                body = struct.pack(">i", request.correlation_id) + b"\xff"
                return struct.pack(">i", len(body)) + body
        return out

    def _cluster(self, request: Received) -> Any:
        response = self._metadata(request)
        for partition in response.topics[0].partitions:
            partition.leader_epoch = 0
        return response

    def _join(self, request: Received) -> Any:
        if not request.message.member_id:
            self._evict = False
            return JOIN_GROUP.response(error_code=MEMBER_ID_REQUIRED, member_id="me")
        self._rebalance = False
        return super()._join(request)

    def _sync(self, request: Received) -> Any:
        (own,) = request.message.assignments
        name = request.message.protocol_name
        return SYNC_GROUP.response(protocol_type="consumer", protocol_name=name, assignment=own.assignment)

    def _heartbeat(self, request: Received) -> Any:
        if self._evict:
            return HEARTBEAT.response(error_code=UNKNOWN_MEMBER_ID)
        return HEARTBEAT.response(error_code=REBALANCE_IN_PROGRESS) if self._rebalance else super()._heartbeat(request)

    def _group_heartbeat(self, request: Received) -> Any:
        message = request.message
        if message.member_epoch < 0:
            return super()._group_heartbeat(request)
        if self._evict and message.member_epoch > 0:
            return CONSUMER_GROUP_HEARTBEAT.response(error_code=FENCED_MEMBER_EPOCH)
        self._evict = False
        full = message.topic_partitions is not None
        assign = full or self._rebalance
        if self._rebalance:
            self._rebalance, self._target = False, (0,)
        elif full and [[0]] == [topic.partitions for topic in message.topic_partitions]:
            self._target = (0, 1)
        if assign:
            self.generation += 1
        owned = ConsumerGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=[*self._target])
        return CONSUMER_GROUP_HEARTBEAT.response(
            member_id=message.member_id,
            member_epoch=self.generation,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=ConsumerGroupHeartbeatAssignment(topic_partitions=[owned]) if assign else None,
        )

    def _fetch_offsets(self, request: Received) -> Any:
        response = super()._fetch_offsets(request)
        for topic in response.groups[0].topics:
            for partition in topic.partitions:
                partition.committed_leader_epoch = 0
        return response

    def _end_of_epoch(self, request: Received) -> Any:
        topics = []
        for topic in request.message.topics:
            ends = [
                EpochEndOffset(partition=asked.partition, leader_epoch=0, end_offset=self.logs[asked.partition].end)
                for asked in topic.partitions
            ]
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        return OFFSET_FOR_LEADER_EPOCH.response(topics=topics)
