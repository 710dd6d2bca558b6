"""Whole consumers of all engines and protocols read from FakeCluster over loopback sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from kconsumer.errors import (
    AuthenticationError,
    CorruptRecordError,
    GroupAuthorizationError,
    TopicAuthorizationError,
)
from kconsumer.testing import FakeCluster
from kconsumer.testing.batches import Rec
from support.brokers.certificates import Authority

TP = TopicPartition("t", 0)
ENGINES = [
    pytest.param({"engine": "classic"}, id="classic"),
    pytest.param({"engine": "threaded"}, id="threaded"),
    pytest.param({"group_protocol": "consumer"}, id="consumer protocol"),
]
DEADLINE_S = 20


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3, group_consumer_heartbeat_interval_ms=100) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        yield cluster


def consumer(cluster: FakeCluster, *topics: str, **options: Any) -> Consumer:
    """Returns a consumer that begins with the first record."""
    chosen = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, **options}
    if chosen.get("group_protocol") != "consumer":
        chosen.setdefault("heartbeat_interval_ms", 100)
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **chosen)


def read(reader: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until a number of records have arrived."""
    records: list[ConsumerRecord] = []
    until(lambda: records.extend(reader.poll(0.1)) or len(records) >= count)
    return records


def until(condition: Callable[[], bool]) -> None:
    """Repeat a call until it returns true."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"


@pytest.mark.parametrize("engine", ENGINES)
def test_records_of_a_group(cluster: FakeCluster, engine: dict[str, Any]) -> None:
    """A group reads all records of all partitions and commits its positions."""
    expected = {f"value {i}".encode() for i in range(1000)}
    cluster.produce("t", expected, compression="lz4")
    with consumer(cluster, "t", group_id="g", enable_auto_commit=False, **engine) as reader:
        assert expected == {record.value for record in read(reader, 1000)}
        reader.commit()
        description = cluster.group("g")
        assert ("Stable", 1) == (description.state, len(description.members))
        assert [("t", 0), ("t", 1), ("t", 2)] == [tuple(tp) for tp in description.members[0].assignment]
    committed = cluster.committed("g")
    assert 1000 == sum(row.offset for row in committed.values())
    assert {("t", index) for index in range(3)} == {tuple(tp) for tp in committed}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_member(cluster: FakeCluster, engine: dict[str, Any]) -> None:
    """A second member gets a part of the partitions, and the first one gets them back when the second one leaves."""
    options = {"group_id": "g", **engine}
    with consumer(cluster, "t", **options) as first:
        until(lambda: first.poll(0.05) is not None and len(first.assignment()) == 3)
        with consumer(cluster, "t", **options) as second:

            def shared() -> bool:
                first.poll(0.05)
                second.poll(0.05)
                return len(first.assignment()) + len(second.assignment()) == 3 and bool(second.assignment())

            until(shared)
        until(lambda: first.poll(0.05) is not None and len(first.assignment()) == 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_broker_dies(cluster: FakeCluster, engine: dict[str, Any]) -> None:
    """A group continues when the leader of its partitions and its coordinator dies, and when it is back."""
    with consumer(cluster, "t", group_id="g", **engine) as reader:
        for round_, broker in enumerate((1, 2, 3)):
            cluster.kill(broker)
            cluster.produce("t", [f"{round_}-{i}" for i in range(9)])
            records = read(reader, 9)
            assert {f"{round_}-{i}".encode() for i in range(9)} == {record.value for record in records}
            cluster.start(broker)


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions(cluster: FakeCluster, engine: dict[str, Any]) -> None:
    """A read_committed consumer reads committed transactions only, when they have ended."""
    with consumer(cluster, isolation_level="read_committed", **engine) as reader:
        reader.assign([TP])
        with cluster.transaction() as transaction:
            assert [("t", 0, 0)] == transaction.produce("t", "a", partition=0)
            cluster.produce("t", "b", partition=0)
            assert not reader.poll(0.3)
        assert [b"a", b"b"] == [record.value for record in read(reader, 2)]
        with cluster.transaction() as transaction:
            transaction.produce("t", "c", partition=0)
            transaction.abort()
            with pytest.raises(RuntimeError, match="not open"):
                transaction.produce("t", "d", partition=0)
        with pytest.raises(ZeroDivisionError):
            fail_in_transaction(cluster)
        cluster.produce("t", "f", partition=0)
        assert [b"f"] == [record.value for record in read(reader, 1)]


def fail_in_transaction(cluster: FakeCluster) -> None:
    """Produce a record in a transaction whose block raises an error."""
    with cluster.transaction() as transaction:
        transaction.produce("t", "e", partition=0)
        raise ZeroDivisionError


def test_fields_of_records(cluster: FakeCluster) -> None:
    """Key, headers, timestamp and offset of a record are those that were produced."""
    cluster.produce("t", Rec(b"v", b"k", [("h", b"1")], 5000), partition=0)
    cluster.produce("t", [("k2", None)], partition=0, timestamp=6000)
    with consumer(cluster) as reader:
        reader.assign([TP])
        first, second = read(reader, 2)
        assert (0, b"k", b"v", 5000, [("h", b"1")]) == (
            first.offset,
            first.key,
            first.value,
            first.timestamp,
            list(first.headers),
        )
        assert (1, b"k2", None, 6000) == (second.offset, second.key, second.value, second.timestamp)
        assert {TP: 2} == reader.end_offsets([TP])


def test_a_corrupt_batch(cluster: FakeCluster) -> None:
    """A consumer raises CorruptRecordError at the batch whose checksum is wrong."""
    cluster.produce("t", "a", partition=0)
    cluster.produce("t", "b", partition=0)
    cluster.corrupt("t", 0, 1)
    with consumer(cluster) as reader:
        reader.assign([TP])
        assert [b"a"] == [record.value for record in read(reader, 1)]
        with pytest.raises(CorruptRecordError) as raised:
            read(reader, 1)
        assert 1 == raised.value.offset


def test_errors_of_requests(cluster: FakeCluster) -> None:
    """A consumer retries what may succeed later, and raises other errors."""
    cluster.produce("t", ["a"], partition=0)
    with consumer(cluster, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([TP])
        cluster.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
        cluster.fail_next("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
        cluster.disconnect_next("Fetch")
        cluster.truncate_next("ListOffsets")
        assert [b"a"] == [record.value for record in read(reader, 1)]
        cluster.fail_next("OffsetCommit", GroupAuthorizationError)
        with pytest.raises(GroupAuthorizationError):
            reader.commit()
        cluster.disconnect_next("OffsetCommit", applied=True)
        reader.commit()
    assert {TP: OffsetAndMetadata(1, "", 0)} == cluster.committed("g")


def test_tls(tmp_path: Path) -> None:
    """A group reads records over TLS, more of them than one TLS record holds."""
    authority = Authority()
    with FakeCluster(brokers=2, tls=authority.issue().write(tmp_path / "server.pem")) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.produce("t", [bytes(1000)] * 2000)
        trusted = authority.write(tmp_path / "ca.pem")
        with consumer(cluster, "t", group_id="g", security_protocol="SSL", ssl_cafile=trusted) as reader:
            assert 2000 == len(read(reader, 2000))


def test_unknown_groups(cluster: FakeCluster) -> None:
    """A group that does not exist has no offsets and no description."""
    assert {} == cluster.committed("absent")
    with pytest.raises(ValueError, match="no group 'absent'"):
        cluster.group("absent")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl(mechanism: str) -> None:
    """A group authenticates, also again before its sessions end; a wrong password is an AuthenticationError."""
    sasl = {"mechanism": mechanism, "users": {"alice": "secret"}, "session_lifetime_ms": 1500}
    with FakeCluster(sasl=sasl) as cluster:
        cluster.create_topic("t")
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
        }
        with consumer(cluster, "t", group_id="g", **options) as reader:
            end = time.monotonic() + 2.5
            count = 0
            while time.monotonic() < end:
                cluster.produce("t", str(count))
                assert [str(count).encode()] == [record.value for record in read(reader, 1)]
                count += 1
        with (
            pytest.raises(AuthenticationError),
            consumer(cluster, **{**options, "sasl_plain_password": "wrong"}) as reader,
        ):
            reader.list_topics()


def test_acls(cluster: FakeCluster) -> None:
    """A consumer raises the error of what it may not do, and works when it is allowed."""
    cluster.produce("t", "a", partition=0)
    cluster.allow("User:ANONYMOUS", "READ", "topic", "t")
    with consumer(cluster, "t", group_id="g") as reader:
        with pytest.raises(GroupAuthorizationError):
            read(reader, 1)
        cluster.allow("User:ANONYMOUS", "READ", "group", "g", prefixed=True)
        assert [b"a"] == [record.value for record in read(reader, 1)]
        cluster.deny("User:*", "READ", "topic")
        with pytest.raises(TopicAuthorizationError):
            read(reader, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("alice", "READ", "topic"), "of the form 'User:alice'"),
        (("User:alice", "READ", "table"), "no resource 'table'; there are topic, group"),
        (("User:alice", "WRITE", "group"), "a group has no operation 'WRITE'; it has ALL"),
    ],
)
def test_wrong_acls(cluster: FakeCluster, arguments: tuple[str, str, str], message: str) -> None:
    """A wrong ACL raises ValueError."""
    with pytest.raises(ValueError, match=message):
        cluster.allow(*arguments)


def test_quotas(cluster: FakeCluster) -> None:
    """A consumer gets what its quota allows in ten seconds, and then no more records for some seconds."""
    for _ in range(20):
        cluster.produce("t", bytes(1000), partition=0)
    cluster.set_quota("slow", consumer_byte_rate=1100)
    with pytest.raises(ValueError, match="producer_byte_rate is a number above 0"):
        cluster.set_quota("slow", producer_byte_rate=0)
    with consumer(cluster, client_id="slow") as slow, consumer(cluster, client_id="other") as other:
        for reader in (slow, other):
            reader.assign([TP])
        assert 10 == len(read(slow, 10))
        assert not slow.poll(0.5)
        assert 20 == len(read(other, 20))


@pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
def test_a_coordinator_that_dies_before_the_first_metadata(options: dict[str, Any]) -> None:
    """A member that knows nothing but the address of a dead coordinator finds the others by the bootstrap servers."""
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        cluster.produce("orders", [b"one"])
        cluster.disconnect_next("Metadata", times=4)
        with Consumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **options
        ) as consumer:
            components = consumer._engine.components
            assert components.group is not None
            while (coordinator := components.group.coordinator.coordinator) is None:
                assert not consumer.poll(0.05)
            assert not components.cluster.nodes
            cluster.kill(coordinator.id)
            assert [b"one"] == [record.value for record in consumer.poll(20)]
