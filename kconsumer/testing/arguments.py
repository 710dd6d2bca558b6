"""Checks the arguments of FakeCluster's methods: brokers, topics, names of APIs and errors."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer._common.error_codes import CODES, Errors
from kconsumer.errors import BrokerError, error_class
from kconsumer.schema.dsl import Api
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.sasl import SaslSettings
from kconsumer.testing.cluster.sasl_mechanisms import MECHANISMS
from kconsumer.testing.cluster.topic import Partition, Topic

ErrorLike = str | int | type[BrokerError] | BrokerError


def api_of(apis: Mapping[int, Api], api: str | int | Api) -> Api:
    """Returns the API with a name ("Fetch", "offset_commit") or key; an `Api` is returned unchanged.

    Raises ValueError if the cluster has no such API.
    """
    if isinstance(api, Api):
        return api
    if isinstance(api, str):
        found = next((row for row in apis.values() if _plain(row.name) == _plain(api)), None)
    else:
        found = apis.get(api)
    if found is None:
        names = ", ".join(sorted(row.name for row in apis.values()))
        raise ValueError(f"the cluster has no API {api!r}; there are {names}")
    return found


def error_code_of(error: ErrorLike) -> int:
    """Returns the code of an error, given as Kafka's name, as a number, or as an exception or its class.

    Raises ValueError if Kafka has no such error, or if an exception class is raised for several codes.
    """
    if isinstance(error, BrokerError):
        return _known(error.code, error)
    if isinstance(error, type):
        return _code_of_class(error)
    if isinstance(error, str):
        code = next((code for code, row in CODES.items() if row.name == error.upper()), None)
        return _known(code, error)
    return _known(error, error)


def _code_of_class(cls: type) -> int:
    """Returns the code for which an exception class is raised. Raises ValueError unless there is exactly one."""
    codes = [row for row in CODES.values() if error_class(row) is cls]
    if len(codes) != 1:
        names = ", ".join(row.name for row in codes) or "none"
        raise ValueError(f"{cls.__name__} does not stand for one error code: name one of its codes ({names})")
    return int(codes[0])


def _known(code: int | None, error: ErrorLike) -> int:
    if isinstance(code, bool) or code not in CODES or code == Errors.NONE:
        raise ValueError(f"{error!r} is not an error of Kafka; use a name such as 'NOT_LEADER_OR_FOLLOWER'")
    return code


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def find_broker(cluster: Cluster, broker: int) -> int:
    """Returns `broker`, the id of a broker. Raises ValueError if no broker has this id."""
    if broker not in cluster.brokers:
        raise ValueError(f"there is no broker {broker!r}; there are {list(cluster.brokers)}")
    return broker


def find_topic(cluster: Cluster, name: str) -> Topic:
    """Returns a topic. Raises ValueError if it does not exist."""
    topic = cluster.topics.get(name)
    if topic is None:
        raise ValueError(f"there is no topic {name!r}; create it with create_topic()")
    return topic


def find_partition(cluster: Cluster, topic: str, index: int) -> Partition:
    """Returns a partition. Raises ValueError if it does not exist."""
    partitions = find_topic(cluster, topic).partitions
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(partitions):
        raise ValueError(f"topic {topic!r} has no partition {index!r}; it has {len(partitions)}, from 0 on")
    return partitions[index]


def check_number(name: str, value: float, *, positive: bool = False) -> None:
    """Raise ValueError if a value is not a number, is negative or, with `positive`, is 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0 or (positive and not value):
        raise ValueError(f"{name} is a number {'above' if positive else 'of at least'} 0; not {value!r}")


def sasl_settings(sasl: Mapping[str, object] | None) -> SaslSettings | None:
    """Returns the settings for the argument `sasl` of FakeCluster, or None if it is None.

    `sasl` has the keys `mechanism`, `users` and `session_lifetime_ms`. Raises ValueError if a key or value is not
    valid.
    """
    if sasl is None:
        return None
    unknown = sorted(set(sasl) - {"mechanism", "users", "session_lifetime_ms"})
    if unknown:
        raise ValueError(f"sasl has no key {unknown[0]!r}; there are mechanism, users, session_lifetime_ms")
    chosen = sasl.get("mechanism", "PLAIN")
    mechanisms = (chosen,) if isinstance(chosen, str) else tuple(chosen) if isinstance(chosen, list | tuple) else ()
    if not mechanisms or not set(mechanisms) <= set(MECHANISMS):
        raise ValueError(f"the mechanism of sasl is one or several of {', '.join(MECHANISMS)}; not {chosen!r}")
    users = sasl.get("users")
    if not isinstance(users, Mapping) or not users or not all(isinstance(v, str) for kv in users.items() for v in kv):
        raise ValueError("the users of sasl are a dict of names and passwords, with at least one user")
    lifetime_ms = sasl.get("session_lifetime_ms", 0)
    if isinstance(lifetime_ms, bool) or not isinstance(lifetime_ms, int) or lifetime_ms < 0:
        raise ValueError(f"the session_lifetime_ms of sasl is a number of at least 0; not {lifetime_ms!r}")
    return SaslSettings(mechanisms, dict(users), lifetime_ms)
