"""The faults of the cluster model, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import encode_request
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from kconsumer.schema.metadata import API_VERSIONS, METADATA, ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.faults import Fault, FaultKind, corrupt_batch
from kconsumer.testing.cluster.log import Log
from support.fakes.cluster_client import ClusterClient, advance

TOPIC = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(2)
    cluster.create_topic("t")
    return cluster


def error_of_topic(client: ClusterClient) -> int:
    """Returns the error code of the topic in a Metadata response."""
    (topic,) = client.call(METADATA, 9, TOPIC).topics
    code: int = topic.error_code
    return code


def test_errors_of_a_fetch_session(cluster: Cluster, client: ClusterClient) -> None:
    """A Fetch of a session has the error in the partitions of the session, and the session continues."""
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=100)])]
    session = client.call(FETCH, 11, FetchRequest(topics=topics, session_epoch=0, max_bytes=100)).session_id
    cluster.faults.add(FETCH, Fault(FaultKind.ERROR, 1, Errors.NOT_LEADER_OR_FOLLOWER))
    response = client.call(FETCH, 11, FetchRequest(session_id=session, session_epoch=1, max_bytes=100))
    rows = [(topic.topic, row.error_code) for topic in response.responses for row in topic.partitions]
    assert (0, [("t", Errors.NOT_LEADER_OR_FOLLOWER)]) == (response.error_code, rows)
    response = client.call(FETCH, 11, FetchRequest(session_id=session, session_epoch=2, max_bytes=100))
    assert (0, session) == (response.error_code, response.session_id)


def test_errors_of_one_broker(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """A fault with a broker is that of requests to this broker."""
    cluster.faults.add(METADATA, Fault(FaultKind.ERROR, 1, Errors.LEADER_NOT_AVAILABLE, broker=2))
    assert 0 == error_of_topic(client)
    assert Errors.LEADER_NOT_AVAILABLE == error_of_topic(ClusterClient(cluster, clock, 2))


@pytest.mark.parametrize(("kind", "created"), [(FaultKind.DISCONNECT_BEFORE, []), (FaultKind.DISCONNECT_AFTER, ["t"])])
def test_lost_connections(cluster: Cluster, client: ClusterClient, kind: FaultKind, created: list[str]) -> None:
    """The connection is closed without a response, before or after the request has had its effect."""
    cluster.settings.auto_create_topics_enable = True
    cluster.delete_topic("t")
    cluster.faults.add(METADATA, Fault(kind))
    client.send(METADATA, 9, TOPIC)
    assert b"" == client.connection.take_output()
    assert (True, created) == (client.connection.closed, list(cluster.topics))


def test_half_a_response(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """Half of the response is sent, then the connection is closed."""
    client.send(METADATA, 9, TOPIC)
    whole = client.connection.take_output()
    cluster.faults.add(METADATA, Fault(FaultKind.HALF_RESPONSE))
    other = ClusterClient(cluster, clock)
    other.send(METADATA, 9, TOPIC)
    assert whole[: len(whole) // 2] == other.connection.take_output()
    assert other.connection.closed


def test_a_corrupt_response(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """One byte behind the header of the response differs."""
    client.send(METADATA, 9, TOPIC)
    whole = client.connection.take_output()
    cluster.faults.add(METADATA, Fault(FaultKind.CORRUPT_RESPONSE))
    other = ClusterClient(cluster, clock)
    other.send(METADATA, 9, TOPIC)
    damaged = other.connection.take_output()
    differences = [at for at in range(len(whole)) if whole[at] != damaged[at]]
    assert (len(whole), 1) == (len(damaged), len(differences))
    assert differences[0] >= 8


def test_delays(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """A delayed response comes later, and so do the responses to the requests behind it; 0 ends the delay."""
    cluster.faults.delay(METADATA, 500)
    first = client.send(METADATA, 9, TOPIC)
    second = client.send(API_VERSIONS, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    advance(cluster, clock, 499)
    assert client.response(first) is None
    assert client.response(second) is None
    advance(cluster, clock, 1)
    assert client.response(first) is not None
    assert client.response(second) is not None
    cluster.faults.delay(METADATA, 0)
    assert client.call(METADATA, 9, TOPIC)


def test_disconnect(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """All connections to a broker are closed. The broker continues to run."""
    other = ClusterClient(cluster, clock, 2)
    cluster.faults.disconnect(1)
    assert (True, False) == (client.connection.closed, other.connection.closed)
    assert cluster.connect(1) is not None


def test_an_interrupted_network(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """Requests to a broker, and its responses, are held until the network is restored."""
    cluster.faults.delay(METADATA, 100)
    early = client.send(METADATA, 9, TOPIC)
    cluster.faults.interrupt(1)
    late = client.send(API_VERSIONS, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    advance(cluster, clock, 10_000)
    assert client.response(early) is None
    assert 0 == error_of_topic_of_broker(cluster, clock, 2)
    cluster.faults.restore(1, clock.now())
    assert client.response(early) is not None
    assert client.response(late) is not None


def error_of_topic_of_broker(cluster: Cluster, clock: VirtualClock, broker: int) -> int:
    """Returns the error code of the topic in a Metadata response of a broker."""
    (topic,) = ClusterClient(cluster, clock, broker).call(METADATA, 9, TOPIC, wait_ms=1000).topics
    code: int = topic.error_code
    return code


def test_a_slow_network(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """A response arrives in parts, at the rate of the network. The bytes are the same."""
    client.send(METADATA, 9, TOPIC)
    whole = client.connection.take_output()
    cluster.faults.limit_rate(1, 1000, clock.now())
    client.connection.receive(encode_request(METADATA, 9, 0, "test", TOPIC), clock.now())
    received = bytearray()
    for ms in range(20, 10_000, 20):
        assert len(received) < len(whole)
        advance(cluster, clock, 20)
        received += client.connection.take_output()
        assert len(received) <= ms
        if len(received) == len(whole):
            break
    assert (whole, 20 * -(-len(whole) // 20)) == (received, clock.now())


def test_the_end_of_a_slow_network(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """When the rate is no longer limited, the rest of a response arrives at once."""
    cluster.faults.limit_rate(1, 10, clock.now())
    number = client.send(METADATA, 9, TOPIC)
    advance(cluster, clock, 200)
    assert client.response(number) is None
    cluster.faults.limit_rate(1, None, clock.now())
    advance(cluster, clock, 100)
    assert client.response(number) is not None


def test_half_a_response_on_a_slow_network(cluster: Cluster, clock: VirtualClock, client: ClusterClient) -> None:
    """The connection is closed when the bytes sent before have arrived."""
    cluster.faults.limit_rate(1, 1000, clock.now())
    cluster.faults.add(METADATA, Fault(FaultKind.HALF_RESPONSE))
    client.send(METADATA, 9, TOPIC)
    received = client.connection.take_output()
    assert not client.connection.closed
    while not client.connection.closed:
        advance(cluster, clock, 20)
        received += client.connection.take_output()
    assert received


def test_a_skewed_clock(cluster: Cluster) -> None:
    """The wall clock of one broker is ahead; those of others are not."""
    cluster.faults.skew_clock(2, 5000)
    times = [cluster.wall_ms(10, broker) - cluster.wall_ms(10) for broker in cluster.brokers.values()]
    assert [0, 5000] == times


def test_log_append_time_of_a_skewed_clock(cluster: Cluster, clock: VirtualClock) -> None:
    """The broker whose clock is ahead writes its own time into records with LogAppendTime."""
    cluster.create_topic("u", configs={"message.timestamp.type": "LogAppendTime"})
    leader = cluster.topics["u"].partitions[0].leader
    cluster.faults.skew_clock(leader, 5000)
    data = [PartitionProduceData(records=build_batch([b"a"]))]
    message = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="u", partition_data=data)])
    response = ClusterClient(cluster, clock, leader).call(PRODUCE, 7, message)
    (row,) = response.responses[0].partition_responses
    assert cluster.wall_ms(clock.now()) + 5000 == row.log_append_time_ms


def test_a_corrupt_batch() -> None:
    """The checksum of the batch with an offset is wrong, and nothing else of the log."""
    log = Log()
    log.append(build_batch([b"a", b"b"]), 0, 0)
    log.append(build_batch([b"c"]), 0, 0)
    before = [batch.data for batch in log.batches()]
    corrupt_batch(log, 1)
    after = [batch.data for batch in log.batches()]
    assert before[1] == after[1]
    assert [17] == [at for at in range(len(before[0])) if before[0][at] != after[0][at]]
    with pytest.raises(ValueError, match="no record with offset 3; the log has offsets from 0 to 2"):
        corrupt_batch(log, 3)


def test_faults_are_deterministic() -> None:
    """Two clusters with the same seed damage the same bytes."""

    def damaged(seed: int) -> bytes:
        cluster = Cluster(seed=seed)
        cluster.faults.add(METADATA, Fault(FaultKind.CORRUPT_RESPONSE, 3))
        client = ClusterClient(cluster, VirtualClock())
        for _ in range(3):
            client.send(METADATA, 9, MetadataRequest(topics=[]))
        return client.connection.take_output()

    values: list[Any] = [damaged(1), damaged(1), damaged(2)]
    assert values[0] == values[1] != values[2]
