"""What the cluster model responds to Fetch: records, limits, long polling, errors of partitions, and followers."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.decode import decode_batches
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from kconsumer.testing.batches import abort_marker, build_batch, commit_marker
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import Partition
from support.fakes.cluster_client import ClusterClient, advance

ABSENT = b"\1" * 16


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3, racks=["a", "b", "c"])
    cluster.create_topic("t", 2, 3)
    return cluster


def fetch_request(cluster: Cluster, *rows: FetchPartition, topic: str = "t", **fields: Any) -> FetchRequest:
    """Returns a request for partitions of a topic, without a session."""
    found = cluster.topics.get(topic)
    topic_id = ABSENT if found is None else found.id
    defaults = {"min_bytes": 1, "max_wait_ms": 0, "max_bytes": 1 << 20, "session_epoch": -1}
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=list(rows))]
    return FetchRequest(topics=topics, **{**defaults, **fields})


def row(offset: int = 0, partition: int = 0, **fields: int) -> FetchPartition:
    """Returns a row of a request."""
    return FetchPartition(partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **fields})


def fetch_one(client: ClusterClient, request: FetchRequest, version: int = 18, *, wait_ms: float = 0) -> Any:
    """Returns the result of the only partition of the response."""
    response = client.call(FETCH, version, request, wait_ms=wait_ms)
    assert Errors.NONE == response.error_code
    ((result,),) = [topic.partitions for topic in response.responses]
    return result


def values(result: Any) -> list[bytes | None]:
    """Returns the values of the records in a result."""
    return [record.value for record in decode_batches(bytes(result.records))]


# --- isolation ---


def test_isolation_levels(cluster: Cluster, client: ClusterClient, partition: Partition) -> None:
    """A read_committed fetch ends at the last stable offset and names the aborted transactions."""
    aborted = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    partition.append(build_batch([b"a"], **aborted), 5)
    partition.append(build_batch([b"b"]), 5)
    partition.append(abort_marker(0, 7), 5)
    partition.append(build_batch([b"c"], **aborted), 5)
    result = fetch_one(client, fetch_request(cluster, row(), isolation_level=1))
    assert (4, 3) == (result.high_watermark, result.last_stable_offset)
    assert [b"a", b"b"] == values(result)
    assert [(7, 0)] == [(found.producer_id, found.first_offset) for found in result.aborted_transactions]
    assert [b"a", b"b", b"c"] == values(fetch_one(client, fetch_request(cluster, row())))
    result = fetch_one(client, fetch_request(cluster, row(3), isolation_level=1))
    assert (b"", []) == (bytes(result.records), result.aborted_transactions)


def test_a_marker_completes_a_committed_fetch(
    cluster: Cluster, clock: VirtualClock, client: ClusterClient, partition: Partition
) -> None:
    """A read_committed fetch waits for the end of the transaction."""
    partition.append(build_batch([b"a"], producer_id=7, producer_epoch=0, transactional=True), 5)
    number = client.send(FETCH, 18, fetch_request(cluster, row(), isolation_level=1, max_wait_ms=500))
    advance(cluster, clock, 100)
    assert client.response(number) is None
    partition.append(commit_marker(0, 7), 5)
    advance(cluster, clock, 0)
    assert [b"a"] == values(client.response(number).responses[0].partitions[0])


# --- long polling ---


@pytest.mark.parametrize("version", [10, 18])
def test_a_leader_move_completes_a_fetch(
    cluster: Cluster, clock: VirtualClock, client: ClusterClient, version: int
) -> None:
    """When the leader moves, waiting fetches from the old leader fail at once, if they know the leader epoch."""
    number = client.send(
        FETCH, version, fetch_request(cluster, row(current_leader_epoch=0), max_wait_ms=500, rack_id="a")
    )
    cluster.move_leader("t", 0, 2)
    advance(cluster, clock, 0)
    response = client.response(number)
    result = response.responses[0].partitions[0]
    assert (Errors.FENCED_LEADER_EPOCH, -1) == (result.error_code, result.high_watermark)
    if version >= 16:
        assert (2, 1) == (result.current_leader.leader_id, result.current_leader.leader_epoch)
        assert [(2, "localhost", 9093, "b")] == [
            (node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints
        ]


def test_an_unclean_election_completes_a_fetch(
    cluster: Cluster, clock: VirtualClock, client: ClusterClient, partition: Partition
) -> None:
    """A fetch at the end of a log that is truncated fails at once with OFFSET_OUT_OF_RANGE."""
    cluster.replication.stop_replica(partition, 2, 0)
    advance(cluster, clock, 30_000)
    partition.append(build_batch([b"a", b"b"]), 5)
    other = ClusterClient(cluster, clock, 2)
    number = client.send(FETCH, 18, fetch_request(cluster, row(2), max_wait_ms=500))
    cluster.move_leader("t", 0, 2)
    advance(cluster, clock, 0)
    assert Errors.OFFSET_OUT_OF_RANGE == client.response(number).responses[0].partitions[0].error_code
    assert Errors.OFFSET_OUT_OF_RANGE == fetch_one(other, fetch_request(cluster, row(2))).error_code


# --- errors ---


def test_a_broker_without_a_replica(cluster: Cluster, clock: VirtualClock) -> None:
    """A broker that has no replica of the partition responds NOT_LEADER_OR_FOLLOWER and names the leader."""
    cluster.create_topic("single", 1, 1)
    client = ClusterClient(cluster, clock, 2)
    result = fetch_one(client, fetch_request(cluster, row(), topic="single"))
    assert (Errors.NOT_LEADER_OR_FOLLOWER, 1, 0) == (
        result.error_code,
        result.current_leader.leader_id,
        result.current_leader.leader_epoch,
    )


def test_a_negative_limit(cluster: Cluster, client: ClusterClient, partition: Partition) -> None:
    """A negative `partition_max_bytes` is an unexpected error of the broker, if there are records to read."""
    request = fetch_request(cluster, row(partition_max_bytes=-1))
    assert Errors.NONE == fetch_one(client, request).error_code
    partition.append(build_batch([b"a"]), 5)
    assert Errors.UNKNOWN_SERVER_ERROR == fetch_one(client, request).error_code


# --- followers ---


def test_followers_out_of_sync_are_not_preferred(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """A client in the rack of a follower that is out of sync reads from the leader."""
    partition = cluster.topics["t"].partitions[0]
    cluster.replication.stop_replica(partition, 2, clock.now())
    partition.append(build_batch([b"a"]), 5)
    advance(cluster, clock, 30_000)
    assert -1 == fetch_one(client, fetch_request(cluster, row(), rack_id="b")).preferred_read_replica
    cluster.replication.resume_replica(partition, 2)
    assert 2 == fetch_one(client, fetch_request(cluster, row(), rack_id="b")).preferred_read_replica


@pytest.mark.parametrize(("version", "error"), [(10, Errors.NOT_LEADER_OR_FOLLOWER), (11, Errors.NONE)])
def test_fetch_from_a_follower(cluster: Cluster, clock: VirtualClock, version: int, error: int) -> None:
    """A follower serves consumers from v11 on."""
    cluster.topics["t"].partitions[0].append(build_batch([b"a"]), 5)
    client = ClusterClient(cluster, clock, 2)
    result = fetch_one(client, fetch_request(cluster, row(), rack_id="b"), version)
    assert (error, [b"a"] if error == Errors.NONE else []) == (result.error_code, values(result))
