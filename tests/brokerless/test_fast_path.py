"""Consumers with and without the fast path of fetching return the same records and commit the same offsets."""

from __future__ import annotations

import errno
import os
import random
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any, cast

import pytest
from kconsumer.engine.fast_path import FastPathControl

from kconsumer import Consumer, TopicPartition
from kconsumer.engine.state_dump import full_report
from kconsumer.engine.threaded import ThreadedDriver
from kconsumer.engine.waiting import Wait
from kconsumer.errors import ForkedConsumerError, StateError, WakeupError
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
from support.fakes.tls_peer import send_close_notify

TOPIC, PARTITIONS, BROKERS = "t", 4, 2
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}
LIMIT_S = 30.0
PAUSE_S = 0.005  # without it, the fast path would rarely be armed again after a large response


class Script:
    """Writes records and uses a consumer, both as one seed decides. `seen` has what the consumer returned."""

    def __init__(self, cluster: FakeCluster, consumer: Consumer, seed: int) -> None:
        self.cluster, self.consumer, self.rng = cluster, consumer, random.Random(seed)
        self.written: dict[TopicPartition, int] = {}
        self.seen: dict[TopicPartition, list[int]] = {}
        self.log: list[Any] = []

    def write(self) -> None:
        """Write a few records to one partition."""
        tp = TopicPartition(TOPIC, self.rng.randrange(PARTITIONS))
        count = self.rng.choice([1, 1, 1, 1, 1, 1, 1, 2, 3, 30])
        self.cluster.produce(TOPIC, [b"v" * self.rng.randrange(200)] * count, partition=tp.partition)
        self.written[tp] = self.written.get(tp, 0) + count

    def read(self) -> None:
        """Read until every record was returned in order."""
        end = time.monotonic() + LIMIT_S
        while any(self.position(tp) < count for tp, count in self.written.items()):
            assert time.monotonic() < end, (self.written, self.consumer.partition_states())
            for record in self.consumer.poll(0.5, 20):
                self.seen.setdefault(record.topic_partition, []).append(record.offset)

    def use_fast_path(self) -> int:
        """Write and read until the fast path was used. Returns its number of responses; 0 after the time limit."""
        end = time.monotonic() + LIMIT_S
        while not responses_of(self.consumer) and time.monotonic() < end:
            self.write()
            self.read()
            time.sleep(PAUSE_S)
        return responses_of(self.consumer)

    def position(self, tp: TopicPartition) -> int:
        """Returns the offset after the last returned record."""
        return self.seen[tp][-1] + 1 if self.seen.get(tp) else 0

    def act(self) -> None:
        """Use the consumer in some other way."""
        tp = TopicPartition(TOPIC, self.rng.randrange(PARTITIONS))
        action = self.rng.choice(["commit", "seek", "pause", "position", "move"])
        if action == "commit":
            self.consumer.commit()
            self.log.append(dict(sorted(self.cluster.committed("g").items())))
        elif action == "seek" and self.position(tp):
            offset = self.rng.randrange(self.position(tp))
            self.consumer.seek(tp, offset)
            self.seen[tp].append(offset - 1)
        elif action == "pause":
            self.consumer.pause(tp)
            self.write()
            self.consumer.resume(tp)
        elif action == "position":
            self.log.append(self.consumer.position(tp))
        elif action == "move":
            self.cluster.move_leader(TOPIC, tp.partition, self.rng.randint(1, BROKERS))


def responses_of(consumer: Consumer) -> int:
    """Returns the number of responses on the fast path."""
    control = consumer._engine._fast_path
    assert control is not None
    return control.path.responses


def run(
    engine: str, seed: int, tls: dict[str, str], *, fast: bool
) -> tuple[dict[TopicPartition, list[int]], list[Any], int]:
    """Run a script. Returns what was seen, what it logged, and the number of responses on the fast path.

    With `fast`, the script is continued until the fast path was used, which takes longer on a busy machine.
    """
    options = ENGINES[engine] | tls_options(tls)
    with FakeCluster(brokers=BROKERS, tls=tls.get("broker")) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=BROKERS)
        with Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        ) as consumer:
            script = Script(cluster, consumer, seed)
            for _ in range(60):
                for _ in range(script.rng.choice([1, 1, 2])):
                    script.write()
                script.read()
                time.sleep(PAUSE_S)
                if script.rng.random() < 0.1:
                    script.act()
            script.read()
            consumer.commit()
            script.log.append(dict(sorted(cluster.committed("g").items())))
            seen = {tp: offsets.copy() for tp, offsets in script.seen.items()}
            return seen, script.log, script.use_fast_path() if fast else responses_of(consumer)


def tls_options(tls: dict[str, str]) -> dict[str, Any]:
    """Returns the options of a consumer that trusts the brokers' certificate; without certificates, none."""
    return {"security_protocol": "SSL", "ssl_cafile": tls["ca"]} if tls else {}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of the brokers' certificate, and of the one that consumers trust."""
    folder, authority = tmp_path_factory.mktemp("tls"), Authority()
    return {"broker": authority.issue().write(folder / "broker.pem"), "ca": authority.write(folder / "ca.pem")}


@pytest.mark.parametrize(("seed", "encrypted"), [(0, False), (1, False), (2, False), (0, True)])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_fast_path_changes_no_result(
    engine: str, seed: int, encrypted: bool, certificates: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records, positions and committed offsets are the same without the fast path, and it was used."""
    tls = certificates if encrypted else {}
    seen, log, responses = run(engine, seed, tls, fast=True)
    assert responses > 0
    monkeypatch.setattr(FastPathControl, "arm", lambda *_: False)
    assert run(engine, seed, tls, fast=False) == (seen, log, 0)


def test_the_end_of_tls_while_the_fast_path_waits(certificates: dict[str, str]) -> None:
    """If a broker ends TLS and does not close the socket, the consumer connects again."""
    options = {"engine": "threaded", "fetch_max_wait_ms": 5_000, **tls_options(certificates)}
    with FakeCluster(tls=certificates["broker"]) as cluster:
        cluster.create_topic(TOPIC)
        cluster.produce(TOPIC, [b"first"])
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek(TopicPartition(TOPIC, 0), 0)
            control = read_on_fast_path(cluster, consumer)
            arm(control, consumer)
            nodes = consumer._engine.components.client.loop.nodes
            transports = [connection.node.transport for connection in control.path.connections]
            assert len(transports) == 1
            with cluster._server.change():  # else its thread might use a socket at the same time
                for client in cluster._server._clients.values():
                    assert isinstance(client._socket, ssl.SSLSocket)
                    send_close_notify(client._socket)
            end = time.monotonic() + 4  # until then, the broker sends nothing that would fail
            while any(node.transport in transports for node in nodes.values()):
                assert time.monotonic() < end
                consumer.poll(0.1)
            cluster.produce(TOPIC, [b"last"])
            values: list[bytes | None] = []
            while b"last" not in values:
                assert time.monotonic() < end + LIMIT_S
                values += [record.value for record in consumer.poll(0.5)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with one topic."""
    with FakeCluster() as made:
        made.create_topic(TOPIC)
        yield made


@pytest.fixture
def consumer(cluster: FakeCluster) -> Iterator[Consumer]:
    """A consumer with a network thread that reads the topic."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, engine="threaded", request_timeout_ms=3000) as made:
        made.assign([TopicPartition(TOPIC, 0)])
        made.seek_to_beginning()
        yield made


def read_on_fast_path(cluster: FakeCluster, consumer: Consumer) -> FastPathControl:
    """Read records until the fast path has been used. Returns its control."""
    control = consumer._engine._fast_path
    assert control is not None
    end = time.monotonic() + LIMIT_S
    while not control.path.responses:
        assert time.monotonic() < end
        cluster.produce(TOPIC, [b"v"])
        consumer.poll(0.5)
    return control


def read_to_the_end(consumer: Consumer) -> None:
    """Poll until the position is at the end of the partition."""
    end = time.monotonic() + LIMIT_S
    tp = TopicPartition(TOPIC, 0)
    while consumer.position(tp) < consumer.end_offsets([tp])[tp]:
        assert time.monotonic() < end
        consumer.poll(0.1)


def metric(consumer: Consumer, name: str) -> float:
    """Returns the value of a metric of the fast path."""
    return {found.name: value for found, value in consumer.metrics().items() if found.group == "kconsumer-metrics"}[
        name
    ]


def arm(control: FastPathControl, consumer: Consumer) -> None:
    """Poll until the fast path is armed."""
    end = time.monotonic() + LIMIT_S
    while not control.path.armed:
        assert time.monotonic() < end
        consumer.poll(0.01)


def test_which_path_is_in_use_is_visible(cluster: FakeCluster, consumer: Consumer) -> None:
    """While the fast path is armed, the repr says so. Metrics and the report count the responses that it has processed,
    and those that it has handed over, with the reason of the last one.
    """
    control = read_on_fast_path(cluster, consumer)
    arm(control, consumer)
    assert repr(consumer).endswith("1 partition: 1 in flight; fast path armed>")
    assert repr(consumer).endswith("; fast path not armed>"), "the first repr has settled it"
    processed = control.path.responses
    assert processed == metric(consumer, "fast-path-response-total")
    end = time.monotonic() + LIMIT_S
    while not control.path.handed_over:
        assert time.monotonic() < end
        arm(control, consumer)
        cluster.produce(TOPIC, [b"v"] * 3)
        consumer.poll(0.5, max_records=1)
    assert control.path.handed_over == metric(consumer, "fast-path-handover-total") == 1
    counts = f"{control.path.responses} responses processed, 1 handed over"
    reason = "(last: the response has more records than a poll may return, or corrupt ones)"
    assert f"fast path: not armed, {counts} {reason}" in full_report(consumer).splitlines()


def test_a_busy_network_thread_does_not_keep_the_fast_path_from_use(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that could not arm the fast path, because the network thread was busy, arms it when that thread waits.

    Nothing else ends the wait of the poll: there are no records, and brokers wait for longer than the test.
    """
    original = ThreadedDriver._poll_managers

    def slow(driver: ThreadedDriver, now: float) -> float:
        time.sleep(0.1)
        return original(driver, now)

    monkeypatch.setattr(ThreadedDriver, "_poll_managers", slow)
    waits: list[Wait] = []
    begin = ThreadedDriver._begin_wait

    def noted(driver: ThreadedDriver, wait: Wait, *rest: Any) -> float:
        waits.append(wait)
        return begin(driver, wait, *rest)

    monkeypatch.setattr(ThreadedDriver, "_begin_wait", noted)
    wait_ms = int(4 * LIMIT_S * 1000)
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        engine="threaded",
        fetch_max_wait_ms=wait_ms,
        request_timeout_ms=2 * wait_ms,
        enable_metrics_push=False,
    ) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        cluster.produce(TOPIC, [b"v"])
        assert [b"v"] == [record.value for record in consumer.poll(LIMIT_S)]
        control = consumer._engine._fast_path
        assert control is not None
        waits.clear()

        def poll() -> None:
            with pytest.raises(WakeupError):
                consumer.poll(2 * LIMIT_S)

        polling = threading.Thread(target=poll)
        polling.start()
        end = time.monotonic() + LIMIT_S
        while not control.path.armed and time.monotonic() < end:
            time.sleep(0.001)
        armed, count = control.path.armed, len(waits)
        consumer.wakeup()
        polling.join(LIMIT_S)
        consumer.close(0)  # the broker would end the fetch session after the fetch in flight
    assert armed
    assert count < 6, "the poll has waited for the network thread, and has not tried again and again"


@pytest.mark.parametrize("engine", ENGINES)
def test_polls_that_do_not_wait(cluster: FakeCluster, engine: str) -> None:
    """A consumer that only calls poll(0) uses the fast path, and returns each record once, in order. While nothing
    arrives, no managers are polled.
    """
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
    with Consumer(TOPIC, **options, **ENGINES[engine]) as consumer:
        seen: list[int] = []
        end = time.monotonic() + LIMIT_S
        for number in range(50):
            cluster.produce(TOPIC, [b"v"])
            while len(seen) <= number:
                assert time.monotonic() < end
                seen += [record.offset for record in consumer.poll(0)]
            polls = 0
            while not consumer._engine.nothing_arrived(consumer._guard):
                polls += 1
                assert not consumer.poll(0)
                assert time.monotonic() < end, consumer
        assert seen == list(range(50))
        assert metric(consumer, "fast-path-response-total") > 0


def test_polls_that_do_not_wait_check_their_arguments(cluster: FakeCluster, consumer: Consumer) -> None:
    """While the fast path is armed, poll(0) raises the errors of `poll`."""
    control = read_on_fast_path(cluster, consumer)
    arm(control, consumer)
    assert not consumer.poll(0, max_records=1)
    with pytest.raises(ValueError, match="max_records must be at least 1"):
        consumer.poll(0, max_records=0)
    with pytest.raises(TypeError, match="write poll"):
        consumer.poll(0, **cast("Any", {"timeout_ms": 1}))
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(0)
    arm(control, consumer)
    consumer.close()
    with pytest.raises(StateError, match="closed"):
        consumer.poll(0)


def test_a_poll_that_does_not_wait_returns_what_a_loop_has_not_reached(
    cluster: FakeCluster, consumer: Consumer
) -> None:
    """If a loop has stopped in the middle of a batch, poll(0) returns the rest of the batch."""
    control = read_on_fast_path(cluster, consumer)
    arm(control, consumer)
    cluster.produce(TOPIC, [b"1", b"2"])
    first = next(record for record in consumer if record.value == b"1")
    found: list[int] = []
    end = time.monotonic() + LIMIT_S
    while not found:
        assert time.monotonic() < end
        found += [record.offset for record in consumer.poll(0)]
    assert found == [first.offset + 1]


def test_a_forked_child_cannot_poll(cluster: FakeCluster, consumer: Consumer) -> None:
    """In a forked child, poll(0) raises ForkedConsumerError, although the fast path was armed in the parent."""
    arm(read_on_fast_path(cluster, consumer), consumer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the consumer has threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            consumer.poll(0)
        except ForkedConsumerError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not consumer.poll(0)


class WatchedLock:
    """A reentrant lock. `wanted` is set when a thread has to wait for it."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.wanted.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_socket_is_not_closed_while_it_is_leased(
    cluster: FakeCluster, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that closes the connection while the fast path is being armed causes no error: the network thread closes
    the socket later.
    """
    read_on_fast_path(cluster, consumer)
    consumer.position(TopicPartition(TOPIC, 0))  # settles the fast path
    lock = WatchedLock()
    original, waited, loop = FastPathControl._connection, [], consumer._engine.components.client.loop

    def slow(control: FastPathControl, node: Any, flight: Any) -> Any:
        if not waited:
            cluster.kill(1)
            assert lock.wanted.wait(LIMIT_S)  # the network thread would close the socket next
            waited.append(loop.selecting)
        return original(control, node, flight)

    monkeypatch.setattr(loop, "lease_lock", lock)
    monkeypatch.setattr(FastPathControl, "_connection", slow)
    end = time.monotonic() + LIMIT_S
    while not waited:
        assert time.monotonic() < end
        consumer.poll(0.1)
    assert waited == [True]
    assert not consumer.poll(0.1)
    cluster.start(1)
    cluster.produce(TOPIC, [b"last"])
    read_to_the_end(consumer)


def test_without_descriptors_the_general_path_is_used(
    cluster: FakeCluster, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the system has no descriptor for the selector of the fast path, polls return records without it. Once there is
    one again, the fast path is used.
    """
    loop, refused = consumer._engine.components.client.loop, []

    def refuse() -> None:
        refused.append(True)
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_selector", refuse)
        end = time.monotonic() + LIMIT_S
        while len(refused) < 2:
            assert time.monotonic() < end
            cluster.produce(TOPIC, [b"v"])
            consumer.poll(0.5)
    read_on_fast_path(cluster, consumer)
    read_to_the_end(consumer)
