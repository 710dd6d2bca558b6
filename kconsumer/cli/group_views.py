"""Formats groups as lines of a table, or as objects for JSON. Sends no requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kconsumer.cli.table import Cell, table
from kconsumer.groups import GroupDescription, GroupListing, GroupMember, GroupOffset
from kconsumer.types import TopicPartition

Offsets = Mapping[TopicPartition, GroupOffset]
Object = dict[str, object]


@dataclass(frozen=True, slots=True)
class Health:
    """A group with the committed offsets and the lags of its partitions."""

    group: GroupDescription
    offsets: Offsets
    seconds: bool = False  # the offsets have `lag_seconds`

    @property
    def lag(self) -> int:
        """The sum of the known lags of all partitions."""
        return sum(offset.lag for offset in self.offsets.values() if offset.lag is not None)

    @property
    def max_lag(self) -> tuple[TopicPartition, int] | None:
        """The partition with the largest lag, and that lag. None if no lag is known."""
        known = [(tp, offset.lag) for tp, offset in self.offsets.items() if offset.lag is not None]
        return max(known, key=lambda pair: pair[1], default=None)

    @property
    def lag_seconds(self) -> float | None:
        """The age (s) of the oldest record that is not committed. None if no age is known."""
        return max((at.lag_seconds for at in self.offsets.values() if at.lag_seconds is not None), default=None)

    @property
    def unknown(self) -> int:
        """The number of partitions without a committed offset or without a known end offset."""
        return sum(offset.lag is None for offset in self.offsets.values())


# --- tables -----------------------------------------------------------------------------------------------------


def listing_table(listings: Iterable[GroupListing]) -> list[str]:
    """Returns a table with one line per group."""
    rows = [(found.group_id, found.type, found.state, found.protocol_type) for found in listings]
    return table(("GROUP", "TYPE", "STATE", "PROTOCOL-TYPE"), rows)


def lag_table(groups: Sequence[Health]) -> list[str]:
    """Returns a table with one line per group: the sum of the lags, and the partition with the largest lag."""
    rows: list[tuple[Cell, ...]] = []
    for health in groups:
        group, found = health.group, health.max_lag
        where, largest = (str(found[0]), found[1]) if found else (None, None)
        numbers = len(group.members), len(health.offsets), health.unknown, health.lag, largest
        rows.append((group.group_id, group.state, *numbers, where, *_seconds(health, health.lag_seconds)))
    head = ("GROUP", "STATE", "MEMBERS", "PARTITIONS", "UNKNOWN", "LAG", "MAX-LAG", "MAX-LAG-AT")
    return table(_with_seconds(head, groups), rows)


def _with_seconds(head: tuple[str, ...], groups: Sequence[Health]) -> tuple[str, ...]:
    """Returns the heads of a table, with a last one for seconds if they were requested."""
    return (*head, "LAG-SECONDS") if any(health.seconds for health in groups) else head


def _seconds(health: Health, age: float | None) -> tuple[Cell, ...]:
    """Returns the last cell of a line, if the table has a column with seconds."""
    return (None if age is None else round(age),) if health.seconds else ()


def description_tables(groups: Iterable[Health]) -> list[str]:
    """Returns the state of each group, followed by a table of its partitions."""
    lines: list[str] = []
    for health in groups:
        group = health.group
        state: tuple[Cell, ...] = (
            group.group_id,
            group.type,
            group.state,
            group.protocol,
            str(group.coordinator) if group.coordinator else None,
            len(group.members),
            group.group_epoch,
            health.lag,
        )
        head = ("GROUP", "TYPE", "STATE", "ASSIGNOR", "COORDINATOR", "MEMBERS", "EPOCH", "LAG")
        lines += ["", *table(head, [state])]
        if health.offsets:
            lines += ["", *offsets_table([health], named=False)]
    return lines[1:]


def offsets_table(groups: Sequence[Health], *, named: bool = True) -> list[str]:
    """Returns a table with one line per partition. If `named` is True, the table has a column with the group."""
    columns = ("GROUP", "TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "OWNER", "HOST", "CLIENT-ID")
    head = _with_seconds(columns, groups)
    rows: list[tuple[Cell, ...]] = []
    for health in groups:
        members = {member.member_id: member for member in health.group.members}
        for tp, offset in health.offsets.items():
            owner = members.get(offset.owner or "")
            host, client = (owner.host, owner.client_id) if owner else (None, None)
            numbers = (offset.committed, offset.log_start, offset.end, offset.lag)
            cells = offset.owner, host, client, *_seconds(health, offset.lag_seconds)
            rows.append((health.group.group_id, tp.topic, tp.partition, *numbers, *cells))
    return table(head, rows) if named else table(head[1:], [row[1:] for row in rows])


def members_table(groups: Iterable[GroupDescription]) -> list[str]:
    """Returns a table with one line per member."""
    head = ("GROUP", "MEMBER", "INSTANCE", "CLIENT-ID", "HOST", "EPOCH", "PARTITIONS", "ASSIGNMENT")
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for member in group.members:
            names = member.member_id, member.group_instance_id, member.client_id, member.host
            count = len(member.assignment)
            rows.append((group.group_id, *names, member.member_epoch, count, _by_topic(member.assignment)))
    return table(head, rows)


def _by_topic(partitions: Iterable[TopicPartition]) -> str:
    topics: dict[str, list[str]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}({','.join(numbers)})" for topic, numbers in topics.items())


# --- JSON -------------------------------------------------------------------------------------------------------


def listing_objects(listings: Iterable[GroupListing]) -> list[Object]:
    """Returns one object per listed group."""
    return [
        {"group": found.group_id, "type": found.type, "state": found.state, "protocol_type": found.protocol_type}
        for found in listings
    ]


def description_objects(groups: Iterable[Health]) -> list[Object]:
    """Returns one object per group. It contains the members and partitions of the group."""
    return [
        {
            **_group(health.group),
            "lag": health.lag,
            "members": [_member(member) for member in health.group.members],
            "offsets": [_offset(health, tp, offset) for tp, offset in health.offsets.items()],
        }
        for health in groups
    ]


def members_objects(groups: Iterable[GroupDescription]) -> list[Object]:
    """Returns one object per member."""
    return [{"group": group.group_id, **_member(member)} for group in groups for member in group.members]


def offsets_objects(groups: Iterable[Health]) -> list[Object]:
    """Returns one object per partition."""
    return [
        {"group": health.group.group_id, **_offset(health, tp, offset)}
        for health in groups
        for tp, offset in health.offsets.items()
    ]


def lag_objects(groups: Iterable[Health]) -> list[Object]:
    """Returns one object per group, with the sum of the lags and the partition with the largest lag."""
    return [
        {
            "group": health.group.group_id,
            "state": health.group.state,
            "members": len(health.group.members),
            "partitions": len(health.offsets),
            "unknown": health.unknown,
            "lag": health.lag,
            "max_lag": health.max_lag[1] if health.max_lag else None,
            "max_lag_at": str(health.max_lag[0]) if health.max_lag else None,
            **({"lag_seconds": health.lag_seconds} if health.seconds else {}),
        }
        for health in groups
    ]


def _group(group: GroupDescription) -> Object:
    node = group.coordinator
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.protocol,
        "coordinator": node and {"id": node.id, "host": node.host, "port": node.port},
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
    }


def _member(member: GroupMember) -> Object:
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.member_epoch,
        "rack": member.rack_id,
        "assignment": _pairs(member.assignment),
        "target_assignment": None if member.target_assignment is None else _pairs(member.target_assignment),
    }


def _pairs(partitions: Iterable[TopicPartition]) -> list[Object]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def _offset(health: Health, tp: TopicPartition, offset: GroupOffset) -> Object:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "committed": offset.committed,
        "log_start": offset.log_start,
        "end": offset.end,
        "lag": offset.lag,
        "owner": offset.owner,
        "leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        **({"lag_seconds": offset.lag_seconds} if health.seconds else {}),
    }
