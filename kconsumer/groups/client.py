"""Group health: which groups exist, their members, and their offsets. The library form of `kconsumer groups`.

Nothing here joins or changes a group. `list`, `describe` and `offsets` connect, send their requests and disconnect;
`GroupClient` keeps its connections, for repeated use.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kconsumer.clock import Clock, Timer
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
    """Returns the groups of the cluster that are in one of `states` and of one of `types` (empty: all), sorted by name.

    `options` are those of `Consumer`. Raises ValueError for a state or type that does not exist,
    UnsupportedVersionError when a broker is too old to report it (states: 2.6, types: 3.8).
    """
    with GroupClient(bootstrap_servers, **options) as client:
        return client.list(states=states, types=types)


def describe(group: str, bootstrap_servers: Servers, **options: Any) -> GroupDescription:
    """Returns a classic, consumer or share group and its members. Raises BrokerError GROUP_ID_NOT_FOUND if it does not
    exist."""
    with GroupClient(bootstrap_servers, **options) as client:
        return client.describe(group)


def offsets(group: str, bootstrap_servers: Servers, **options: Any) -> dict[TopicPartition, GroupOffset]:
    """Returns the offsets of the group in each partition that it committed an offset of or that a member is assigned,
    sorted."""
    with GroupClient(bootstrap_servers, **options) as client:
        return client.offsets(client.describe(group))


class GroupClient:
    """Queries groups over its own connections. For one thread; close it, or use it in `with`."""

    def __init__(self, bootstrap_servers: Servers, **options: Any) -> None:
        self._initialize({"bootstrap_servers": bootstrap_servers, **options})

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns a client with dotted Java keys or snake_case ones, values typed or as text (see
        `Consumer.from_config`)."""
        client = cls.__new__(cls)
        client._initialize(mapping)
        return client

    def _initialize(self, options: Mapping[str, Any]) -> None:
        from kconsumer.groups.engine import AdminEngine  # late: it imports the engine

        names = {key.replace(".", "_") for key in options}
        defaults = {} if "allow_auto_create_topics" in names else {"allow_auto_create_topics": False}
        config = ConsumerConfig.from_mapping({**options, **defaults})
        if config.group_id is not None:
            raise ConfigError(
                "group_id is not an option of GroupClient, which joins no group; give the name to its methods"
            )
        self._config = config
        self._clock = Clock()
        self._engine: AdminEngine = AdminEngine(config, self._clock)
        self._guard = AccessGuard(self._engine.components.step, self._engine.components.end_wait)

    def _timer(self) -> Timer:
        return Timer(self._clock, float(self._config.default_api_timeout_ms))

    @guarded
    def list(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> builtins.list[GroupListing]:
        """See `kconsumer.groups.list`."""
        wanted = _canonical_names(states, STATES, "state"), _canonical_names(types, TYPES, "type")
        return self._engine.run(self._engine.list_groups(*wanted, self._timer()))

    @guarded
    def describe(self, group: str) -> GroupDescription:
        """See `kconsumer.groups.describe`."""
        return self._engine.run(self._engine.describe_group(group, self._timer()))

    @guarded
    def describe_all(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> builtins.list[GroupDescription]:
        """Returns every group that `list` finds, except those of types that can only be listed."""
        listings = self.list(states=states, types=types)
        return self._engine.run(self._engine.describe_listed(listings, self._timer()))

    @guarded
    def offsets(self, group: GroupDescription) -> dict[TopicPartition, GroupOffset]:
        """Returns the offsets of a group; the owners are those of the description."""
        return self.all_offsets([group])[0]

    @guarded
    def all_offsets(self, groups: Collection[GroupDescription]) -> builtins.list[dict[TopicPartition, GroupOffset]]:
        """Returns the same for several groups, in their order; partitions that they share are requested once."""
        return self._engine.run(self._engine.group_offsets(groups, self._timer()))

    def close(self) -> None:
        """Close the connections. May be called again."""
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
    """Returns the names as brokers spell them, regardless of case, hyphens and underscores."""
    if isinstance(given, str):
        given = (given,)
    canonical = {name.lower(): name for name in known}
    found = []
    for name in given:
        if name.replace("-", "").replace("_", "").lower() not in canonical:
            raise ValueError(f"there is no group {what} {name!r}; there are {', '.join(known)}")
        found.append(canonical[name.replace("-", "").replace("_", "").lower()])
    return found
