"""Lists, describes and deletes groups, and shows and changes their offsets, as `kconsumer.groups` does. Everything is
awaitable.

Nothing here joins a group. The functions that change groups need groups without members. The functions connect, send
their requests and disconnect.
`GroupClient` keeps its connections for repeated use.
"""

from __future__ import annotations

import asyncio
import builtins
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from kconsumer._common.closing import AsyncClosing
from kconsumer._core.lock import Timer
from kconsumer.aio.engine import AsyncEngine
from kconsumer.aio.loop_guard import LoopGuard
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.environment import Environment
from kconsumer.engine.waiting import Operation
from kconsumer.groups.arguments import (
    STATES,
    SUBSCRIPTION_SETTINGS,
    TYPES,
    Configs,
    NewOffsets,
    Servers,
    Time,
    TopicOrPartition,
)
from kconsumer.groups.client_base import CLOSE_MS, GroupClientBase
from kconsumer.groups.types import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    OpenTransaction,
)
from kconsumer.types import OffsetAndTimestamp, TopicPartition

__all__ = [
    "STATES",
    "TYPES",
    "GroupClient",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "alter_client_metrics",
    "alter_configs",
    "alter_offsets",
    "alter_share_offsets",
    "client_metrics",
    "configs",
    "delete",
    "delete_client_metrics",
    "delete_offsets",
    "delete_share_offsets",
    "describe",
    "list",
    "offsets",
    "remove_members",
]

T = TypeVar("T")


async def list(
    bootstrap_servers: Servers, *, states: Iterable[str] = (), types: Iterable[str] = (), **options: Any
) -> builtins.list[GroupListing]:
    """Returns the groups of the cluster, sorted by name.

    With `states` or `types`, returns only groups with one of these states or types. `options` are those of `Consumer`.
    Raises ValueError for a state or type that does not exist. Raises UnsupportedVersionError if a broker cannot filter
    by state (before Kafka 2.6) or by type (before 3.8).
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        return await client.list(states=states, types=types)


async def describe(group: str, bootstrap_servers: Servers, **options: Any) -> GroupDescription:
    """Returns a classic, consumer or share group and its members.

    Raises BrokerError with code GROUP_ID_NOT_FOUND if the group does not exist.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        return await client.describe(group)


async def offsets(
    group: str, bootstrap_servers: Servers, *, seconds: bool = True, **options: Any
) -> dict[TopicPartition, GroupOffset]:
    """Returns a dict of partition -> offsets of the group, sorted by partition.

    The result contains the partitions with a committed offset and those assigned to a member. For `lag_seconds`, one
    batch of each partition with a lag is read; with `seconds=False`, nothing is read, and `lag_seconds` is None.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        return await client.offsets(await client.describe(group), seconds=seconds)


async def alter_offsets(group: str, offsets: NewOffsets, bootstrap_servers: Servers, **options: Any) -> None:
    """Set committed offsets of a group that has no members, for example to read a topic again.

    `offsets` is a mapping of partition -> the next offset to read, as an int or OffsetAndMetadata. Other partitions
    keep their offsets. A group that does not exist is created. Raises BrokerError with code UNKNOWN_MEMBER_ID if the
    group has members: they would commit over the new offsets. If some partitions fail, raises the error of the first of
    them; the offsets of the others are committed. Java: `Admin.alterConsumerGroupOffsets`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.alter_offsets(group, offsets)


async def alter_share_offsets(
    group: str, offsets: Mapping[TopicPartition, int], bootstrap_servers: Servers, **options: Any
) -> None:
    """Set start offsets of a share group that has no members, for example to deliver records again.

    `offsets` is a mapping of partition -> the first offset to deliver. The group forgets which records from there on
    were acknowledged, and does not deliver earlier ones. Other partitions keep their state. A group that does not exist
    is created. Raises BrokerError with code NON_EMPTY_GROUP if the group has members. If some partitions fail, raises
    the error of the first of them; the offsets of the others are set. Java: `Admin.alterShareGroupOffsets`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.alter_share_offsets(group, offsets)


async def delete_share_offsets(group: str, topics: Iterable[str], bootstrap_servers: Servers, **options: Any) -> None:
    """Delete what a share group without members has stored about topics, for all their partitions.

    If the group reads such a topic again, it begins at its `share.auto.offset.reset`. Raises BrokerError with code
    NON_EMPTY_GROUP if the group has members, and with code GROUP_ID_NOT_FOUND if it does not exist. If some topics
    fail, raises the error of the first of them; the offsets of the others are deleted. Java:
    `Admin.deleteShareGroupOffsets`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.delete_share_offsets(group, topics)


async def delete_offsets(
    group: str, topics_or_partitions: Iterable[TopicOrPartition], bootstrap_servers: Servers, **options: Any
) -> None:
    """Delete committed offsets of a group, of whole topics or of partitions.

    A member of the group then begins there at its `auto_offset_reset`. Raises BrokerError with code
    GROUP_SUBSCRIBED_TO_TOPIC if a member subscribes to the topic, and with code GROUP_ID_NOT_FOUND if the group does
    not exist. If some partitions fail, raises the error of the first of them; the offsets of the others are deleted.
    For share groups, use `delete_share_offsets`. Java: `Admin.deleteConsumerGroupOffsets`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.delete_offsets(group, topics_or_partitions)


async def remove_members(
    group: str,
    members: Iterable[str | GroupMember],
    bootstrap_servers: Servers,
    reason: str | None = None,
    **options: Any,
) -> None:
    """Remove members from a group, such as a static member whose process does not return.

    `members` contains instance ids of static members, or members as `describe` returns them. Their partitions are
    assigned to other members at once, not only after the session timeout. A removed member that still runs joins again.
    Brokers write `reason` to their log. Raises BrokerError with code UNKNOWN_MEMBER_ID for a member that the group does
    not have; the others are removed. Java: `Admin.removeMembersFromConsumerGroup`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.remove_members(group, members, reason)


async def configs(group: str, bootstrap_servers: Servers, **options: Any) -> dict[str, str | None]:
    """Returns the settings of a group at the brokers, such as `share.auto.offset.reset`, by name.

    Settings that the group does not set have the values of the brokers. The group need not exist. Needs Kafka 3.8.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        return await client.configs(group)


async def alter_configs(group: str, configs: Configs, bootstrap_servers: Servers, **options: Any) -> None:
    """Set settings of a group at the brokers. Other settings keep their values.

    `configs` is a mapping of name -> value; None removes a setting of the group, so that the value of the brokers
    applies. The group need not exist. If one setting is not valid, none is changed. Raises BrokerError with code
    INVALID_CONFIG for an unknown name or a bad value. Java: `Admin.incrementalAlterConfigs`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.alter_configs(group, configs)


async def client_metrics(bootstrap_servers: Servers, **options: Any) -> dict[str, dict[str, str | None]]:
    """Returns the subscriptions for metrics of clients (KIP-714): a dict of name -> settings, sorted by name.

    The settings are `metrics` (prefixes of names, or `*`), `interval.ms` and `match` (patterns that select clients).
    Raises UnsupportedVersionError if the brokers are older than Kafka 3.7.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        return await client.client_metrics()


async def alter_client_metrics(name: str, configs: Configs, bootstrap_servers: Servers, **options: Any) -> None:
    """Set settings of a subscription for metrics of clients. A subscription that does not exist is created.

    `configs` is a mapping of name -> value; None removes a setting, so that its default applies. Other settings keep
    their values. Raises BrokerError for an unknown name or a bad value. Java: `kafka-client-metrics.sh --alter`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.alter_client_metrics(name, configs)


async def delete_client_metrics(name: str, bootstrap_servers: Servers, **options: Any) -> None:
    """Delete a subscription for metrics of clients. Does nothing if it does not exist."""
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.delete_client_metrics(name)


async def delete(group: str, bootstrap_servers: Servers, **options: Any) -> None:
    """Delete a group that has no members, of any type, with its committed offsets.

    Raises BrokerError with code NON_EMPTY_GROUP if the group has members, and with code GROUP_ID_NOT_FOUND if it does
    not exist. Java: `Admin.deleteConsumerGroups`.
    """
    async with GroupClient(bootstrap_servers, **options) as client:
        await client.delete(group)


class GroupClient(GroupClientBase, AsyncClosing):
    """Queries and changes groups over its own connections.

    Use it in one event loop, and close it or use `async with`. Several tasks may call methods at the same time. A
    cancelled call has no effect on the client.
    """

    _warn = staticmethod(warnings.warn)  # without the GIL, a finalizer at the end of the process finds no modules

    _engine: AsyncEngine

    def __init__(self, bootstrap_servers: Servers, **options: Any) -> None:
        self._set_up({"bootstrap_servers": bootstrap_servers, **options})

    def _create_engine(self, config: ConsumerConfig) -> AsyncEngine:
        self._ending: asyncio.Task[None] | None = None  # runs close()
        return AsyncEngine(config, Environment(), ())

    def _create_guard(self) -> LoopGuard:
        parts = self._engine.components
        return LoopGuard(parts.step, parts.end_wait)

    async def list(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> builtins.list[GroupListing]:
        """Returns the groups of the cluster. See `kconsumer.groups.list`."""
        return await self._run(self._queries.list_groups(states, types))

    async def describe(self, group: str) -> GroupDescription:
        """Returns a group and its members. See `kconsumer.groups.describe`."""
        return await self._run(self._queries.describe_group(group))

    async def describe_all(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> builtins.list[GroupDescription]:
        """Returns the descriptions of the groups that `list` returns.

        Groups of types that cannot be described, such as streams groups, are left out.
        """
        return await self._run(self._queries.describe_all(states, types))

    async def offsets(self, group: GroupDescription, *, seconds: bool = False) -> dict[TopicPartition, GroupOffset]:
        """Returns the offsets of a group by partition. The owners of the partitions are taken from `group`.

        With `seconds=True`, one batch of each partition with a lag is read for `lag_seconds`.
        """
        return (await self._run(self._queries.group_offsets([group], seconds)))[0]

    async def all_offsets(
        self, groups: Collection[GroupDescription], *, seconds: bool = False
    ) -> builtins.list[dict[TopicPartition, GroupOffset]]:
        """Returns the offsets of several groups by partition, in the order of `groups`.

        The first offset and the end offset of a partition are requested only once for all groups. `seconds` is that of
        `offsets`.
        """
        return await self._run(self._queries.group_offsets(groups, seconds))

    async def alter_offsets(self, group: str, offsets: NewOffsets) -> None:
        """Set committed offsets of a group that has no members. See `kconsumer.groups.alter_offsets`."""
        await self._run(self._queries.alter_offsets(group, offsets))

    async def alter_share_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set start offsets of a share group without members. See `kconsumer.groups.alter_share_offsets`."""
        await self._run(self._queries.alter_share_offsets(group, offsets))

    async def delete_share_offsets(self, group: str, topics: Iterable[str]) -> None:
        """Delete start offsets of a share group without members. See `kconsumer.groups.delete_share_offsets`."""
        await self._run(self._queries.delete_share_offsets(group, topics))

    async def delete_offsets(self, group: str, topics_or_partitions: Iterable[TopicOrPartition]) -> None:
        """Delete committed offsets of a group. See `kconsumer.groups.delete_offsets`."""
        await self._run(self._queries.delete_offsets(group, topics_or_partitions))

    async def remove_members(self, group: str, members: Iterable[str | GroupMember], reason: str | None = None) -> None:
        """Remove members from a group. See `kconsumer.groups.remove_members`."""
        await self._run(self._queries.remove_members(group, members, reason))

    async def configs(self, group: str) -> dict[str, str | None]:
        """Returns the settings of a group by name. See `kconsumer.groups.configs`."""
        return await self._run(self._queries.configs(group))

    async def alter_configs(self, group: str, configs: Configs) -> None:
        """Set settings of a group at the brokers. See `kconsumer.groups.alter_configs`."""
        await self._run(self._queries.alter_configs(group, configs))

    async def client_metrics(self) -> dict[str, dict[str, str | None]]:
        """Returns the subscriptions for metrics of clients. See `kconsumer.groups.client_metrics`."""
        return await self._run(self._queries.client_metrics())

    async def alter_client_metrics(self, name: str, configs: Configs) -> None:
        """Set settings of a subscription for metrics of clients. See `kconsumer.groups.alter_client_metrics`."""
        await self._run(self._queries.alter_client_metrics(name, configs))

    async def delete_client_metrics(self, name: str) -> None:
        """Delete a subscription for metrics of clients. See `kconsumer.groups.delete_client_metrics`."""
        await self._run(self._queries.alter_client_metrics(name, dict.fromkeys(SUBSCRIPTION_SETTINGS)))

    async def partition_offsets(
        self, partitions: Iterable[TopicOrPartition], at: Time = "latest"
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the offset at a time in each of these partitions. See `kconsumer.cluster.offsets`."""
        return await self._run(self._queries.partition_offsets(partitions, at))

    async def delete(self, group: str) -> None:
        """Delete a group that has no members, with its offsets. See `kconsumer.groups.delete`."""
        await self._run(self._queries.delete_group(group))

    async def describe_cluster(self) -> ClusterDescription:
        """Returns the id, the controller and the brokers of the cluster. See `kconsumer.cluster.describe`."""
        return await self._run(self._queries.describe_cluster())

    async def stuck_transactions(self, partitions: Iterable[TopicOrPartition]) -> builtins.list[OpenTransaction]:
        """Returns the open transactions in these partitions. See `kconsumer.cluster.stuck_transactions`."""
        return await self._run(self._queries.stuck_transactions(partitions))

    async def close(self) -> None:
        """Close the connections. Does nothing if they are closed already."""
        if self._guard.closed:
            return
        if self._guard.forked:
            self._guard.closed = True
            self._engine.abandon()
            return
        self._guard.holder = self._guard.enter(closing=True)
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        """Close the engine. Runs in a task of its own, which continues if the caller of `close` is cancelled."""
        try:
            await self._engine.run_async(self._engine.closing(Timer(self._clock, CLOSE_MS), None, auto_commit=False))
        finally:
            self._guard.closed = True

    async def _run(self, operation: Operation[T]) -> T:
        """Drive an operation in the calling task. Returns its result."""
        self._guard.holder = self._guard.enter()
        return await self._engine.run_async(operation)

    def __del__(self) -> None:
        guard = getattr(self, "_guard", None)
        if guard is None or guard.closed:
            return
        guard.closed = True
        try:
            if not guard.forked:
                message = "unclosed <GroupClient>; use `async with GroupClient(…)` or await close()"
                self._warn(message, ResourceWarning, stacklevel=2, source=self)
        finally:  # a filter may turn the warning into an exception
            self._engine.abandon()
