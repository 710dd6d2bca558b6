"""Describes the state of a consumer as text: its partitions, its membership and its connections.

Decides the layout. `fetching/partition_status.py` explains why a partition waits. This module sends no requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kconsumer.types import PartitionStatus

if TYPE_CHECKING:
    from kconsumer.consumer import Consumer
    from kconsumer.engine.base import Engine
    from kconsumer.status import Cells


def summary(statuses: Iterable[PartitionStatus]) -> str:
    """Returns one line with the numbers of partitions, such as "3 partitions: 2 in flight, 1 paused"."""
    counts = Counter(status.state for status in statuses)
    states = ", ".join(f"{count} {state.value.replace('_', ' ')}" for state, count in sorted(counts.items(), key=_rank))
    total = sum(counts.values())
    return f"{total} partition{'' if total == 1 else 's'}" + (f": {states}" if states else "")


def _rank(item: tuple[object, int]) -> tuple[int, str]:
    return -item[1], str(item[0])


def full_report(consumer: Consumer) -> str:
    """Returns partitions, member and connections as text. A signal handler may call this at any time."""
    engine = consumer._engine
    path = engine.describe_fast_path()  # first, because the lock ends the use of the fast path
    with engine.changing():
        blocks = [
            _partitions(engine),
            f"memory: {engine.components.buffer.memory.usage()}",
            path and f"fast path: {path}",
            _member(engine),
            _connections(engine),
        ]
    return "\n".join(block for block in blocks if block) + "\n"


def _partitions(engine: Engine) -> str:
    from kconsumer.status import PARTITION_HEAD, table  # imported when used

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
    from kconsumer.status import table  # imported when used

    rows: list[Cells] = [
        (c.name, c.state, c.in_flight, c.oldest and f"{c.oldest} {c.oldest_ms / 1000:.1f}s", c.encryption, c.error)
        for c in engine.components.client.report(engine.components.clock.now())
    ]
    return "\n".join(table(("CONNECTION", "STATE", "IN FLIGHT", "OLDEST", "ENCRYPTION", "ERROR"), rows))
