"""Builds the result of `consumer.status()`. Reads the state of managers and connections, and sends no requests."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from kconsumer._internal.status import ConnectionStatus, ConsumerStatus, GroupStatus
from kconsumer._version import VERSION
from kconsumer.engine.components import ClientComponents
from kconsumer.net.describe import ConnectionReport
from kconsumer.types import PartitionStatus, TopicPartition


def consumer_status(
    parts: ClientComponents, name: str, partitions: Mapping[TopicPartition, PartitionStatus]
) -> ConsumerStatus:
    """Returns the status of a consumer. The caller holds the lock. `name` is that of the consumer in its `repr`."""
    now = parts.clock.now()
    system = f"kconsumer {VERSION}, {platform.python_implementation()} {platform.python_version()}, {platform.system()}"
    return ConsumerStatus(
        client=f"{name} ({system})",
        group=_group(parts, now),
        waits=tuple(wait.describe(now) for wait in parts.progress.waits()),
        connections=tuple(map(_connection, parts.client.report(now))),
        partitions=dict(partitions),
    )


def _group(parts: ClientComponents, now: float) -> GroupStatus | None:
    state, generation = parts.member_state()
    if parts.group_id is None or parts.coordinator is None:
        return None
    wait = parts.group_wait
    return GroupStatus(
        group_id=parts.group_id,
        state=state,
        protocol=parts.group_protocol,
        coordinator=parts.coordinator.coordinator,
        generation=generation,
        member_id=parts.member_id,
        waiting_for="" if wait is None else wait.waiting_for,
        since=0.0 if wait is None else max(0.0, now - wait.since) / 1000,
        last_error=None if wait is None else wait.last_error,
    )


def _connection(report: ConnectionReport) -> ConnectionStatus:
    return ConnectionStatus(
        node=report.role,
        address=report.address,
        state=report.state,
        since=report.since_ms / 1000,
        last_error=report.failure,
        in_flight=report.in_flight,
    )
