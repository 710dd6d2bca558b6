"""What a ShareConsumer sends, and on which thread: inside polls on the calling thread, between calls on another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import ShareConsumer
from kconsumer.errors import KafkaError
from kconsumer.net import connection
from kconsumer.testing import FakeCluster
from support.harnesses.inside import parts_of
from support.members.share_groups import poll_records

HEARTBEAT_MS = 50
HEARTBEAT_THREAD = "kconsumer-heartbeat-g"
LIMIT_S = 30.0

Sent = list[tuple[str, str]]
"""The names of requests, and of the threads that have sent them."""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of 200 records, and the configuration of the group g."""
    with FakeCluster(group_share_heartbeat_interval_ms=HEARTBEAT_MS) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"v"] * 200)
        cluster.configure_group("g", share_auto_offset_reset="earliest")
        yield cluster


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Returns a list that contains each request that is encoded from now on."""
    found: Sent = []
    encode: Callable[..., bytes] = connection.encode_request

    def record(api: Any, *arguments: Any) -> bytes:
        found.append((api.name, threading.current_thread().name))
        return encode(api, *arguments)

    monkeypatch.setattr(connection, "encode_request", record)
    return found


def make(cluster: FakeCluster, **options: Any) -> ShareConsumer:
    """Returns a member of the group g that receives one record with each poll."""
    limit = {"max_poll_records": 1, "share_acquire_mode": "record_limit"}
    return ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **limit, **options)


def test_polls_send_acknowledgements_with_their_fetches(cluster: FakeCluster, sent: Sent) -> None:
    """Each poll sends one request to the leader. It accepts the last record and acquires the next one."""
    with make(cluster) as consumer:
        poll_records(consumer, 1)
        sent.clear()
        assert [*range(1, 21)] == [poll_records(consumer, 1)[0].offset for _ in range(20)]
        assert [("ShareFetch", "MainThread")] * 20 == [each for each in sent if "Heartbeat" not in each[0]]


def test_a_quick_consumer_fetches_for_several_polls(cluster: FakeCluster, sent: Sent) -> None:
    """Polls of a quick consumer send fewer requests than they return batches, and no acknowledgements alone."""
    cluster.create_topic("batches")
    for _ in range(40):
        cluster.produce("batches", [b"v"] * 10)
    with ShareConsumer(
        "batches", bootstrap_servers=cluster.bootstrap_servers, group_id="g", max_poll_records=10
    ) as consumer:
        sizes = [len(consumer.poll(LIMIT_S)) for _ in range(40)]
        requests = [name for name, _ in sent]
    assert [10] * 40 == sizes
    assert "ShareAcknowledge" not in requests
    assert requests.count("ShareFetch") < 20


def test_commit_async_sends_at_once(cluster: FakeCluster, sent: Sent) -> None:
    """commit_async() sends the acknowledgements before it returns."""
    with make(cluster) as consumer:
        poll_records(consumer, 1)
        sent.clear()
        consumer.commit_async()
        assert ("ShareAcknowledge", "MainThread") in sent


def test_heartbeats_between_calls(cluster: FakeCluster, sent: Sent) -> None:
    """While the caller processes records, another thread sends heartbeats. It ends in close()."""
    with make(cluster) as consumer:
        poll_records(consumer, 1)
        sent.clear()
        until = time.monotonic() + LIMIT_S
        while sent.count(("ShareGroupHeartbeat", HEARTBEAT_THREAD)) < 3 and time.monotonic() < until:
            time.sleep(HEARTBEAT_MS / 1000)
        assert {("ShareGroupHeartbeat", HEARTBEAT_THREAD)} == set(sent)
        assert 1 == poll_records(consumer, 1)[0].offset
    assert HEARTBEAT_THREAD not in [thread.name for thread in threading.enumerate()]


def test_errors_are_raised_while_records_arrive(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls that find records do not ask all managers for errors. Yet an error is raised soon: with a heartbeat."""
    failure = KafkaError("the group has a problem")
    with make(cluster) as consumer:
        poll_records(consumer, 1)
        monkeypatch.setattr(parts_of(consumer).membership, "_error", failure)
        with pytest.raises(KafkaError, match="has a problem"):
            poll_slowly(consumer, 198)
        assert 1 == len(consumer.poll(LIMIT_S))


def poll_slowly(consumer: ShareConsumer, times: int) -> None:
    """Poll as often as `times`, with records in each poll and ten polls in the time of a heartbeat."""
    for _ in range(times):
        assert 1 == len(consumer.poll(LIMIT_S))
        time.sleep(HEARTBEAT_MS / 1000 / 10)
