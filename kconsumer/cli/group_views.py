"""Formats groups as rows of a table, which are also objects for JSON. Sends no requests."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kconsumer.cli.table import Column, columns, formatted, objects, table
from kconsumer.groups import GroupDescription, GroupListing, GroupMember, GroupOffset
from kconsumer.types import TopicPartition

Offsets = Mapping[TopicPartition, GroupOffset]
Row = tuple[object, ...]

LISTING = columns("group", "type", "state", "protocol_type")
GROUP = columns("group")
MEMBER = [
    *columns("member", "instance", "client_id", "host", "epoch"),
    Column("PARTITIONS", None),
    Column("ASSIGNMENT", None),
    Column(None, "rack"),
    Column(None, "assignment"),
    Column(None, "target_assignment"),
]
OFFSET = [
    *columns("topic", "partition", "committed"),
    Column("START", "log_start"),
    *columns("end", "lag", "owner"),
    Column("HOST", None),
    Column("CLIENT-ID", None),
    Column(None, "leader_epoch"),
    Column(None, "metadata"),
]
LAG = columns("group", "state", "members", "partitions", "unknown", "lag", "max_lag", "max_lag_at")
SECONDS = [Column("LAG-SECONDS", None), Column(None, "lag_seconds")]


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

    def age_cells(self, age: float | None) -> Row:
        """Returns the cells of `SECONDS` for an age, or none if ages were not requested."""
        return (None if age is None else round(age), age) if self.seconds else ()

    def offset_rows(self) -> list[Row]:
        """Returns one row per partition."""
        members = {member.member_id: member for member in self.group.members}
        rows = []
        for tp, offset in self.offsets.items():
            owner = members.get(offset.owner or "")
            host, client = (owner.host, owner.client_id) if owner else (None, None)
            numbers = (offset.committed, offset.log_start, offset.end, offset.lag)
            others = (offset.owner, host, client, offset.leader_epoch, offset.metadata)
            rows.append((*tp, *numbers, *others, *self.age_cells(offset.lag_seconds)))
        return rows


def _with_seconds(names: Sequence[Column], groups: Iterable[Health]) -> list[Column]:
    """Returns the columns, and those for seconds if they were requested."""
    return [*names, *(SECONDS if any(health.seconds for health in groups) else ())]


def listing(args: argparse.Namespace, listings: Iterable[GroupListing]) -> list[str]:
    """Returns one line per group."""
    rows = [(found.group_id, found.type, found.state, found.protocol_type) for found in listings]
    return formatted(args, LISTING, rows)


def lags(args: argparse.Namespace, groups: Sequence[Health]) -> list[str]:
    """Returns one line per group: the sum of the lags, and the partition with the largest lag."""
    rows = []
    for health in groups:
        group, found = health.group, health.max_lag
        where, largest = (str(found[0]), found[1]) if found else (None, None)
        numbers = len(group.members), len(health.offsets), health.unknown, health.lag, largest
        rows.append((group.group_id, group.state, *numbers, where, *health.age_cells(health.lag_seconds)))
    return formatted(args, _with_seconds(LAG, groups), rows)


def descriptions(args: argparse.Namespace, groups: Sequence[Health]) -> list[str]:
    """Returns the state of each group, followed by a table of its partitions; or one object per group, with its members
    and partitions."""
    if args.format == "json":
        return [json.dumps(_object(health), ensure_ascii=False) for health in groups]
    lines: list[str] = []
    for health in groups:
        group = health.group
        coordinator = str(group.coordinator) if group.coordinator else None
        state = (group.group_id, group.type, group.state, group.protocol, coordinator, len(group.members))
        head = ("GROUP", "TYPE", "STATE", "ASSIGNOR", "COORDINATOR", "MEMBERS", "EPOCH", "LAG")
        lines += ["", *table(head, [(*state, group.group_epoch, health.lag)])]
        if health.offsets:
            lines += ["", *formatted(args, _with_seconds(OFFSET, [health]), health.offset_rows())]
    return lines[1:]


def _object(health: Health) -> dict[str, object]:
    group = health.group
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
        "lag": health.lag,
        "members": objects(MEMBER, [_member(member) for member in group.members]),
        "offsets": objects(_with_seconds(OFFSET, [health]), health.offset_rows()),
    }


def offsets(args: argparse.Namespace, groups: Sequence[Health]) -> list[str]:
    """Returns one line per partition."""
    rows = [(health.group.group_id, *row) for health in groups for row in health.offset_rows()]
    return formatted(args, _with_seconds([*GROUP, *OFFSET], groups), rows)


def members(args: argparse.Namespace, groups: Iterable[GroupDescription]) -> list[str]:
    """Returns one line per member."""
    rows = [(group.group_id, *_member(member)) for group in groups for member in group.members]
    return formatted(args, [*GROUP, *MEMBER], rows)


def _member(member: GroupMember) -> Row:
    target = member.target_assignment
    return (
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.host,
        member.member_epoch,
        len(member.assignment),
        _by_topic(member.assignment),
        member.rack_id,
        _pairs(member.assignment),
        None if target is None else _pairs(target),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> str:
    topics: dict[str, list[str]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}({','.join(numbers)})" for topic, numbers in topics.items())


def _pairs(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]
