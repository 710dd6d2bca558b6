"""GroupClientBase: what the two classes named GroupClient share: options, checks of arguments, and one operation for
each method that waits (see `engine/waiting.py`). `kconsumer.groups` blocks, and `kconsumer.aio.groups` awaits.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from kconsumer._client.offset_arguments import offsets_to_commit, timestamp, topic_partitions
from kconsumer._core.lock import Timer
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.access_guard import AccessGuard
from kconsumer.errors import ConfigError
from kconsumer.groups.types import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    OpenTransaction,
)
from kconsumer.offsets.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    OffsetTable,
)
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kconsumer.engine.base import Engine
    from kconsumer.engine.waiting import Operation

STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
TYPES = ("classic", "consumer", "share", "streams")
#: The settings of a subscription for metrics of clients. One without any does not exist.
SUBSCRIPTION_SETTINGS = ("metrics", "interval.ms", "match")
CLOSE_MS = 5_000.0
#: The special times of `partition_offsets`, with their values in ListOffsets.
SPECIAL_TIMES: dict[str, int] = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}

Servers = str | Sequence[str]
NewOffsets = Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]
TopicOrPartition = str | TopicPartition | tuple[str, int]
Configs = Mapping[str, str | int | float | bool | None]
Time = str | int | datetime


class GroupClientBase(ABC):
    """The part of a client for groups that does not depend on how its methods wait."""

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns a client with the options of a mapping, as described at `Consumer.from_config`.

        Keys are dotted Java names or snake_case names. Values are typed or text.
        """
        client = cls.__new__(cls)
        client._set_up(mapping)
        return client

    def _set_up(self, options: Mapping[str, Any]) -> None:
        from kconsumer.groups.queries import GroupQueries  # imported late, because it imports the whole engine

        names = {key.replace(".", "_") for key in options}
        defaults = {} if "allow_auto_create_topics" in names else {"allow_auto_create_topics": False}
        config = ConsumerConfig.from_mapping({**options, **defaults})
        if config.group_id is not None:
            raise ConfigError(
                "group_id is not an option of GroupClient, which joins no group; give the name to its methods"
            )
        self._config = config
        self._engine = self._create_engine(config)
        self._queries = GroupQueries(self._engine)
        self._clock = self._engine.components.clock
        self._guard = self._create_guard()

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return f"<GroupClient {self._config.client_id!r} of {servers}>"

    @abstractmethod
    def _create_engine(self, config: ConsumerConfig) -> Engine:
        """Returns the engine of this client."""

    def _create_guard(self) -> AccessGuard:
        """Returns the guard that decides which thread may call a method."""
        parts = self._engine.components
        return AccessGuard(parts.step, parts.end_wait)

    def _timer(self) -> Timer:
        return Timer(self._clock, float(self._config.default_api_timeout_ms))

    # Each method that waits is an operation here: arguments are checked when it starts, which is inside the guard.

    def _list(self, states: Iterable[str], types: Iterable[str]) -> Operation[builtins.list[GroupListing]]:
        wanted = _canonical_names(states, STATES, "state"), _canonical_names(types, TYPES, "type")
        return (yield from self._queries.list_groups(*wanted, self._timer()))

    def _describe(self, group: str) -> Operation[GroupDescription]:
        return (yield from self._queries.describe_group(group, self._timer()))

    def _describe_all(self, states: Iterable[str], types: Iterable[str]) -> Operation[builtins.list[GroupDescription]]:
        listings = yield from self._list(states, types)
        return (yield from self._queries.describe_listed(listings, self._timer()))

    def _offsets(self, group: GroupDescription, seconds: bool) -> Operation[dict[TopicPartition, GroupOffset]]:
        tables = yield from self._all_offsets([group], seconds)
        return tables[0]

    def _all_offsets(
        self, groups: Collection[GroupDescription], seconds: bool
    ) -> Operation[builtins.list[dict[TopicPartition, GroupOffset]]]:
        return (yield from self._queries.group_offsets(groups, seconds, self._timer()))

    def _alter_offsets(self, group: str, offsets: NewOffsets) -> Operation[None]:
        checked = offsets_to_commit(offsets)
        yield from self._queries.alter_offsets(group, checked, self._timer())

    def _alter_share_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> Operation[None]:
        checked = {tp: at.offset for tp, at in offsets_to_commit(offsets).items()}
        yield from self._queries.alter_share_offsets(group, checked, self._timer())

    def _delete_share_offsets(self, group: str, topics: Iterable[str]) -> Operation[None]:
        _refuse_text(topics, "topics")
        yield from self._queries.delete_share_offsets(group, frozenset(topics), self._timer())

    def _delete_offsets(self, group: str, topics_or_partitions: Iterable[TopicOrPartition]) -> Operation[None]:
        yield from self._queries.delete_offsets(group, *_topics_and_partitions(topics_or_partitions), self._timer())

    def _describe_cluster(self) -> Operation[ClusterDescription]:
        return (yield from self._queries.describe_cluster(self._timer()))

    def _stuck_transactions(self, partitions: Iterable[TopicOrPartition]) -> Operation[builtins.list[OpenTransaction]]:
        return (yield from self._queries.stuck_transactions(*_topics_and_partitions(partitions), self._timer()))

    def _remove_members(self, group: str, members: Iterable[str | GroupMember], reason: str | None) -> Operation[None]:
        _refuse_text(members, "members")
        yield from self._queries.remove_members(group, [*members], reason, self._timer())

    def _configs(self, group: str) -> Operation[dict[str, str | None]]:
        return (yield from self._queries.configs(group, self._timer()))

    def _alter_configs(self, group: str, configs: Configs) -> Operation[None]:
        yield from self._queries.alter_configs(group, dict(configs), self._timer())

    def _client_metrics(self) -> Operation[dict[str, dict[str, str | None]]]:
        return (yield from self._queries.client_metrics(self._timer()))

    def _alter_client_metrics(self, name: str, configs: Configs) -> Operation[None]:
        yield from self._queries.alter_client_metrics(name, dict(configs), self._timer())

    def _partition_offsets(self, partitions: Iterable[TopicOrPartition], at: Time) -> Operation[OffsetTable]:
        wanted = _topics_and_partitions(partitions)
        if isinstance(at, str) and at not in SPECIAL_TIMES:
            raise ValueError(f"at is one of {', '.join(SPECIAL_TIMES)}, or a time, not {at!r}")
        moment = SPECIAL_TIMES[at] if isinstance(at, str) else timestamp(at, "at")
        return (yield from self._queries.partition_offsets(*wanted, moment, self._timer()))

    def _delete(self, group: str) -> Operation[None]:
        yield from self._queries.delete_group(group, self._timer())


def _refuse_text(given: object, name: str) -> None:
    if isinstance(given, str):
        raise TypeError(f"{name} must be an iterable, not the text {given!r}")


def _topics_and_partitions(given: Iterable[TopicOrPartition]) -> tuple[set[str], builtins.list[TopicPartition]]:
    _refuse_text(given, "partitions")
    items = [*given]
    topics = {item for item in items if isinstance(item, str)}
    return topics, topic_partitions([item for item in items if not isinstance(item, str)])


def _canonical_names(given: Iterable[str], known: Sequence[str], what: str) -> builtins.list[str]:
    """Returns the names in the spelling of brokers. Raises ValueError for an unknown name.

    Case, hyphens and underscores of the given names do not matter.
    """
    if isinstance(given, str):
        given = (given,)
    canonical = {name.lower(): name for name in known}
    found = []
    for name in given:
        if name.replace("-", "").replace("_", "").lower() not in canonical:
            raise ValueError(f"there is no group {what} {name!r}; there are {', '.join(known)}")
        found.append(canonical[name.replace("-", "").replace("_", "").lower()])
    return found
