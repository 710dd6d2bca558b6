"""The plugin contract of assignors, the search for a plugin by name, and the check of its result.

An assignor decides which member of a classic group gets which partition. It receives plain data (`ClusterView`,
`Subscription`) and returns plain data (`Assignment`), and runs only at the leader of the group. Plugins are entry
points of the group ``kconsumer.assignors``. The name of an entry point is the protocol name in JoinGroup, which must be
the same in all members of a group. The four built-in assignors are entry points, too. But this module also contains the
names of their classes, so that a consumer with a built-in assignor does not search all installed distributions.

This module does not decide when a group rebalances, nor what a member does with its assignment.
"""

from __future__ import annotations

import abc
import enum
import importlib
import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kconsumer._version import VERSION
from kconsumer.errors import AssignorError, AssignorLoadError, ConfigError, UnknownAssignorError
from kconsumer.types import GroupMetadata, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "BUILT_IN",
    "ENTRY_POINT_GROUP",
    "Assignment",
    "Assignor",
    "AssignorInfo",
    "ClusterView",
    "RebalanceProtocol",
    "Subscription",
    "assign",
    "available",
    "common_protocol",
    "load",
    "load_all",
    "origin",
    "register",
    "validate",
]

ENTRY_POINT_GROUP: Final = "kconsumer.assignors"
DISABLE_VARIABLE: Final = "KCONSUMER_DISABLE_PLUGINS"
_BUILT_IN_TARGETS: Final = {
    "range": "kconsumer_assignors.range:RangeAssignor",
    "roundrobin": "kconsumer_assignors.roundrobin:RoundRobinAssignor",
    "sticky": "kconsumer_assignors.sticky:StickyAssignor",
    "cooperative-sticky": "kconsumer_assignors.cooperative_sticky:CooperativeStickyAssignor",
}
BUILT_IN: Final = tuple(_BUILT_IN_TARGETS)
"""Names that no other distribution can use, because all members of a group must use the same algorithm."""

_OWN_DISTRIBUTION = "kconsumer"
_NAME = r"[a-z0-9][a-z0-9._-]*"
_JAVA_CLASSES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


# --- the contract -------------------------------------------------------------------------------------------


class RebalanceProtocol(enum.Enum):
    """The partitions that a member revokes in a rebalance: all of them before it rejoins (EAGER), or only those that
    another member gets (COOPERATIVE; KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of one member, as the leader receives it (Java `ConsumerPartitionAssignor.Subscription`)."""

    topics: tuple[str, ...]
    user_data: bytes | None = None  # set by the assignor of this member
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1  # the generation in which the member owned them; -1: unknown
    rack_id: str | None = None  # an empty str means the same as None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of a member, and user data that its assignor receives in `on_assignment` (Java `Assignment`)."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class ClusterView:
    """The partitions of topics and their replicas. Tests can create it directly."""

    __slots__ = ("_topics",)

    def __init__(self, partitions: Iterable[PartitionInfo]) -> None:
        by_topic: dict[str, dict[int, PartitionInfo]] = {}
        for info in partitions:
            by_topic.setdefault(info.topic, {})[info.partition] = info
        self._topics: dict[str, tuple[PartitionInfo, ...]] = {
            topic: tuple(found[partition] for partition in sorted(found)) for topic, found in by_topic.items()
        }

    def topics(self) -> frozenset[str]:
        """Returns the topics of the view."""
        return frozenset(self._topics)

    def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Returns the partitions of a topic in ascending order. Returns an empty tuple if the topic is unknown."""
        return self._topics.get(topic, ())

    def partition_count(self, topic: str) -> int | None:
        """Returns the number of partitions of a topic, or None if the topic is unknown."""
        found = self._topics.get(topic)
        return None if found is None else len(found)

    def __eq__(self, other: object) -> bool:
        return self._topics == other._topics if isinstance(other, ClusterView) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not a key

    def __repr__(self) -> str:
        count = sum(map(len, self._topics.values()))
        return f"<ClusterView of {len(self._topics)} topics, {count} partitions>"


class Assignor(abc.ABC):
    """The base class of assignors (Java `ConsumerPartitionAssignor`). A subclass sets `name` and implements `assign`.

    An instance is used by one consumer, on one thread.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 0  # for the assignor's own use
    #: The supported rebalance protocols. A group uses the highest one that all its assignors have in common.
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def configure(self, options: Mapping[str, object]) -> None:  # noqa: B027  # optional hook
        """Called once with the consumer's options, after `load` has created the instance."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Returns user data to send with the subscription of this member, or None. The leader's assignor receives
        it."""
        return None

    @abc.abstractmethod
    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Returns the assignment of each member, by member id. Only the leader of the group calls this."""

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:  # noqa: B027  # optional hook
        """Called with the assignment of this member after each rebalance."""


@dataclass(frozen=True, slots=True)
class AssignorInfo:
    """The name and the origin of an assignor."""

    name: str
    distribution: str  # empty if the assignor is not an installed plugin
    version: str  # of the distribution; empty if there is none
    target: str  # module:class

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}, " if self.distribution else ""
        return f'assignor "{self.name}" ({origin}{self.target})'


# --- finding an assignor ------------------------------------------------------------------------------------

Factory = Callable[..., Assignor]
_registered: dict[str, Factory] = {}
_origins: weakref.WeakKeyDictionary[type[Assignor], AssignorInfo] = weakref.WeakKeyDictionary()


def register(name: str, factory: Factory) -> None:
    """Register a factory under a name for this process. A second registration of a name replaces the first.

    `factory` is a class, or another callable that returns an assignor. A callable that is not a class may take one
    argument, the consumer's options. Raises ConfigError if `name` is that of a built-in assignor or is invalid, and if
    `factory` is not callable.
    """
    if name in BUILT_IN:
        raise ConfigError(f'"{name}" is a built-in assignor; register yours under another name')
    if not re.fullmatch(_NAME, name):
        raise ConfigError(f'"{name}" cannot name an assignor: use lowercase letters, digits, ".", "_" and "-"')
    if not callable(factory):
        raise ConfigError(f'the factory registered for assignor "{name}" is not callable: {factory!r}')
    _registered[name] = factory


def available() -> dict[str, AssignorInfo]:
    """Returns a dict of name -> AssignorInfo, sorted by name, of all assignors that `load` finds. Imports no plugin.

    If several distributions provide the same name, the dict has one entry for each of them, with the key
    "distribution::name". `load` accepts these keys, too.
    """
    found = {name: _own_info(name) for name in BUILT_IN}
    for name, entries in _entries().items():
        for entry in entries:
            info = _entry_info(entry)
            found[name if len(entries) == 1 else f"{info.distribution}::{name}"] = info
    for name, factory in _registered.items():
        found[name] = AssignorInfo(name, "", "", _target(factory))
    return dict(sorted(found.items()))


def load(spec: str | Factory | Assignor, options: Mapping[str, object] | None = None) -> Assignor:
    """Returns the assignor for a name, a class or a factory. An assignor instance is checked and returned itself.

    A name is searched among the registered, the built-in and the installed assignors, in this order.
    "distribution::name" selects the assignor of one distribution, and "package.module:Class" imports a class. The class
    names of Java's four assignors are accepted, too.

    Raises UnknownAssignorError if a name is not found. Raises AssignorLoadError if the assignor cannot be loaded or is
    invalid; the message contains its origin. Raises ConfigError if `spec` has another type.
    """
    if isinstance(spec, Assignor):
        return _checked(spec, AssignorInfo(getattr(spec, "name", "?"), "", "", _target(type(spec))), None)
    if isinstance(spec, str):
        return _load_named(spec, options or {})
    if not callable(spec):
        raise ConfigError(f"an assignor is given as a name, a class, a factory or an instance, not {spec!r}")
    name = getattr(spec, "name", None)
    info = AssignorInfo(name if isinstance(name, str) else "?", "", "", _target(spec))
    return _build(spec, info, None, options or {})


def load_all(
    specs: Iterable[str | Factory | Assignor], options: Mapping[str, object] | None = None
) -> tuple[Assignor, ...]:
    """Load each entry of `specs` with `load`. Returns the assignors in the same order.

    Raises ConfigError if `specs` is empty, if two assignors have the same name, or if no rebalance protocol is common
    to all of them.
    """
    loaded = tuple(load(spec, options) for spec in specs)
    if not loaded:
        raise ConfigError("at least one assignor is needed")
    names = [assignor.name for assignor in loaded]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f'two of the configured assignors are named "{name}"; a group distinguishes them by name')
    common_protocol(loaded)
    return loaded


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """Returns the highest rebalance protocol that all the assignors support. Raises ConfigError if there is none."""
    given = tuple(assignors)
    shared = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in given))
    if not shared:
        listing = ", ".join(f"{a.name}: {'/'.join(p.name for p in a.protocols)}" for a in given)
        raise ConfigError(f"the configured assignors share no rebalance protocol ({listing})")
    return max(shared, key=lambda protocol: protocol.value)


def origin(assignor: Assignor) -> AssignorInfo:
    """Returns the origin of an assignor. The distribution is empty unless `load` found the class in a distribution."""
    known = _origins.get(type(assignor))
    return known or AssignorInfo(assignor.name, "", "", _target(type(assignor)))


def _is_built_in(assignor: Assignor) -> bool:
    return assignor.name in BUILT_IN and origin(assignor).distribution == _OWN_DISTRIBUTION


def _load_named(spec: str, options: Mapping[str, object]) -> Assignor:
    spec = _JAVA_CLASSES.get(spec.strip(), spec.strip())
    distribution, separator, name = spec.rpartition("::")
    if not separator and ":" in spec:
        info = AssignorInfo(spec, "", "", spec)
        return _build(_imported(spec, info), info, None, options)
    if not separator and name in _registered:
        info = AssignorInfo(name, "", "", _target(_registered[name]))
        return _build(_registered[name], info, name, options)
    if name in BUILT_IN and (not distribution or _normal(distribution) == _OWN_DISTRIBUTION):
        info = _own_info(name)
        return _build(_imported(info.target, info), info, name, options)
    entry = _entry(name, distribution)
    info = _entry_info(entry)
    try:
        factory = entry.load()
    except Exception as error:
        raise _load_error(info, f"cannot be imported: {_brief(error)}") from error
    return _build(factory, info, name, options)


def _entry(name: str, distribution: str) -> EntryPoint:
    """Returns the entry point with this name. If `distribution` is not empty, searches only this distribution.

    Raises UnknownAssignorError if there is no such entry point, and AssignorLoadError if there are several.
    """
    entries = _entries()
    matching = [
        entry
        for entry in entries.get(name, [])
        if not distribution or _normal(_entry_info(entry).distribution) == _normal(distribution)
    ]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise _unknown(f"{distribution}::{name}" if distribution else name, entries)
    found = [_entry_info(entry) for entry in matching]
    offers = " and ".join(f"{info.distribution} {info.version} ({info.target})" for info in found)
    ways = " or ".join(f'"{info.distribution}::{name}"' for info in found)
    raise AssignorLoadError(f'assignor "{name}" is provided by {offers}; select one of them: {ways}')


def _unknown(name: str, entries: Mapping[str, object]) -> UnknownAssignorError:
    names = sorted({*BUILT_IN, *entries, *_registered})
    text = f'no assignor named "{name}" is installed; there are: {", ".join(names) or "none at all"}'
    import difflib  # imported for wrong names only

    close = difflib.get_close_matches(name.lower(), names, n=3)
    if close:
        text += "; did you mean " + " or ".join(f'"{match}"' for match in close) + "?"
    if not _plugins_enabled():
        text += f" ({DISABLE_VARIABLE} is set, so plugins of other distributions are ignored)"
    return UnknownAssignorError(text)


def _entries() -> dict[str, list[EntryPoint]]:
    """Returns a dict of name -> installed entry points with this name. Omits the names of built-in assignors.

    The dict is empty if plugins are disabled.
    """
    found: dict[str, list[EntryPoint]] = {}
    if not _plugins_enabled():
        return found
    from importlib import metadata  # for plugins only: its import takes as long as that of kconsumer

    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if entry.name not in BUILT_IN:
            found.setdefault(entry.name, []).append(entry)
    return found


def _plugins_enabled() -> bool:
    return os.environ.get(DISABLE_VARIABLE, "") in ("", "0")


def _own_info(name: str) -> AssignorInfo:
    return AssignorInfo(name, _OWN_DISTRIBUTION, VERSION, _BUILT_IN_TARGETS[name])


def _entry_info(entry: EntryPoint) -> AssignorInfo:
    dist = entry.dist
    return AssignorInfo(entry.name, dist.name if dist else "?", dist.version if dist else "?", entry.value)


def _normal(distribution: str) -> str:
    """Returns the name of a distribution as PEP 503 normalizes it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _imported(spec: str, info: AssignorInfo) -> Any:
    module_name, _, path = spec.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except Exception as error:
        raise _load_error(info, f"cannot be imported: {_brief(error)}") from error
    return found


def _build(factory: Any, info: AssignorInfo, name: str | None, options: Mapping[str, object]) -> Assignor:
    if not callable(factory):
        raise _load_error(info, f"is neither a class nor a factory but {factory!r}")
    try:
        instance = factory(options) if _takes_options(factory) else factory()
    except Exception as error:
        raise _load_error(info, f"cannot be created: {_brief(error)}") from error
    _checked(instance, info, name)
    try:
        instance.configure(options)
    except Exception as error:
        raise _load_error(info, f"rejected its configuration: {_brief(error)}") from error
    return instance  # type: ignore[no-any-return]  # _checked saw that it is an Assignor


def _takes_options(factory: Any) -> bool:
    """Returns True if a factory function has a parameter for the options. Returns False for a class."""
    if isinstance(factory, type):
        return False
    import inspect

    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def _checked(instance: Any, info: AssignorInfo, name: str | None) -> Assignor:
    """Check the type, name, protocols and version of an assignor. Returns it, or raises AssignorLoadError."""
    if not isinstance(instance, Assignor):
        raise _load_error(info, f"returned {type(instance).__qualname__}, which is not a kconsumer.Assignor")
    own = getattr(instance, "name", None)
    if not isinstance(own, str) or not re.fullmatch(_NAME, own):
        raise _load_error(info, f"has no usable `name`: {own!r} (lowercase letters, digits, '.', '_', '-')")
    if name is not None and own != name:
        raise _load_error(info, f'calls itself "{own}"; its name must be that of the entry point or registration')
    protocols = instance.protocols
    if isinstance(protocols, (str, RebalanceProtocol)) or not isinstance(protocols, Iterable):
        raise _load_error(info, f"has `protocols` that is not a tuple of RebalanceProtocol: {protocols!r}")
    if not tuple(protocols):
        raise _load_error(info, "supports no rebalance protocol: `protocols` is empty")
    strange = [protocol for protocol in protocols if not isinstance(protocol, RebalanceProtocol)]
    if strange:
        raise _load_error(info, f"supports an unknown rebalance protocol: {strange[0]!r}")
    if not isinstance(instance.version, int):
        raise _load_error(info, f"has a `version` that is not an int: {instance.version!r}")
    if info.distribution or type(instance) not in _origins:
        _origins[type(instance)] = AssignorInfo(own, info.distribution, info.version, info.target)
    return instance


def _load_error(info: AssignorInfo, problem: str) -> AssignorLoadError:
    return AssignorLoadError(f"{info} {problem}")


def _target(factory: Any) -> str:
    kind = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{kind.__module__}:{kind.__qualname__}"


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- running an assignor and checking its result ------------------------------------------------------------


def assign(
    assignor: Assignor, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
) -> dict[str, Assignment]:
    """Run an assignor and check its result. Returns the assignments of all members.

    A member without an assignment in the assignor's result gets no partitions. Raises AssignorError if the result is
    invalid, or if the assignor raises.
    """
    try:
        assignments = assignor.assign(cluster, subscriptions)
    except Exception as error:
        raise AssignorError(f"{origin(assignor)} failed to assign: {_brief(error)}") from error
    validate(assignor, cluster, subscriptions, assignments)
    nothing = Assignment(())
    return {member: assignments.get(member, nothing) for member in subscriptions}


def validate(
    assignor: Assignor,
    cluster: ClusterView,
    subscriptions: Mapping[str, Subscription],
    assignments: Mapping[str, Assignment],
) -> None:
    """Check the result of an assignor. Raises AssignorError, with the name of the plugin, if the result is invalid.

    Members and partitions must exist, topics must be subscribed, and no partition may be assigned twice. A cooperative
    assignor must not assign a partition that another member still owns. Only this last rule is not checked for built-in
    assignors.
    """
    if not isinstance(assignments, Mapping):
        raise _broken(assignor, f"returned {type(assignments).__qualname__} instead of a mapping")
    check = _MemberCheck(assignor, cluster)
    count = 0
    for member, assignment in assignments.items():
        if member not in subscriptions:
            raise _broken(assignor, f'gave partitions to "{member}", which is not a member of the group')
        if not isinstance(assignment, Assignment):
            raise _broken(assignor, f'gave member "{member}" {assignment!r}, which is not an Assignment')
        try:
            check(member, subscriptions[member], assignment)
        except (TypeError, ValueError) as error:
            raise _broken(assignor, f'gave member "{member}" an invalid partition: {_brief(error)}') from error
        count += len(assignment.partitions)
    everything = set(chain.from_iterable(assignment.partitions for assignment in assignments.values()))
    if len(everything) != count:
        raise _broken(assignor, _doubled(assignments))
    if RebalanceProtocol.COOPERATIVE in assignor.protocols and not _is_built_in(assignor):
        _check_cooperative(assignor, subscriptions, assignments)


class _MemberCheck:
    """Checks that assigned partitions exist and that their topics are subscribed. Caches the sets that it needs."""

    def __init__(self, assignor: Assignor, cluster: ClusterView) -> None:
        self.assignor = assignor
        self.cluster = cluster
        self.ids: dict[str, frozenset[int]] = {}
        self.topics: dict[tuple[str, ...], frozenset[str]] = {}

    def __call__(self, member: str, subscription: Subscription, assignment: Assignment) -> None:
        named = tuple(subscription.topics)
        topics = self.topics.get(named)
        if topics is None:
            topics = self.topics[named] = frozenset(named)
        ids = self.ids
        for topic, partition in assignment.partitions:
            if topic not in topics:
                raise self._wrong(member, topic, partition, f"which does not subscribe to {topic}")
            if topic not in ids:
                ids[topic] = frozenset(info.partition for info in self.cluster.partitions(topic))
            if partition not in ids[topic]:
                raise self._wrong(member, topic, partition, "but there is no such partition")

    def _wrong(self, member: str, topic: str, partition: int, why: str) -> AssignorError:
        return _broken(self.assignor, f'gave {topic}-{partition} to member "{member}", {why}')


def _doubled(assignments: Mapping[str, Assignment]) -> str:
    owners: dict[TopicPartition, str] = {}
    for member, assignment in assignments.items():
        for partition in assignment.partitions:
            if partition in owners:
                return f'gave {TopicPartition(*partition)} twice: to "{owners[partition]}" and to "{member}"'
            owners[partition] = member
    return "gave a partition twice"


def _check_cooperative(
    assignor: Assignor, subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]
) -> None:
    """Raise AssignorError if a partition is added to one member and revoked from another in the same rebalance.

    In a cooperative rebalance, the previous owner must first revoke the partition. The next rebalance assigns it to the
    new owner.
    """
    added: dict[TopicPartition, str] = {}
    revoked: dict[TopicPartition, str] = {}
    for member, subscription in subscriptions.items():
        owned = subscription.owned_partitions
        given = assignments[member].partitions if member in assignments else ()
        added.update(dict.fromkeys(set(given).difference(owned), member))
        revoked.update(dict.fromkeys(set(owned).difference(given), member))
    clash = added.keys() & revoked.keys()
    if clash:
        partition = min(clash)
        raise _broken(
            assignor,
            f'gave {TopicPartition(*partition)} to "{added[partition]}" while "{revoked[partition]}" still owns '
            "it; a cooperative assignor revokes it first and assigns it in the next rebalance",
        )


def _broken(assignor: Assignor, problem: str) -> AssignorError:
    return AssignorError(f"{origin(assignor)} {problem}")
