"""Quotas of the cluster model, in virtual time: how long clients are throttled, and what a throttled client gets."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from kconsumer.schema.metadata import API_VERSIONS, ApiVersionsRequest
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.quotas import Quota, Rate
from support.fakes.cluster_client import ClusterClient, advance

BATCH = build_batch([bytes(939)], timestamp=1_700_000_000_000)


@pytest.fixture
def cluster() -> Cluster:
    """A cluster with 100 batches, in which the client "test" may fetch and produce 500 bytes per second."""
    cluster = Cluster()
    topic = cluster.create_topic("t")
    for _ in range(100):
        topic.partitions[0].append(BATCH, cluster.wall_ms(0))
    cluster.quotas.set("test", Quota(500, 500))
    return cluster


def fetch(client: ClusterClient, offset: int) -> Any:
    """Returns the response to a Fetch from an offset, without a session."""
    partition = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    message = FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=topics)
    return client.call(FETCH, 11, message, wait_ms=60_000)


def size_of(response: Any) -> int:
    """Returns the bytes of records in a response."""
    return sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)


def produce(client: ClusterClient, batches: int) -> Any:
    """Returns the response to a request with several batches."""
    data = [PartitionProduceData(records=build_batch([bytes(1018 * batches)]))]
    message = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    return client.call(PRODUCE, 7, message, wait_ms=60_000)


def test_rates() -> None:
    """The rate is that of ten seconds at least. The time is that in which the rate becomes the quota."""
    rate = Rate()
    assert [0, 0, 1000] == [rate.throttle_ms(size, 100, 0) for size in (500, 500, 100)]
    rate.unrecord(100)
    assert 0 == rate.throttle_ms(0, 100, 5000)
    assert 0 == rate.throttle_ms(1000, 100, 11_000)


def test_a_fetch_has_at_most_the_quota_of_ten_seconds(cluster: Cluster, clock: VirtualClock) -> None:
    """A client with a quota gets what it may read in ten seconds; another client gets all records."""
    assert 5000 == size_of(fetch(ClusterClient(cluster, clock), 0))
    assert 100 * len(BATCH) == size_of(fetch(ClusterClient(cluster, clock, client_id="other"), 0))


def test_a_throttled_fetch(cluster: Cluster, clock: VirtualClock) -> None:
    """A fetch beyond the quota gets an empty response, and the time until the records may be read."""
    client = ClusterClient(cluster, clock)
    assert (5000, 0) == (size_of(response := fetch(client, 0)), response.throttle_time_ms)
    response = fetch(client, 4)
    assert (0, 10_000) == (size_of(response), response.throttle_time_ms)


def test_a_throttled_connection_is_muted(cluster: Cluster, clock: VirtualClock) -> None:
    """The broker processes no request of a throttled connection before the time has passed."""
    client = ClusterClient(cluster, clock)
    for _ in range(2):
        fetch(client, 0)
    throttled = clock.now()
    number = client.send(API_VERSIONS, 3, ApiVersionsRequest())
    advance(cluster, clock, 9_999)
    assert client.response(number) is None
    advance(cluster, clock, 1)
    assert client.response(number) is not None
    assert throttled + 10_000 == clock.now()


def test_the_rate_over_a_long_time(cluster: Cluster, clock: VirtualClock) -> None:
    """A client that reads as fast as it can reads about its quota."""
    client = ClusterClient(cluster, clock)
    offset = 0
    for _ in range(40):
        offset += size_of(fetch(client, offset)) // len(BATCH)
    assert 200 < offset * len(BATCH) / (clock.now() / 1000) < 550


def test_a_throttled_producer(cluster: Cluster, clock: VirtualClock) -> None:
    """Records beyond the quota are stored; the response has the time for which the producer is throttled."""
    client = ClusterClient(cluster, clock)
    assert 0 == produce(client, 4).throttle_time_ms
    response = produce(client, 4)
    assert 0 == response.responses[0].partition_responses[0].error_code
    assert 6_000 < response.throttle_time_ms < 7_500
    assert 102 == cluster.topics["t"].partitions[0].log.end
