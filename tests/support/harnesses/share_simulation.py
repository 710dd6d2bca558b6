"""All managers of one share consumer on virtual time, against a cluster of one broker; see `simulation.py`."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

from kconsumer._internal.managers import UnsentRequest
from kconsumer.schema.consumer_group import ConsumerGroupHeartbeatAssignment, ConsumerGroupHeartbeatTopicPartitions
from kconsumer.schema.share_group import (
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchResponse,
    ShareGroupHeartbeatResponse,
    ShareLeaderIdAndEpoch,
)
from kconsumer.share.components import ShareComponents
from kconsumer.share.config import ShareConsumerConfig
from support.harnesses.consumer_harness import topic_id
from support.harnesses.manager_driver import NoJitter
from support.harnesses.simulation import LATENCY_MS, PARTITIONS, RESPONSES, TOPIC, Fault, Polled, coded
from support.harnesses.wiring import WiredEnvironment

HEARTBEAT_MS = 500


def _heartbeat(request: Any) -> ShareGroupHeartbeatResponse:
    row = ConsumerGroupHeartbeatTopicPartitions(
        topic_id=topic_id(TOPIC), partitions=[tp.partition for tp in PARTITIONS]
    )
    return ShareGroupHeartbeatResponse(
        member_epoch=max(1, request.member_epoch),
        heartbeat_interval_ms=HEARTBEAT_MS,
        assignment=ConsumerGroupHeartbeatAssignment(topic_partitions=[row]),
    )


def _fetch(_request: Any) -> ShareFetchResponse:
    rows = [ShareFetchPartitionData(partition_index=tp.partition, records=b"") for tp in PARTITIONS]
    return ShareFetchResponse(responses=[ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=rows)])


SHARE_RESPONSES = {
    "Metadata": RESPONSES["Metadata"],
    "FindCoordinator": RESPONSES["FindCoordinator"],
    "ShareGroupHeartbeat": _heartbeat,
    "ShareFetch": _fetch,
}


def _alternate(message: Any, request: UnsentRequest, named: Iterator[int]) -> None:
    """Name another leader than the last response did."""
    if request.api.name == "Metadata":
        epoch = next(named)
        for part in (part for row in message.topics for part in row.partitions):
            part.leader_id, part.leader_epoch = 1 + epoch % 2, epoch
    elif request.api.name == "ShareFetch":
        other = 2 if request.node == "1" else 1
        for part in (part for row in message.responses for part in row.partitions):
            part.current_leader = ShareLeaderIdAndEpoch(leader_id=other, leader_epoch=next(named))


class ShareSimulation(Polled):
    """A share consumer that polls without pause.

    `alternating`: each response that names a leader names another broker than the one before, with a higher epoch.
    """

    parts: ShareComponents

    def __init__(self, fault: Fault | None = None, *, alternating: bool = False) -> None:
        self.config = ShareConsumerConfig(bootstrap_servers="broker:9092", group_id="g", fetch_max_wait_ms=500)
        super().__init__(fault)
        self.parts = ShareComponents(self.config, WiredEnvironment(self.clock, NoJitter()), "g")
        self._named = itertools.count(1) if alternating else None
        self.parts.subscription.subscribe([TOPIC])

    def _round(self) -> None:
        parts, now = self.parts, self.clock.now()
        parts.changes.set_now(now)
        parts.membership.user_polled(now)
        parts.fetch.want_records()
        wait_ms = self._poll(parts.managers, now)
        for source in parts.error_sources():
            if (error := source.take_error()) is not None:
                self.raised.append((now, error))
        self._pass(now, wait_ms)

    def _send(self, request: UnsentRequest, now: float) -> None:
        name, fault = request.api.name, self.fault
        self.sent.append((now, name))
        message: Any = SHARE_RESPONSES[name](request.message)
        if self._named is not None:
            _alternate(message, request, self._named)
        self.depths.setdefault(name, set()).update(depth for depth, _ in coded(message))
        response: Any = message
        if fault is not None and fault.api == name:
            fault.apply(message)
            response = message if fault.error is None else copy.copy(fault.error)
        waits = name == "ShareFetch" and (fault is None or fault.api != name)
        took = float(self.config.fetch_max_wait_ms) if waits else LATENCY_MS
        self._pending.append((now + took, request, response))
