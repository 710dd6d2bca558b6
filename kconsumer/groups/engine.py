"""Looking at groups from outside: the engine of `kconsumer.groups`. It is a member of none.

Several questions are under way at once; what one answer needs of another (ends of partitions, after the offsets) is
put together here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kconsumer.clock import Clock, Timer
from kconsumer.config.option_groups import RetryConfig
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.base import Engine
from kconsumer.engine.classic import ClassicDriver
from kconsumer.error_codes import Errors
from kconsumer.errors import GroupError
from kconsumer.groups.manager import DESCRIPTIONS, GroupsManager
from kconsumer.groups.responses import GroupPosition
from kconsumer.groups.types import GroupDescription, GroupListing, GroupOffset
from kconsumer.managers import Promise
from kconsumer.offsets.list_offsets import EARLIEST, LATEST, OffsetTable
from kconsumer.types import TopicPartition


class AdminEngine(Engine):
    """Asks about groups on the caller's thread."""

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        super().__init__(config, clock, (), ClassicDriver)
        self._groups = GroupsManager(config.select(RetryConfig), self.components.metadata)
        self.components.managers.append(self._groups)

    def list_groups(self, states: Collection[str], types: Collection[str], timer: Timer) -> list[GroupListing]:
        """The groups of all brokers, sorted by name."""
        self._driver.wait(self.components.metadata.refresh(), timer, "fetching metadata")
        asked = [
            self._groups.list_groups(broker, states, types, timer.deadline) for broker in self.components.cluster.nodes
        ]
        found: dict[str, GroupListing] = {}
        for promise in asked:
            for listing in self._driver.wait(promise, timer, "listing groups"):
                found.setdefault(listing.group_id, listing)  # two brokers may tell of a group that moves
        return [found[group_id] for group_id in sorted(found)]

    def describe_group(self, group: str, timer: Timer) -> GroupDescription:
        """A group of any type that can be described."""
        promise = self._groups.describe(group, timer.deadline)
        return self._driver.wait(promise, timer, f"describing group {group!r}")

    def describe_listed(self, listings: Iterable[GroupListing], timer: Timer) -> list[GroupDescription]:
        """These groups, all asked for at once. Those that can only be listed, or went away meanwhile, are left out."""
        known = [listing for listing in listings if listing.type is None or listing.type in DESCRIPTIONS]
        asked = [self._groups.describe(found.group_id, timer.deadline, found.type) for found in known]
        descriptions = []
        for promise in asked:
            try:
                descriptions.append(self._driver.wait(promise, timer, "describing groups"))
            except GroupError as error:
                if error.code != Errors.GROUP_ID_NOT_FOUND:
                    raise
        return descriptions

    def group_offsets(
        self, groups: Collection[GroupDescription], timer: Timer
    ) -> list[dict[TopicPartition, GroupOffset]]:
        """How far each group is, in all partitions that it has an offset of or a member reads."""
        asked = [self._groups.offsets(group.group_id, group.type, timer.deadline) for group in groups]
        positions = [self._driver.wait(promise, timer, "fetching committed offsets") for promise in asked]
        owners = [_owners(group) for group in groups]
        everything = {tp for table in (*positions, *owners) for tp in table}
        starts, ends = self._bounds(everything, timer)
        return [
            {tp: _offset(tp, at.get(tp), starts, ends, owner) for tp in sorted({*at, *owner})}
            for at, owner in zip(positions, owners, strict=True)
        ]

    def _bounds(
        self, partitions: Collection[TopicPartition], timer: Timer
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where the logs of these partitions begin and end; those without a leader are left out."""
        tables = self.topics({tp.topic for tp in partitions}, timer) if partitions else {}
        led = {TopicPartition(i.topic, i.partition) for table in tables.values() for i in table if i.leader is not None}
        wanted = sorted(led.intersection(partitions))
        if not wanted:
            return {}, {}
        offsets = self.components.offsets
        with self.lock:
            asked = [offsets.list_offsets(dict.fromkeys(wanted, at), timer.deadline) for at in (EARLIEST, LATEST)]
        return self._found(asked[0], timer), self._found(asked[1], timer)

    def _found(self, promise: Promise[OffsetTable], timer: Timer) -> dict[TopicPartition, int]:
        found = self._driver.wait(promise, timer, "fetching the ends of partitions")
        return {tp: at.offset for tp, at in found.items() if at is not None}


def _owners(group: GroupDescription) -> Mapping[TopicPartition, str | None]:
    """Who reads each partition; None for one that several members share."""
    owners: dict[TopicPartition, str | None] = {}
    for member in group.members:
        for tp in member.assignment:
            owners[tp] = None if tp in owners else member.member_id
    return owners


def _offset(
    tp: TopicPartition,
    at: GroupPosition | None,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, str | None],
) -> GroupOffset:
    end = ends.get(tp)
    if at is None:
        return GroupOffset(None, starts.get(tp), end, None, owners.get(tp))
    lag = at.lag if at.lag is not None or end is None else end - at.committed
    return GroupOffset(at.committed, starts.get(tp), end, lag, owners.get(tp), at.leader_epoch, at.metadata)
