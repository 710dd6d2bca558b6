"""Options that change while a consumer runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import ConfigError
from kconsumer.testing import FakeCluster, MockConsumer
from support.harnesses.inside import config_of

TP = TopicPartition("t", 0)
SERVER: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.configure_group("share", share_auto_offset_reset="earliest")
        for _ in range(100):
            cluster.produce("t", [b"v" * 1000] * 10)
        yield cluster


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_a_running_consumer(cluster: FakeCluster, engine: Any) -> None:
    """The next poll has the new limit, and all records arrive in order while limits change between polls."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, engine=engine, max_poll_records=7) as consumer:
        consumer.assign([TP])
        consumer.seek_to_beginning()
        found = [record.offset for record in consumer.poll(5)]
        assert 7 == len(found)
        sizes = [20_000, 400, 1 << 20, 3_000]
        for turn in range(400):
            if len(found) == 1000:
                break
            size = sizes[turn % 4]
            consumer.update_options(
                max_poll_records=3 + turn % 5,
                max_partition_fetch_bytes=size,
                fetch_max_bytes=size,
                buffer_memory=9 * size,
            )
            records = consumer.poll(5)
            assert len(records) <= 3 + turn % 5
            found += [record.offset for record in records]
        assert list(range(len(found))) == found
        assert 1000 == len(found)


def test_from_another_thread(cluster: FakeCluster) -> None:
    """Another thread may change options while one polls."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TP])
        consumer.seek_to_end()
        other = threading.Thread(target=lambda: consumer.update_options(max_poll_records=2))
        other.start()
        consumer.poll(0.5)
        other.join()
        consumer.seek(TP, 0)
        assert 2 == len(consumer.poll(5))


def test_other_consumers(cluster: FakeCluster) -> None:
    """AsyncConsumer, ShareConsumer and MockConsumer change options, too."""

    async def run() -> int:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign([TP])
            consumer.seek_to_beginning()
            consumer.update_options(max_poll_records=4)
            return len(await consumer.poll(5))

    assert 4 == asyncio.run(run())
    with ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="share") as share:
        share.update_options(max_poll_records=10)
        assert 10 == len(share.poll(10))
    with MockConsumer(auto_offset_reset="earliest") as mock:
        mock.assign([TP])
        mock.add_records(TP, range(9))
        mock.update_options(max_poll_records=5)
        assert 5 == len(mock.poll())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_id": "x"}, "group_id cannot be changed .* takes max_poll_records, fetch_max_bytes, .*buffer_memory"),
        ({"max_poll_record": 5}, "max_poll_record cannot be changed"),
        ({"max_poll_records": 0}, "max_poll_records=0 is not allowed"),
        ({"max_poll_records": None}, "cannot be None"),
        ({"fetch_max_wait_ms": 9, "fetch_wait_max_ms": 8}, "names of the same option"),
        ({"fetch_max_wait_ms": 30_000}, "must be less than request_timeout_ms"),
    ],
)
def test_refused_changes(options: dict[str, Any], message: str) -> None:
    """What cannot change, or is not allowed, raises ConfigError, and nothing changes."""
    with Consumer(**SERVER, request_timeout_ms=20_000) as consumer:
        with pytest.raises(ConfigError, match=message):
            consumer.update_options(**{"fetch_min_bytes": 9, **options})
        assert 1 == config_of(consumer).fetch_min_bytes
    with ShareConsumer(**SERVER, group_id="g") as share, pytest.raises(ConfigError, match="buffer_memory cannot"):
        share.update_options(buffer_memory=1 << 20)
