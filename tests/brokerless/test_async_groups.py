"""kconsumer.aio.groups against FakeCluster: the results of kconsumer.groups, also after a cancelled call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from kconsumer import Consumer, TopicPartition, aio, groups
from kconsumer.errors import BrokerError, ConcurrentAccessError, ConfigError, StateError, TimeoutError
from kconsumer.testing import FakeCluster
from support.brokers.kafka_admin import wait_until
from support.harnesses.cancellation import cancel_at
from support.harnesses.inside import engine_of, guard_of
from support.harnesses.polling import numbered

GROUP = "g"

pytestmark = pytest.mark.network_thread


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a group of one member that has committed offsets."""
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("t", 2)
        cluster.produce("t", numbered(5), partition=0)
        with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as member:
            while not member.assignment():
                member.poll(0.1)
            member.commit({TopicPartition("t", 0): 3})
            yield cluster


def network_threads() -> list[str]:
    """Returns the names of the network threads that run now."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kconsumer-network")]


def test_a_client_serves_several_tasks(cluster: FakeCluster) -> None:
    """Several tasks may query at the same time over one client."""
    servers = cluster.bootstrap_servers

    async def query() -> list[object]:
        async with aio.groups.GroupClient(servers) as client:
            described = await client.describe(GROUP)
            calls = [client.list(), client.describe_all(), client.all_offsets([described]), client.offsets(described)]
            return list(await asyncio.gather(*calls))

    with groups.GroupClient(servers) as client:
        described = client.describe(GROUP)
        expected = [client.list(), client.describe_all(), client.all_offsets([described]), client.offsets(described)]
    assert expected == asyncio.run(query())


def test_errors(cluster: FakeCluster) -> None:
    """Errors are those of the blocking client, and a closed client says so."""
    servers = cluster.bootstrap_servers

    async def query() -> None:
        with pytest.raises(BrokerError, match="no such group"):
            await aio.groups.describe("no such group", servers)
        with pytest.raises(ValueError, match="there is no group state 'odd'"):
            await aio.groups.list(servers, states=["odd"])
        with pytest.raises(ConfigError, match="joins no group"):
            aio.groups.GroupClient(servers, group_id=GROUP)
        with pytest.raises(TimeoutError):
            await aio.groups.list("127.0.0.1:1", default_api_timeout_ms=200)
        client = aio.groups.GroupClient.from_config({"bootstrap.servers": servers})
        await client.list()
        await asyncio.gather(client.close(), client.close())
        await client.close()
        with pytest.raises(StateError, match="closed"):
            await client.list()

    asyncio.run(query())


def test_a_client_belongs_to_one_event_loop(cluster: FakeCluster) -> None:
    """Another event loop may neither query nor close."""
    client = aio.groups.GroupClient(cluster.bootstrap_servers)
    asyncio.run(client.list())
    with pytest.raises(ConcurrentAccessError, match="event loop"):
        asyncio.run(client.list())
    with pytest.raises(ConcurrentAccessError, match="event loop"):
        asyncio.run(client.close())
    guard_of(client).closed = True
    engine_of(client).abandon()


def test_a_client_that_was_not_closed(cluster: FakeCluster) -> None:
    """A client that is dropped without `close` warns, and its thread ends."""
    clients = [aio.groups.GroupClient(cluster.bootstrap_servers)]
    asyncio.run(clients[0].list())
    with pytest.warns(ResourceWarning, match="unclosed <GroupClient>"):
        clients.clear()
    wait_until(lambda: not network_threads(), 10, "the end of the network thread")


def test_a_cancelled_call_sends_nothing_more() -> None:
    """After a call with requests to several brokers is cancelled, none of its queries is pending."""

    async def run() -> None:
        async with aio.groups.GroupClient(cluster.bootstrap_servers) as client:
            assert [] == await client.list()
            cluster.delay("ListGroups", 1.0)
            call = asyncio.create_task(client.list())
            async with asyncio.timeout(10):
                while len(queries := client._queries._groups._pending) < 3:
                    await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert [True] * 3 == [query.promise.done for query in queries]
            assert [] == await client.list()

    with FakeCluster(brokers=3) as cluster:
        asyncio.run(run())


def test_calls_cancelled_at_any_suspension(cluster: FakeCluster) -> None:
    """After a call is cancelled at its n-th suspension, for each n, the client returns the same as before.

    The last call is the close of the client: cancelled or not, no thread is left.
    """
    servers = cluster.bootstrap_servers
    expected = groups.describe(GROUP, servers), groups.offsets(GROUP, servers), groups.list(servers)

    async def query(client: aio.groups.GroupClient) -> tuple[object, object, object]:
        described = await client.describe(GROUP)
        return described, await client.offsets(described), await client.list()

    async def run() -> int:
        for point in count(1):
            client = aio.groups.GroupClient(servers)
            whole = await cancel_at(point, query(client))
            assert [expected] == (whole or [await query(client)]), f"cancelled at suspension {point}"
            closed = await cancel_at(point, client.close())
            await client.close()
            assert [] == network_threads()
            if whole and closed:
                return point
        raise AssertionError

    assert asyncio.run(run()) > 1  # at least one step was suspended; how many are depends on the network thread
