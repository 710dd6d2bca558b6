"""Each argument of each public method of all consumers is checked before the call does anything.

The table `WRONG` has values for each parameter by its name. A new parameter needs a row, or the test fails.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_overloads

import pytest

from kconsumer import Consumer, ShareConsumer, TopicPartition
from kconsumer._client.offset_arguments import timestamps
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
from kconsumer.testing import FakeCluster

TP = TopicPartition("t", 0)
NO_NUMBERS = ("1", b"1", [1], object(), 1j)
NO_INTEGERS = ("1", b"1", [1], object(), 1.5)
NO_PARTITION = (5, "t", ("t",), ("t", "0"), ("t", 0.0), None, {"t": 0})
# By parameter: the values that must raise TypeError, and those that must raise ValueError.
WRONG: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "timeout": (NO_NUMBERS, (-1, float("nan"))),
    "timeout_ms": ((1, "1"), ()),
    "num_messages": ((1, "1"), ()),
    "max_records": (NO_INTEGERS, (0, -1)),
    "max_lag": (NO_INTEGERS, (-1,)),
    "max_lag_seconds": (NO_NUMBERS, (-1, float("nan"))),
    "max_rows": (NO_INTEGERS, (0, -1)),
    "max_bytes": (NO_INTEGERS, (0, -1)),
    "columns": ((5, "value"), (["x"], [], [5])),
    "decode": ((5, "value", {"value": 5}), ({"x": 5},)),
    "partition": (("5", 1.5, None, [1]), (-1, 1 << 31)),
    "partitions": ((5, "t", None, [5], ["t"], [("t", "0")], TP), ([("", 0)], [("t", -1)])),
    "tp": (NO_PARTITION, (("", 0), ("t", -1))),
    "offset": (("5", 1.5, None, [1]), (-1, 1 << 64)),
    "offsets": ((5, "t", [TP], {TP: "1"}, {TP: 1.5}, {TP: None}, {"t": 1}), ({TP: -1}, {("", 0): 1})),
    "timestamps": (
        (5, "t", [TP], {TP: "1"}, {TP: 1.5}, {TP: None}, {"t": 1}),
        ({TP: -1}, {TP: 1 << 70}, {TP: datetime(2026, 1, 1)}),
    ),
    "time": (("5", 1.5, None, TP), (-1, 1 << 70, datetime(2026, 1, 1))),
    "options": ((), ()),
    "topic": ((5, None, b"t", ["t"]), ()),
    "topics": ((5, None, "t"), ([5], [""], [None])),
    "callback": ((5, "x"), ()),
    "listener": ((5, "x"), ()),
    "on_assign": ((5, "x"), ()),
    "on_revoke": ((5, "x"), ()),
    "on_lost": ((5, "x"), ()),
    "reason": ((5, b"x"), ()),
    "leave_group": (("yes", 1), ()),
    "record": ((5, None, TP), ()),
    "type": ((), (0, "x", None)),
}
# Arguments that a method needs besides the one that is wrong.
VALID: dict[str, Any] = {
    "tp": TP,
    "partition": 0,
    "offset": 0,
    "type": 1,
    "partitions": [TP],
    "timestamps": {TP: 0},
    "time": 0,
    "topic": "t",
    "topics": ["t"],
}
CLASSES: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "classic": (Consumer, {}),
    "threaded": (Consumer, {"engine": "threaded"}),
    "asyncio": (AsyncConsumer, {}),
    "share": (ShareConsumer, {}),
    "asyncio share": (AsyncShareConsumer, {}),
}
# Methods that take no arguments to check: they are of the context manager or of another kind.
OTHER = {"from_config"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with records."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"v"] * 500)
        cluster.configure_group("share", share_auto_offset_reset="earliest")
        yield cluster


def parameters(kind: type[Any]) -> Iterator[tuple[str, inspect.Signature, inspect.Parameter]]:
    """Yield each public method of a class, by each of its signatures, with each of their parameters."""
    for name, method in inspect.getmembers(kind, callable):
        if name.startswith("_") or name in OTHER:
            continue
        for signature in map(inspect.signature, get_overloads(method) or [method]):
            for parameter in list(signature.parameters.values())[1:]:
                yield name, signature, parameter


def calls(kind: type[Any]) -> Iterator[tuple[str, Callable[[Any], Any], type[Exception]]]:
    """Yield each call with a wrong argument: its text, the call, and the error that it must raise."""
    for name, signature, parameter in parameters(kind):
        types, values = WRONG[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            types = tuple(value for value in types if value is not TP)
        for expected, wrong in ((TypeError, types), (ValueError, values)):
            for value in wrong:
                yield f"{name}({parameter.name}={value!r})", call_with(name, signature, parameter, value), expected


def call_with(
    name: str, signature: inspect.Signature, parameter: inspect.Parameter, value: Any
) -> Callable[[Any], Any]:
    """Returns a function that calls the method of a consumer with this value of the parameter."""
    others = signature.parameters.values()
    if parameter.kind is parameter.VAR_POSITIONAL:
        positional = value if isinstance(value, list) else [value]
        before = [VALID[p.name] for p in others if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
        return lambda consumer: getattr(consumer, name)(*before, *positional)
    named = [p for p in others if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = {p.name: VALID.get(p.name) for p in named if p.default is p.empty and p.name != "self"}
    return lambda consumer: getattr(consumer, name)(**needed | {parameter.name: value})


async def outcome(call: Callable[[Any], Any], consumer: Any, record: Any) -> Exception | None:
    """Returns the exception that a call raised, or None."""
    VALID["record"] = record
    try:
        result = call(consumer)
        if isinstance(result, Awaitable):
            await result
        elif hasattr(result, "__anext__"):
            await anext(result)
    except Exception as error:
        return error
    return None


def understandable(error: Exception) -> bool:
    """Returns whether the message is not one that Python itself gives for an operation inside the library."""
    return not any(text in str(error) for text in ("not supported between", "is not iterable", "has no attribute"))


async def poll(consumer: Any) -> Any:
    """Returns the records of one poll."""
    for _ in range(100):
        records = consumer.poll(timeout=0.1)
        records = await records if isinstance(records, Awaitable) else records
        if records:
            return records
    raise AssertionError("there are no records")


@pytest.mark.parametrize("name", CLASSES)
def test_wrong_arguments_are_refused(cluster: FakeCluster, name: str) -> None:
    """With records at hand each wrong argument raises TypeError or ValueError, says what is wrong, and has no effect:
    the next poll returns the next record.
    """
    kind, options = CLASSES[name]

    async def run() -> list[str]:
        share = "share" in name
        if not share:
            options.update(auto_offset_reset="earliest", group_id="g", enable_auto_commit=False, max_poll_records=1)
        consumer = kind(
            "t", bootstrap_servers=cluster.bootstrap_servers, **options | ({"group_id": "share"} if share else {})
        )
        found: list[str] = []
        try:
            first = next(iter(await poll(consumer)))
            for text, call, expected in calls(kind):
                error = await outcome(call, consumer, first)
                if not isinstance(error, expected) or not understandable(error):
                    found.append(f"{text}: {error!r}")
            if not share:
                (record,) = await poll(consumer)
                assert first.offset + 1 == record.offset
        finally:
            closed = consumer.close(timeout=5)
            if isinstance(closed, Awaitable):
                await closed
        return found

    assert [] == asyncio.run(run())


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (1500, 1500),
        (datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), 1500),
        (datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))), 1000),
        (datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC), 1001),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), 253_402_300_799_999),
    ],
)
def test_times_are_numbers_or_datetimes(time: int | datetime, expected: int) -> None:
    """A datetime is the first millisecond that is not before it."""
    assert {TP: expected} == timestamps({TP: time})


def test_offsets_for_times_takes_datetimes(cluster: FakeCluster) -> None:
    """A time before all records gives the first offset, and a time after all gives None."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        found = consumer.offsets_for_times({TP: datetime(1980, 1, 1, tzinfo=UTC)})[TP]
        assert 0 == getattr(found, "offset", None)
        assert {TP: None} == consumer.offsets_for_times({TP: datetime(2999, 1, 1, tzinfo=UTC)})
