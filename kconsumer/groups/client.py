"""Lists and describes groups, their members and their offsets, as the command `kconsumer groups` does.

Nothing here joins or changes a group. `list`, `describe` and `offsets` connect, send their requests and disconnect.
`GroupClient` keeps its connections for repeated use.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kconsumer.clock import Timer
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.access_guard import AccessGuard, guarded
from kconsumer.errors import ConfigError
from kconsumer.groups.types import GroupDescription, GroupListing, GroupMember, GroupOffset
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer.groups.engine import AdminEngine

__all__ = [
    "STATES",
    "TYPES",
    "GroupClient",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "describe",
    "list",
    "offsets",
]

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
CLOSE_MS = 5_000.0

Servers = str | Sequence[str]


def list(
    bootstrap_servers: Servers, *, states: Iterable[str] = (), types: Iterable[str] = (), **options: Any
) -> builtins.list[GroupListing]:
    """Returns the groups of the cluster, sorted by name.

    With `states` or `types`, returns only groups with one of these states or types. `options` are those of `Consumer`.
    Raises ValueError for a state or type that does not exist. Raises UnsupportedVersionError if a broker cannot filter
    by state (before Kafka 2.6) or by type (before 3.8).
    """
    with GroupClient(bootstrap_servers, **options) as client:
        return client.list(states=states, types=types)


def describe(group: str, bootstrap_servers: Servers, **options: Any) -> GroupDescription:
    """Returns a classic, consumer or share group and its members.

    Raises BrokerError with code GROUP_ID_NOT_FOUND if the group does not exist.
    """
    with GroupClient(bootstrap_servers, **options) as client:
        return client.describe(group)


def offsets(group: str, bootstrap_servers: Servers, **options: Any) -> dict[TopicPartition, GroupOffset]:
    """Returns a dict of partition -> offsets of the group, sorted by partition.

    The result contains the partitions with a committed offset and those assigned to a member.
    """
    with GroupClient(bootstrap_servers, **options) as client:
        return client.offsets(client.describe(group))


class GroupClient:
    """Queries groups over its own connections. Use it in one thread, and close it or use it in a `with` block."""

    def __init__(self, bootstrap_servers: Servers, **options: Any) -> None:
        self._initialize({"bootstrap_servers": bootstrap_servers, **options})

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns a client with the options of a mapping, as described at `Consumer.from_config`.

        Keys are dotted Java names or snake_case names. Values are typed or text.
        """
        client = cls.__new__(cls)
        client._initialize(mapping)
        return client

    def _initialize(self, options: Mapping[str, Any]) -> None:
        from kconsumer.groups.engine import AdminEngine  # imported late, because it imports the whole engine

        names = {key.replace(".", "_") for key in options}
        defaults = {} if "allow_auto_create_topics" in names else {"allow_auto_create_topics": False}
        config = ConsumerConfig.from_mapping({**options, **defaults})
        if config.group_id is not None:
            raise ConfigError(
                "group_id is not an option of GroupClient, which joins no group; give the name to its methods"
            )
        self._config = config
        self._engine: AdminEngine = AdminEngine(config)
        self._clock = self._engine.components.clock
        self._guard = AccessGuard(self._engine.components.step, self._engine.components.end_wait)

    def _timer(self) -> Timer:
        return Timer(self._clock, float(self._config.default_api_timeout_ms))

    @guarded
    def list(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> builtins.list[GroupListing]:
        """Returns the groups of the cluster. See `kconsumer.groups.list`."""
        wanted = _canonical_names(states, STATES, "state"), _canonical_names(types, TYPES, "type")
        return self._engine.run(self._engine.list_groups(*wanted, self._timer()))

    @guarded
    def describe(self, group: str) -> GroupDescription:
        """Returns a group and its members. See `kconsumer.groups.describe`."""
        return self._engine.run(self._engine.describe_group(group, self._timer()))

    @guarded
    def describe_all(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> builtins.list[GroupDescription]:
        """Returns the descriptions of the groups that `list` returns.

        Groups of types that cannot be described, such as streams groups, are left out.
        """
        listings = self.list(states=states, types=types)
        return self._engine.run(self._engine.describe_listed(listings, self._timer()))

    @guarded
    def offsets(self, group: GroupDescription) -> dict[TopicPartition, GroupOffset]:
        """Returns the offsets of a group by partition. The owners of the partitions are taken from `group`."""
        return self.all_offsets([group])[0]

    @guarded
    def all_offsets(self, groups: Collection[GroupDescription]) -> builtins.list[dict[TopicPartition, GroupOffset]]:
        """Returns the offsets of several groups by partition, in the order of `groups`.

        The first offset and the end offset of a partition are requested only once for all groups.
        """
        return self._engine.run(self._engine.group_offsets(groups, self._timer()))

    def close(self) -> None:
        """Close the connections. Does nothing if they are closed already."""
        if self._guard.closed:
            return
        self._guard.closed = True
        if self._guard.forked:
            self._engine.abandon()
            return
        self._engine.close(Timer(self._clock, CLOSE_MS), None, auto_commit=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
