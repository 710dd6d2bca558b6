"""Methods of other Kafka clients that a Consumer and its records do not have, and what replaces each of them.

The tables contain hints for the message of the AttributeError.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type)

_ITERATE = "poll() returns several records: iterate over them, as in `for record in records`; each has"
_NO_ERROR = "poll() raises errors; records have none"
_NO_POSITIONS = "a share group has neither positions nor an assignment: brokers choose the records of each member"
_NO_QUERIES = "use the method of a Consumer, which needs no group for it"
_CREDENTIALS = "give sasl_plain_password as file:PATH or a callable; each authentication reads it"

CONSUMER: dict[str, str] = {
    # confluent-kafka
    "consume": "poll() returns up to max_records records",
    "get_watermark_offsets": "use beginning_offsets() and end_offsets()",
    "incremental_assign": "assign() keeps the positions of partitions that stay: pass all partitions",
    "incremental_unassign": "assign() keeps the positions of partitions that stay: pass all partitions",
    "unassign": "use unsubscribe()",
    "consumer_group_metadata": "use group_metadata()",
    "memberid": "use group_metadata().member_id",
    "set_sasl_credentials": _CREDENTIALS,
    "cluster_id": "no method returns it; metadata_cluster_check_enable lets the consumer check it",
    # Java
    "commit_sync": "use commit(), which waits",
    # kafka-python and aiokafka
    "partitions_for_topic": "use partitions_for()",
    "topics": "use list_topics()",
    "highwater": "use partition_states()[partition].high_watermark, or end_offsets()",
    "bootstrap": "not needed: the first call connects",
    "bootstrap_connected": "methods connect when they need to; status().connections has their states",
    "commit_offsets_async": "use commit_async()",
    "getone": "iterate over the consumer, or poll(max_records=1)",
    "getmany": "poll() returns several records; by_partition() groups them",
    "start": "not needed: the first call connects",
    "stop": "use close()",
    "last_stable_offset": "use end_offsets() with isolation_level='read_committed'",
    "seek_to_committed": "use committed() and seek()",
    "last_poll_timestamp": "use the metric last-poll-seconds-ago of metrics()",
    "next": "iterate over the consumer, or poll(max_records=1)",
}

SHARE_CONSUMER: dict[str, str] = {
    "acknowledge_offset": "acknowledge() takes a record, and so do record.ack(), release(), reject() and renew()",
    "commit_sync": "use commit(), which waits and returns the result of each partition",
    "set_acknowledgement_commit_callback": "use the option on_acknowledge, which is called as (offsets, error)",
    "set_sasl_credentials": _CREDENTIALS,
    # what the consumers of other groups have
    **{
        name: CONSUMER[name]
        for name in (
            *("consume", "getone", "getmany", "next", "start", "stop", "bootstrap", "bootstrap_connected"),
            *("last_poll_timestamp", "cluster_id"),
        )
    },
    **dict.fromkeys(
        (
            *("assign", "unassign", "incremental_assign", "incremental_unassign", "assignment", "position"),
            *("seek", "seek_to_beginning", "seek_to_end", "seek_to_time", "seek_to_committed", "committed"),
            *("pause", "resume", "paused", "current_lag", "enforce_rebalance", "partition_states"),
        ),
        _NO_POSITIONS,
    ),
    **dict.fromkeys(
        (
            *("get_watermark_offsets", "beginning_offsets", "end_offsets", "highwater", "last_stable_offset"),
            *("offsets_for_times", "list_topics", "topics", "partitions_for", "partitions_for_topic"),
        ),
        _NO_QUERIES,
    ),
    **dict.fromkeys(("store_offsets", "commit_offsets_async"), "use acknowledge() or the methods of a record"),
    **dict.fromkeys(("group_metadata", "consumer_group_metadata", "memberid"), "use status().group"),
}

RECORDS: dict[str, str] = {
    # a dict of lists, in kafka-python and aiokafka
    "items": "use by_partition().items()",
    "keys": "use partitions()",
    "values": "use by_partition().values(), or iterate over all records",
    "get": "use records(partition)",
    # one message, in confluent-kafka
    "error": _NO_ERROR,
    **{name: f"{_ITERATE} .{name}" for name in ("key", "value", "topic", "offset", "timestamp", "headers")},
    "partition": f"{_ITERATE} .partition; all of them: partitions()",
}
SUBSCRIPT = (
    "ConsumerRecords is neither a list nor a dict: iterate over it, as in `for record in records`; "
    "records.records(partition) returns those of one partition, records.by_partition() a dict of all of them"
)


# Arguments of methods of other clients. No method of a consumer has one of these names.
ARGUMENTS: dict[str, str] = {
    "asynchronous": "commit() waits, and commit_async() does not",
    "message": "pass records or offsets without a name",
    "pattern": "pass a pattern in place of the topics: subscribe(re.compile(…))",
    "autocommit": "close() commits if enable_auto_commit is set",
    "timeout_ms": "timeouts are in seconds: timeout=…",
    "num_messages": "poll(max_records=…) limits the records",
}

# Names that other clients export.
MODULE: dict[str, str] = {
    **dict.fromkeys(("KafkaConsumer", "DeserializingConsumer"), "use kconsumer.Consumer"),
    **dict.fromkeys(("AIOKafkaConsumer", "AIOConsumer"), "use kconsumer.aio.AsyncConsumer"),
    **dict.fromkeys(("KafkaError", "KafkaException"), "use kconsumer.errors.KafkaError"),
    **dict.fromkeys(("FakeCluster", "MockConsumer"), "it is in kconsumer.testing"),
    **dict.fromkeys(
        ("Producer", "KafkaProducer", "AIOKafkaProducer", "AIOProducer"),
        "kconsumer has no producer; use that of another client in the same program",
    ),
    "ConsumerRebalanceListener": "use kconsumer.RebalanceListener",
    "Message": "poll() returns ConsumerRecords, which contain ConsumerRecord objects",
    "OFFSET_BEGINNING": "use seek_to_beginning()",
    "OFFSET_END": "use seek_to_end()",
}


def check_arguments(method: Callable[..., object], names: Iterable[str]) -> None:
    """Raise TypeError if a method is called with an argument of another client."""
    for name in names:
        if name in ARGUMENTS:
            raise TypeError(f"{method.__name__}() has no argument {name!r}; {ARGUMENTS[name]}")


def checked(method: F) -> F:
    """Decorate a method that is not guarded: it raises TypeError for an argument of another client."""

    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        check_arguments(method, options)
        return method(*arguments, **options)

    @functools.wraps(method)
    async def call_async(*arguments: Any, **options: Any) -> Any:
        check_arguments(method, options)
        return await method(*arguments, **options)

    return cast("F", call_async if inspect.iscoroutinefunction(method) else call)


def takes_mapping(method: F) -> F:
    """Decorate a method that takes options as a mapping: it raises TypeError for options by name."""

    @functools.wraps(method)
    def call(cls: type, *arguments: Any, **options: Any) -> Any:
        for name in options.keys() - {"mapping"}:
            raise TypeError(
                f"{cls.__name__}.{method.__name__}() takes the options in its mapping, not by name: "
                f"{method.__name__}({{**options, {name!r}: …}})"
            )
        return method(cls, *arguments, **options)

    return cast("F", call)


class ForeignName:
    """An attribute that a class does not have, and another client does. Reading it raises an AttributeError.

    A class with these attributes needs no `__getattr__`. With one, CPython 3.11 reads every attribute of `self` in the
    slow generic way, which each poll does several times.
    """

    __slots__ = ("_hint", "_name")

    def __init__(self, name: str, hint: str) -> None:
        self._name, self._hint = name, hint

    def __get__(self, instance: object, owner: type) -> NoReturn:
        what = f"type object {owner.__name__!r}" if instance is None else f"{owner.__name__!r} object"
        message = f"{what} has no attribute {self._name!r}; {self._hint}"
        raise AttributeError(message, name=self._name, obj=owner if instance is None else instance)


def without(names: dict[str, str]) -> Callable[[T], T]:
    """Decorate a class that does not have the methods `names` of other clients, each with a hint at what replaces it.

    Subclasses may define methods with these names.
    """

    def decorate(cls: T) -> T:
        for name, hint in names.items():
            setattr(cls, name, ForeignName(name, hint))
        return cls

    return decorate


def existing(instance: object, names: Iterable[str]) -> list[str]:
    """Returns those of the names that can be read from `instance`, for its `__dir__`."""
    return [name for name in names if not isinstance(inspect.getattr_static(instance, name, None), ForeignName)]
