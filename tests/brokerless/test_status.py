"""`consumer.status()`: what it says of the group, the connections and the partitions, and who may call it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerStatus, ShareConsumer, TopicPartition
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
from kconsumer.errors import BrokerConnectionError, BrokerError, StateError
from kconsumer.testing import FakeCluster, MockConsumer
from kconsumer.types import PartitionCondition

TP = TopicPartition("t", 0)
FOREVER = 10**6
SOON_S = 20.0  # long for a loaded machine
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {"group_protocol": "classic"},
    "threaded": {"group_protocol": "classic", "engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.configure_group("share", share_auto_offset_reset="earliest")
        yield cluster


def poll_until(consumer: Consumer | ShareConsumer, condition: Callable[[ConsumerStatus], object]) -> ConsumerStatus:
    end = time.monotonic() + SOON_S
    while not condition(status := consumer.status()):
        assert time.monotonic() < end, str(status)
        consumer.poll(timeout=0.1)
    return status


def is_fetching(status: ConsumerStatus) -> bool:
    return any(found.state is PartitionCondition.IN_FLIGHT for found in status.partitions.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_member_that_reads(cluster: FakeCluster, engine: str) -> None:
    """The status of a member that waits for records: its group is stable, its connections are ready, nothing waits."""
    options = {"auto_offset_reset": "earliest", **ENGINES[engine]}
    with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options) as consumer:
        status = poll_until(consumer, is_fetching)
        group = status.group
        assert group is not None
        assert ("g", "stable", ENGINES[engine]["group_protocol"]) == (group.group_id, group.state, group.protocol)
        assert (consumer.group_metadata().generation_id, consumer.group_metadata().member_id) == (
            group.generation,
            group.member_id,
        )
        assert group.coordinator is not None
        assert cluster.bootstrap_servers == f"{group.coordinator.host}:{group.coordinator.port}"
        assert ("", None, ()) == (group.waiting_for, group.last_error, status.waits)
        ready = {connection.node for connection in status.connections if connection.state == "ready"}
        assert {"broker 1", "group coordinator 1"} <= ready
        assert {cluster.bootstrap_servers} == {connection.address for connection in status.connections}
        assert all(connection.last_error is None for connection in status.connections)
        assert [TP] == list(status.partitions)
        assert all(text in str(status) for text in ("Consumer 'consumer-g-", "CPython", "stable", "ready", "t-0"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_group_without_coordinator(cluster: FakeCluster, engine: str) -> None:
    """The status says what the member waits for, since when, and the last error, as `repr` does."""
    cluster.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=FOREVER)
    options = {"enable_auto_commit": False, **ENGINES[engine]}
    with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options) as consumer:
        status = poll_until(consumer, lambda found: found.group is not None and found.group.last_error)
        group = status.group
        assert group is not None
        assert ("the coordinator", None) == (group.waiting_for, group.coordinator)
        assert group.since > 0
        assert isinstance(group.last_error, BrokerError)
        assert "COORDINATOR_NOT_AVAILABLE" == group.last_error.name
        assert "waiting for the coordinator for" in str(status)
        assert "COORDINATOR_NOT_AVAILABLE" in str(status)


def test_no_network_is_used() -> None:
    """Before the first poll there is no connection, and the status creates none."""
    with Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g", enable_auto_commit=False) as consumer:
        status = consumer.status()
        assert ((), {}) == (status.connections, status.partitions)
        assert "no connections" in str(status)
    with pytest.raises(StateError):
        consumer.status()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_broker_that_cannot_be_reached(engine: str) -> None:
    """A connection that fails has its address, the time since the last attempt, and the error."""
    options = {"enable_auto_commit": False, **ENGINES[engine]}
    with Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g", **options) as consumer:
        status = poll_until(consumer, lambda found: found.connections and found.connections[0].last_error)
        [connection] = status.connections
        assert ("bootstrap broker", "127.0.0.1:1") == (connection.node, connection.address)
        assert isinstance(connection.last_error, BrokerConnectionError)
        assert connection.since < SOON_S
        assert "connection refused" in str(status)


def test_a_consumer_without_group(cluster: FakeCluster) -> None:
    """Without a group there is no GroupStatus."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TP])
        assert poll_until(consumer, is_fetching).group is None


def test_a_share_consumer(cluster: FakeCluster) -> None:
    """A share consumer has the state of its member and of its connections, and its partitions without positions."""
    with ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="share") as consumer:
        status = poll_until(consumer, lambda found: found.partitions)
        assert status.group is not None
        assert ("share", "share", "stable") == (status.group.group_id, status.group.protocol, status.group.state)
        assert status.partitions[TP].position is None
        assert "ShareConsumer" in str(status)


@pytest.mark.parametrize("kind", [*ENGINES, "share"])
def test_another_thread_calls_it_during_a_poll(cluster: FakeCluster, kind: str) -> None:
    """Any thread may call `status` while another one is inside a long poll, and gets the result at once."""
    servers = cluster.bootstrap_servers
    consumer: Consumer | ShareConsumer
    if kind == "share":
        consumer = ShareConsumer("t", bootstrap_servers=servers, group_id="share")
    else:
        consumer = Consumer("t", bootstrap_servers=servers, group_id="g", **ENGINES[kind])
    errors: list[Exception] = []
    ended = threading.Event()

    def poll() -> None:
        try:
            while not ended.is_set():
                consumer.poll(timeout=2.0)
        except Exception as error:
            errors.append(error)

    with consumer:
        thread = threading.Thread(target=poll)
        thread.start()
        try:
            began, found = time.monotonic(), 0
            while not found and time.monotonic() - began < SOON_S:
                found = len(consumer.status().partitions)
            times = []
            for _ in range(20):
                began = time.monotonic()
                consumer.status()
                times.append(time.monotonic() - began)
        finally:
            ended.set()
            thread.join()
    assert [] == errors
    assert 1 == found
    assert sorted(times)[10] < 1.0


def test_asyncio(cluster: FakeCluster) -> None:
    """`status` of an AsyncConsumer and an AsyncShareConsumer is a plain method, also while a task polls."""

    async def read() -> list[ConsumerStatus]:
        servers, found = cluster.bootstrap_servers, []
        async with (
            AsyncConsumer("t", bootstrap_servers=servers, group_id="g") as consumer,
            AsyncShareConsumer("t", bootstrap_servers=servers, group_id="share") as share,
        ):
            for each in (consumer, share):
                polling = asyncio.create_task(each.poll(timeout=SOON_S))
                while (status := each.status()).group is None or status.group.state != "stable":
                    await asyncio.sleep(0.01)
                found.append(status)
                polling.cancel()
                await asyncio.wait([polling])
        return found

    assert ["stable", "stable"] == [found.group and found.group.state for found in asyncio.run(read())]


def test_a_mock_consumer() -> None:
    """A MockConsumer has the method, too, without connections."""
    with MockConsumer("t", group_id="g") as consumer:
        assert () == consumer.status().connections
