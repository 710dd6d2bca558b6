"""Describes the state of a consumer as text: its partitions, its membership and its connections.

Decides the layout. `fetching/partition_status.py` explains why a partition waits. This module sends no requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kconsumer.engine.status import summary

if TYPE_CHECKING:
    from kconsumer._internal.status import Cells
    from kconsumer.engine.base import Engine


class Client(Protocol):
    """A consumer whose state can be described."""

    @property
    def _engine(self) -> Engine: ...


def full_report(consumer: Client) -> str:
    """Returns partitions, member and connections as text. A signal handler may call this at any time."""
    engine = consumer._engine
    with engine.changing():
        blocks = [
            _partitions(engine),
            f"memory: {engine.components.buffer.memory.usage()}",
            _member(engine),
            _connections(engine),
        ]
    return "\n".join(block for block in blocks if block) + "\n"


def _partitions(engine: Engine) -> str:
    from kconsumer._internal.status import PARTITION_HEAD, table  # imported when used

    statuses = engine.status.partition_states()
    rows: list[Cells] = [
        (tp, s.state.value, f"{s.since:.1f}s", s.position, s.high_watermark, s.lag, s.buffered_bytes, s.reason)
        for tp, s in statuses.items()
    ]
    return "\n".join([summary(statuses.values()), *(table(PARTITION_HEAD, rows) if rows else ())])


def _member(engine: Engine) -> str:
    group = engine.components.group
    if group is None:
        return ""
    member = group.member
    generation, member_id, assignor = member.generation
    place = f"{member.state.value}, generation {generation}, member {member_id or None!r}, assignor {assignor!r}"
    lines = [f"group {member.group_id!r}: {place}", f"coordinator: {group.coordinator.describe()}"]
    if member.rejoin_reason is not None:
        lines.append(f"to rejoin: {member.rejoin_reason}")
    return "\n".join(lines)


def _connections(engine: Engine) -> str:
    from kconsumer._internal.status import table  # imported when used

    rows: list[Cells] = [
        (c.name, c.state, c.in_flight, c.oldest and f"{c.oldest} {c.oldest_ms / 1000:.1f}s", c.encryption, c.error)
        for c in engine.components.client.report(engine.components.clock.now())
    ]
    return "\n".join(table(("CONNECTION", "STATE", "IN FLIGHT", "OLDEST", "ENCRYPTION", "ERROR"), rows))
