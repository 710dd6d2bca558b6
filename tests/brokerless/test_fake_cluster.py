"""FakeCluster over loopback sockets: addresses, brokers that stop, TLS, wrong arguments, and a model that fails."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.errors import TimeoutError, TopicAuthorizationError
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
from support.harnesses.inside import model_of
from support.harnesses.interruptions import Interruption, interrupted

AUTHORITY = Authority()


def address_of(cluster: FakeCluster, broker: int = 1) -> tuple[str, int]:
    """Returns the address of a broker."""
    host, _, port = cluster.bootstrap_servers.split(",")[broker - 1].partition(":")
    return host, int(port)


def topics_of(cluster: FakeCluster, **options: Any) -> dict[str, int]:
    """Returns the topics as a consumer sees them, with the numbers of their partitions."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        return {name: len(partitions) for name, partitions in consumer.list_topics().items()}


def test_a_cluster_starts_fast() -> None:
    """A cluster of three brokers starts and stops in less than 50 ms. The best of ten attempts counts."""
    times = []
    for _ in range(10):
        began = time.perf_counter()
        with FakeCluster(brokers=3) as cluster:
            cluster.create_topic("t")
        times.append(time.perf_counter() - began)
    assert min(times) < 0.05


def test_topics() -> None:
    """A consumer sees the topics that were created, and no longer those that were deleted."""
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=2, retention_ms=1000)
        cluster.create_topic("u")
        assert {"t": 3, "u": 1} == topics_of(cluster)
        cluster.delete_topic("u")
        assert {"t": 3} == topics_of(cluster)


def test_partitions_are_added_and_records_deleted() -> None:
    """A test adds partitions to a topic, and deletes the first records of a partition."""
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.add_partitions("t", 2)
        assert {"t": 3} == topics_of(cluster)
        cluster.produce("t", ["a", "b", "c"], partition=0)
        cluster.delete_records("t", 0, 2)
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            assert {("t", 0): 2} == consumer.beginning_offsets([("t", 0)])


def test_a_stopped_broker_refuses_connections() -> None:
    """A stopped broker closes its connections and refuses new ones; it starts at the same port."""
    with FakeCluster(brokers=2) as cluster:
        address = address_of(cluster)
        with socket.create_connection(address) as client:
            cluster.kill(1)
            client.settimeout(10)
            assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        cluster.start(1)
        assert address == address_of(cluster)
        socket.create_connection(address).close()


def test_leaders_move() -> None:
    """A consumer sees the leader that `move_leader` sets."""
    with FakeCluster(brokers=2) as cluster, Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        cluster.create_topic("t", replication_factor=2)
        assert [1] == [info.leader.id for info in consumer.partitions_for("t")]
        cluster.move_leader("t", 0, 2)
        assert [2] == [info.leader.id for info in consumer.partitions_for("t")]


def test_tls(tmp_path: Path) -> None:
    """With `tls`, clients connect by TLS and verify the certificate."""
    certificate = AUTHORITY.issue().write(tmp_path / "server.pem")
    with FakeCluster(tls=certificate) as cluster:
        cluster.create_topic("t")
        trusted = AUTHORITY.write(tmp_path / "ca.pem")
        assert {"t": 1} == topics_of(cluster, security_protocol="SSL", ssl_cafile=trusted)


def test_a_client_without_tls_is_disconnected(tmp_path: Path) -> None:
    """A client that does not speak TLS is disconnected, and others are served."""
    certificate = AUTHORITY.issue().write(tmp_path / "server.pem")
    with FakeCluster(tls=certificate) as cluster:
        with socket.create_connection(address_of(cluster), timeout=10) as client:
            client.sendall(bytes(64))
            with contextlib.suppress(ConnectionResetError):
                while client.recv(100):
                    pass
        context = ssl.create_default_context(cadata=AUTHORITY.certificate)
        with socket.create_connection(address_of(cluster), timeout=10) as client:
            context.wrap_socket(client, server_hostname="localhost").close()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cluster: cluster.create_topic("t"), "already exists"),
        (lambda cluster: cluster.create_topic("u", replication_factor=2), "need as many brokers"),
        (lambda cluster: cluster.create_topic("u", retention_ms=-5), "Invalid value -5 for configuration retention.ms"),
        (lambda cluster: cluster.create_topic("u", retention=5), "Unknown topic config name: retention"),
        (lambda cluster: cluster.delete_topic("absent"), "no topic 'absent'"),
        (lambda cluster: cluster.add_partitions("t", 0), "count is a number above 0"),
        (lambda cluster: cluster.delete_records("t", 0, 1), "the log of t-0 ends at 0"),
        (lambda cluster: cluster.kill(9), r"no broker 9; there are \[1\]"),
        (lambda cluster: cluster.start("1"), "no broker '1'"),
        (lambda cluster: cluster.move_leader("t", 5, 1), "has no partition 5"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    """A wrong argument raises ValueError, and the cluster continues."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(ValueError, match=message):
            call(cluster)
        assert {"t": 1} == topics_of(cluster)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"brokers": 0}, ValueError, "at least 1"),
        ({"brokers": 2, "racks": ["a"]}, ValueError, "as many racks"),
        ({"version": "1.0"}, ValueError, "no Kafka '1.0'"),
        ({"num_partition": 1}, TypeError, "no setting 'num_partition'"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    """A wrong option raises an error that names it."""
    with pytest.raises(error, match=message):
        FakeCluster(**options)


def test_calls_outside_the_block() -> None:
    """A call before or after the `with` block raises an error that says so."""
    cluster = FakeCluster()
    with pytest.raises(RuntimeError, match="not running"):
        cluster.create_topic("t")
    with pytest.raises(RuntimeError, match="not running"):
        _ = cluster.bootstrap_servers
    with cluster:
        cluster.create_topic("t")
    with pytest.raises(RuntimeError, match="not running"):
        cluster.create_topic("t")


def test_no_thread_remains() -> None:
    """The thread of a cluster ends with the block."""
    before = threading.active_count()
    with FakeCluster():
        assert before + 1 == threading.active_count()
    assert before == threading.active_count()


def test_a_failure_of_the_model(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An exception of the model closes the connection and is logged; the test continues, and the end warns of it."""

    def fail(*_: object) -> None:
        raise LookupError("a defect")

    cluster = FakeCluster()
    monkeypatch.setattr(model_of(cluster), "handle", fail)

    def use() -> None:
        with cluster:
            with socket.create_connection(address_of(cluster), timeout=10) as client:
                client.sendall(bytes.fromhex("0000000a00120000000000010000"))
                assert client.recv(1) == b""
            cluster.create_topic("t")

    with pytest.warns(RuntimeWarning, match="failed 1 times.*a defect"):
        use()
    assert "a defect" in caplog.text


def test_the_error_of_the_block_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the block raises an error, that error is raised, with a note about the failure of the model."""
    cluster = FakeCluster()
    monkeypatch.setattr(model_of(cluster), "run_timers", lambda now: {}[now])

    def use() -> None:
        with cluster:
            cluster.create_topic("t")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        use()
    assert "KeyError" in raised.value.__notes__[0]


def test_produced_records() -> None:
    """`produce` returns where each record is."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        assert [("t", 0, 0), ("t", 1, 0), ("t", 0, 1)] == cluster.produce("t", ["a", "b", "c"])
        assert [("t", 1, 1), ("t", 1, 2)] == cluster.produce("t", [b"d", b"e"], partition=1, compression="zstd")
        assert [] == cluster.produce("t", [])
        with pytest.raises(ValueError, match="no topic 'absent'"):
            cluster.produce("absent", "a")
        with pytest.raises(ValueError, match="no partition 2; it has 2, from 0 on"):
            cluster.produce("t", "a", partition=2)
        cluster.kill(1)
        with pytest.raises(RuntimeError, match=r"t-0 has no leader; start one of the brokers \[1\]"):
            cluster.produce("t", "a", partition=0)


def test_faults() -> None:
    """A consumer meets the faults of the cluster, and works when they are over."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10) as consumer:
            assert 1 == len(consumer.partitions_for("t"))
            cluster.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED")
            with pytest.raises(TopicAuthorizationError):
                consumer.partitions_for("t")
            cluster.disconnect(1)
            cluster.disconnect_next("Metadata", times=2)
            cluster.truncate_next("Metadata")
            assert 1 == len(consumer.partitions_for("t"))
            cluster.delay("Metadata", 0.2)
            began = time.perf_counter()
            consumer.list_topics()
            assert time.perf_counter() - began >= 0.2
            cluster.delay("Metadata", 0)
            cluster.interrupt_network(1)
            with pytest.raises(TimeoutError):
                consumer.list_topics(timeout=0.2)
            cluster.restore_network(1)
            cluster.limit_rate(1, 2000)
            assert {"t"} == set(consumer.list_topics())


@pytest.mark.skipif(sys.platform == "win32", reason="the signals are those of POSIX")
def test_a_signal_handler_that_raises_leaves_the_cluster_usable() -> None:
    """After an exception of a handler at any point of a call, another thread changes the cluster, and it stops."""

    def produce() -> None:
        try:
            cluster.produce("t", "x", partition=0)
        except RuntimeError as error:
            # Condition.wait has released the lock and not begun to wait, so that `with lock` finds it released.
            if not isinstance(error.__context__, Interruption):
                raise
            raise error.__context__ from error

    points = 0
    with FakeCluster() as cluster, ThreadPoolExecutor(1) as thread:
        cluster.create_topic("t")
        while interrupted(produce, points + 1):
            points += 1
            thread.submit(cluster.produce, "t", "y", partition=0).result(20)
    assert points > 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cluster: cluster.fail_next("Fetch", "NO_ERROR"), "not an error of Kafka"),
        (lambda cluster: cluster.fail_next("Fetch", "NOT_COORDINATOR", 0), "at least 1; not 0"),
        (lambda cluster: cluster.delay("Fetch", -1), "seconds is a number"),
        (lambda cluster: cluster.delay("Fetsh", 1), "no API 'Fetsh'"),
        (lambda cluster: cluster.limit_rate(1, 0), "bytes_per_second is a number above 0"),
        (lambda cluster: cluster.corrupt("t", 0, 0), "no record with offset 0; the log is empty"),
        (lambda cluster: cluster.disconnect(2), "no broker 2"),
    ],
)
def test_wrong_faults(call: Any, message: str) -> None:
    """A wrong argument of a fault raises ValueError."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(ValueError, match=message):
            call(cluster)
