"""Every call that times out names the last error of the brokers, which is also the cause of the TimeoutError.

Each call runs against a broker that responds with one error for ever, in each engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer.aio import AsyncConsumer
from kconsumer.aio.groups import GroupClient as AsyncGroupClient
from kconsumer.errors import BrokerError, StaleMetadataError, TimeoutError
from kconsumer.groups.client import GroupClient
from kconsumer.testing import FakeCluster
from kconsumer.types import TopicPartition

TP = TopicPartition("t", 0)
TIMEOUT_S = 0.8
FOREVER = 10**6
OPTIONS: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
    "asyncio": {},
}


class Case(NamedTuple):
    """A call, and the API whose requests fail for ever."""

    call: Callable[[Any], Any]
    api: str
    error: str
    assigned: bool = True


CASES = {
    "commit": Case(lambda c: c.commit({TP: 1}, timeout=TIMEOUT_S), "OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    "commit without coordinator": Case(
        lambda c: c.commit({TP: 1}, timeout=TIMEOUT_S), "FindCoordinator", "COORDINATOR_NOT_AVAILABLE"
    ),
    "committed": Case(lambda c: c.committed([TP], timeout=TIMEOUT_S), "OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
    "committed without coordinator": Case(
        lambda c: c.committed([TP], timeout=TIMEOUT_S), "FindCoordinator", "COORDINATOR_NOT_AVAILABLE"
    ),
    "end_offsets": Case(lambda c: c.end_offsets([TP], timeout=TIMEOUT_S), "ListOffsets", "LEADER_NOT_AVAILABLE"),
    "beginning_offsets": Case(
        lambda c: c.beginning_offsets([TP], timeout=TIMEOUT_S), "ListOffsets", "NOT_LEADER_OR_FOLLOWER"
    ),
    "offsets_for_times": Case(
        lambda c: c.offsets_for_times({TP: 0}, timeout=TIMEOUT_S), "ListOffsets", "OFFSET_NOT_AVAILABLE"
    ),
    "position": Case(lambda c: c.position(TP, timeout=TIMEOUT_S), "ListOffsets", "LEADER_NOT_AVAILABLE"),
    "position without offsets": Case(
        lambda c: c.position(TP, timeout=TIMEOUT_S), "OffsetFetch", "UNSTABLE_OFFSET_COMMIT"
    ),
    "partitions_for": Case(lambda c: c.partitions_for("t", timeout=TIMEOUT_S), "Metadata", "LEADER_NOT_AVAILABLE"),
    "list_topics": Case(lambda c: c.list_topics(timeout=TIMEOUT_S), "Metadata", "LEADER_NOT_AVAILABLE", assigned=False),
}


def check(error: TimeoutError, name: str) -> None:
    assert name in str(error)
    assert isinstance(error.__cause__, BrokerError), repr(error.__cause__)
    assert name == error.__cause__.name


async def awaited(cluster: FakeCluster, case: Case) -> TimeoutError:
    async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS) as consumer:
        if case.assigned:
            consumer.assign([TP])
        with pytest.raises(TimeoutError) as raised:
            await case.call(consumer)
    return raised.value


def blocked(cluster: FakeCluster, case: Case, options: dict[str, Any]) -> TimeoutError:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS, **options) as consumer:
        if case.assigned:
            consumer.assign([TP])
        with pytest.raises(TimeoutError) as raised:
            case.call(consumer)
    return raised.value


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_a_call_that_times_out_names_the_last_error(name: str, engine: str) -> None:
    """The TimeoutError of each call has the error of the broker in its text and as its cause, in each engine."""
    case = CASES[name]
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.fail_next(case.api, case.error, times=FOREVER)
        if engine == "asyncio":
            error = asyncio.run(awaited(cluster, case))
        else:
            error = blocked(cluster, case, ENGINES[engine])
    check(error, case.error)


MISSING = {
    "end_offsets": lambda c, tp: c.end_offsets([tp], timeout=TIMEOUT_S),
    "beginning_offsets": lambda c, tp: c.beginning_offsets([tp], timeout=TIMEOUT_S),
    "offsets_for_times": lambda c, tp: c.offsets_for_times({tp: 0}, timeout=TIMEOUT_S),
    "position": lambda c, tp: c.position(tp, timeout=TIMEOUT_S),
    "commit": lambda c, tp: c.commit({tp: 1}, timeout=TIMEOUT_S),
}


@pytest.mark.parametrize("tp", [TopicPartition("t", 9), TopicPartition("nope", 0)], ids=str)
@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_what_does_not_exist_is_a_timeout_in_each_call(engine: str, tp: TopicPartition) -> None:
    """A partition or a topic that does not exist is a TimeoutError of each call, with UNKNOWN_TOPIC_OR_PARTITION as the
    cause.
    """
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        options = {**OPTIONS, **ENGINES[engine], "allow_auto_create_topics": False}
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            consumer.assign([tp])
            for call in MISSING.values():
                with pytest.raises(TimeoutError) as raised:
                    call(consumer, tp)
                check(raised.value, "UNKNOWN_TOPIC_OR_PARTITION")
                assert isinstance(raised.value.__cause__, StaleMetadataError)


GROUP_CALLS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "list": (lambda g: g.list(), "ListGroups", "COORDINATOR_LOAD_IN_PROGRESS"),
    "describe": (lambda g: g.describe("g"), "ConsumerGroupDescribe", "COORDINATOR_LOAD_IN_PROGRESS"),
    "describe without coordinator": (lambda g: g.describe("g"), "FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    "alter_offsets": (lambda g: g.alter_offsets("g", {TP: 1}), "OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    "delete": (lambda g: g.delete("g"), "DeleteGroups", "COORDINATOR_LOAD_IN_PROGRESS"),
}


@pytest.mark.parametrize("name", GROUP_CALLS)
@pytest.mark.parametrize("engine", ["blocking", "asyncio"])
def test_group_calls_that_time_out_name_the_last_error(name: str, engine: str) -> None:
    """The functions for groups name the last error, too, also if a call needs several requests."""
    call, api, error = GROUP_CALLS[name]
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.fail_next(api, error, times=FOREVER)
        options: dict[str, Any] = {"default_api_timeout_ms": 1000, "request_timeout_ms": 1000}

        async def await_call() -> None:
            async with AsyncGroupClient(cluster.bootstrap_servers, **options) as groups:
                result: Awaitable[object] = call(groups)
                await result

        def block() -> None:
            with GroupClient(cluster.bootstrap_servers, **options) as groups:
                call(groups)

        with pytest.raises(TimeoutError) as raised:
            asyncio.run(await_call()) if engine == "asyncio" else block()
    check(raised.value, error)


def test_a_share_commit_that_times_out_names_the_last_error() -> None:
    """The result of a share consumer's commit is a TimeoutError whose cause is the last error of the broker."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.configure_group("g", **{"share.auto.offset.reset": "earliest"})
        cluster.produce("t", [b"1"])
        with ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer:
            while not consumer.poll(timeout=1.0):
                pass
            cluster.fail_next("ShareAcknowledge", "COORDINATOR_NOT_AVAILABLE", times=FOREVER)
            [error] = consumer.commit(timeout=TIMEOUT_S).values()
    assert isinstance(error, TimeoutError)
    check(error, "COORDINATOR_NOT_AVAILABLE")
