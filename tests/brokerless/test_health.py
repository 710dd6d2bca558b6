"""`health()` of consumers and runs, and its probes: by HTTP and by a file, asked from other threads."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kconsumer import AsyncConsumer, Consumer, ShareConsumer, health
from kconsumer.aio import AsyncShareConsumer
from kconsumer.errors import KafkaError
from kconsumer.health import Health
from kconsumer.parallel import AsyncProcessor, CircuitBreaker, Processor, Retry, ShareProcessor
from kconsumer.testing import FakeCluster, MockConsumer
from support.harnesses.parallel_runs import until

SOON_S = 20.0  # long for a loaded machine
RECORDS = 3
EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest"}
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with records in one partition."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.configure_group("share", share_auto_offset_reset="earliest")
        cluster.produce("t", [b"x"] * RECORDS)
        yield cluster


def consumer_of(cluster: FakeCluster, kind: str = "classic", **options: Any) -> Any:
    """Returns a consumer of a kind, which reads from the beginning."""
    if kind == "share":
        return ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="share", **options)
    chosen = {"auto_offset_reset": "earliest", **ENGINES[kind], **options}
    return Consumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **chosen)


def poll_until(consumer: Any, reason: str = "", **limits: float) -> Health:
    """Poll until a reason contains this text, or until the consumer is healthy."""
    found: list[Health] = []

    def polled() -> bool:
        with suppress(KafkaError):  # the test knows why
            consumer.poll(0.1)
        found[:] = [consumer.health(**limits)]
        return any(reason in each for each in found[0].reasons) if reason else found[0].ok

    until(polled, SOON_S)
    return found[0]


def get(url: str) -> tuple[int, Any]:
    """Returns the status and the content of a response."""
    try:
        with urllib.request.urlopen(url, timeout=SOON_S) as response:
            assert "application/json" == response.headers["Content-Type"]
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error) if error.code == 503 else None


# --- reasons -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*ENGINES, "share"])
def test_a_consumer_that_reads(cluster: FakeCluster, kind: str) -> None:
    """A consumer is not healthy before its first poll, is when it reads, and is not when it is closed."""
    with consumer_of(cluster, kind) as consumer:
        before = consumer.health()
        assert (False, True, "poll() was not called yet") == (before.ok, before.live, before.reasons[0])
        assert Health(True, ()) == poll_until(consumer)
    assert Health(False, ("this consumer is closed; make a new one",)) == consumer.health()


def test_lag(cluster: FakeCluster) -> None:
    """A partition may have a lag up to the limit."""
    with consumer_of(cluster) as consumer:
        until(lambda: consumer.poll(0.1, max_records=1), SOON_S)
        behind = Health(False, ("t-0 has a lag of 2 records, more than 1",))
        assert [behind, Health(True, ()), Health(True, ())] == [consumer.health(limit) for limit in (1, 2, None)]


def test_paused_partitions(cluster: FakeCluster) -> None:
    """A consumer that the user has paused is healthy."""
    with consumer_of(cluster) as consumer:
        poll_until(consumer)
        consumer.pause(*consumer.assignment())
        consumer.poll(0.1)
        assert Health(True, ()) == consumer.health()


def test_nothing_to_read(cluster: FakeCluster) -> None:
    """A consumer without a subscription is not healthy. Partitions that the user assigns need no membership."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer:
        assert "not subscribed to topics, and no partitions are assigned" in consumer.health().reasons
        consumer.assign([("t", 0)])
        assert poll_until(consumer).ok


@pytest.mark.parametrize("kind", [*ENGINES, "share"])
def test_brokers_that_cannot_be_reached(cluster: FakeCluster, kind: str) -> None:
    """The reasons name the broker and the error. A restart of the process would not help."""
    with consumer_of(cluster, kind) as consumer:
        poll_until(consumer)
        cluster.kill(1)
        found = poll_until(consumer, "no broker is connected: ")
        assert (False, True) == (found.ok, found.live)
        consumer.close(0.0)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_fatal_error(cluster: FakeCluster, kind: str) -> None:
    """If an error has ended the membership for good, a restart helps."""
    api = "ShareGroupHeartbeat" if kind == "share" else "ConsumerGroupHeartbeat"
    cluster.fail_next(api, "INVALID_REQUEST")
    with consumer_of(cluster, kind) as consumer:
        found = poll_until(consumer, "an error has ended the membership in the group")
    assert not found.live


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_thread_that_has_ended(cluster: FakeCluster, kind: str) -> None:
    """If the thread that sends heartbeats has ended by an exception that no code expects, a restart helps."""
    with consumer_of(cluster, kind) as consumer:
        poll_until(consumer)
        [thread] = [each for each in threading.enumerate() if each.name.startswith(("kconsumer-h", "kconsumer-n"))]
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
        until(lambda: not consumer.health().live, SOON_S)
        assert "the thread that sends heartbeats has ended" in consumer.health().reasons


def test_a_mock_consumer() -> None:
    """A MockConsumer is healthy as a member that has polled."""
    with MockConsumer("t", group_id="g") as consumer:
        consumer.rebalance([("t", 0)])
        consumer.poll(0.0)
        assert Health(True, ()) == consumer.health()


# --- other threads -----------------------------------------------------------------------------------------------


@contextmanager
def asking(target: Any) -> Iterator[list[Health]]:
    """Ask for the health on two other threads meanwhile. The result has what they got."""
    ended, found = threading.Event(), [target.health()]
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            while not ended.is_set():
                found.append(target.health())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert [] == errors


@pytest.mark.parametrize("kind", [*ENGINES, "share"])
def test_a_consumer_that_other_threads_ask(cluster: FakeCluster, kind: str) -> None:
    """Threads that ask all the time disturb neither polls nor close(): each record is read once, in order."""
    expected, read = [b"x"] * RECORDS, []
    with consumer_of(cluster, kind) as consumer, asking(consumer) as found:
        for number in range(100):
            cluster.produce("t", [b"%d" % number])
            expected.append(b"%d" % number)
            read += [record.value for record in consumer.poll(0.01)]
        until(lambda: _extend(read, consumer.poll(0.1)) >= len(expected), SOON_S)
        consumer.close()
    assert expected == read
    assert {True, False} == {each.ok for each in found}


def _extend(read: list[Any], records: Any) -> int:
    read += [record.value for record in records]
    return len(read)


@pytest.mark.parametrize("share", [False, True], ids=["consumer", "share"])
def test_a_consumer_of_an_event_loop(cluster: FakeCluster, share: bool) -> None:
    """Any thread may ask a consumer that belongs to an event loop, also while the loop is blocked."""
    expected, read = [b"x"] * RECORDS, []
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "share"}

    async def main() -> None:
        consumer = AsyncShareConsumer("t", **options) if share else AsyncConsumer("t", **options, **EARLIEST)
        async with consumer:
            with asking(consumer) as found:
                for number in range(100):
                    cluster.produce("t", [b"%d" % number])
                    expected.append(b"%d" % number)
                    _extend(read, await consumer.poll(0.01))
                while _extend(read, await consumer.poll(0.1)) < len(expected):
                    pass
                asked = len(found)
                until(lambda: len(found) > asked + 2)  # blocks the event loop
                assert found[-1].ok
                await consumer.close()
        assert "this consumer is closed; make a new one" in consumer.health().reasons

    asyncio.run(asyncio.wait_for(main(), 3 * SOON_S))
    assert expected == read


# --- runs of kconsumer.parallel ----------------------------------------------------------------------------------


def test_a_run(cluster: FakeCluster) -> None:
    """A run is healthy while it is in progress, also while it is paused, and not before and after."""
    with consumer_of(cluster, enable_auto_commit=False) as consumer:
        processor = Processor(consumer, lambda record: None, on_failure="skip")
        assert "the run has not begun" == processor.health().reasons[0]
        thread = threading.Thread(target=processor.run)
        thread.start()
        try:
            until(lambda: processor.health().ok, SOON_S)
            processor.pause()
            assert processor.health().ok
        finally:
            processor.stop()
            thread.join()
        assert Health(False, ("the run has ended",)) == processor.health()


def test_a_circuit_breaker(cluster: FakeCluster) -> None:
    """A run whose circuit breaker is open is not healthy."""

    def fail(_record: Any) -> None:
        raise ValueError("no such customer")

    with consumer_of(cluster, enable_auto_commit=False) as consumer:
        breaker = CircuitBreaker(1, pause_s=1000.0)
        processor = Processor(consumer, fail, on_failure="skip", retry=Retry(1), circuit_breaker=breaker)
        thread = threading.Thread(target=processor.run)
        thread.start()
        try:
            reasons = ("the circuit breaker is open: handlers have failed too often",)
            until(lambda: reasons == processor.health().reasons, SOON_S)
            assert processor.health().live
        finally:
            processor.stop()
            thread.join()


def test_runs_of_other_kinds(cluster: FakeCluster) -> None:
    """A run of a share consumer and one in an event loop have the method, too."""
    with consumer_of(cluster, "share", share_acknowledgement_mode="explicit") as share:
        found = ShareProcessor(share, lambda record: None, order="none").health()
        assert ("the run has not begun", "poll() was not called yet") == found.reasons[:2]

    async def main() -> Health:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "enable_auto_commit": False}
        async with AsyncConsumer("t", **options, **EARLIEST) as consumer:

            async def handle(_record: Any) -> None:
                pass

            processor = AsyncProcessor(consumer, handle)
            run = asyncio.create_task(processor.run())
            while not (found := await asyncio.to_thread(processor.health)).ok:
                await asyncio.sleep(0.01)
            processor.stop()
            await run
            return found

    assert asyncio.run(asyncio.wait_for(main(), SOON_S)).ok


# --- probes ------------------------------------------------------------------------------------------------------


def test_a_server(cluster: FakeCluster) -> None:
    """A server responds with what `health` and `live` say, at a free port if the port is 0."""
    closed = {"ok": False, "reasons": ["this consumer is closed; make a new one"]}
    healthy = (200, {"ok": True, "reasons": []})
    with consumer_of(cluster) as consumer, health.serve(consumer, 0, max_lag=1) as server:
        assert f"http://127.0.0.1:{server.port}" == server.url
        found = get(f"{server.url}/ready")
        assert (503, list(consumer.health().reasons)) == (found[0], found[1]["reasons"])
        assert healthy == get(f"{server.url}/live")
        until(lambda: consumer.poll(0.1, max_records=1), SOON_S)
        late = {"ok": False, "reasons": ["t-0 has a lag of 2 records, more than 1"]}
        assert (503, late) == get(f"{server.url}/ready")
        with socket.create_connection((server.host, server.port)):  # a client that sends nothing
            poll_until(consumer, max_lag=0)
            assert [healthy] * 2 == [get(f"{server.url}/{path}") for path in ("ready", "live?verbose")]
        assert (404, None) == get(server.url)
        with pytest.raises(OSError, match="in use"):
            health.serve(consumer, server.port)
        consumer.close()
        assert [(503, closed), healthy] == [get(f"{server.url}/{path}") for path in ("ready", "live")]
    assert [] == probe_threads()
    with pytest.raises(urllib.error.URLError):
        get(f"{server.url}/live")


def test_a_file(cluster: FakeCluster, tmp_path: Path) -> None:
    """A file has what `health` says, is never incomplete, and says that the consumer is closed when it is."""
    path = tmp_path / "health"
    with consumer_of(cluster) as consumer:
        health.write(consumer, path, every_s=0.001)
        found = json.loads(path.read_text())
        assert (True, False, list(consumer.health().reasons)) == (found["live"], found["ready"], found["reasons"])
        poll_until(consumer)
        until(lambda: json.loads(path.read_text())["ready"], SOON_S)
    until(lambda: not probe_threads(), SOON_S)
    found = json.loads(path.read_text())
    assert (True, False, ["health"]) == (found["live"], found["ready"], [each.name for each in tmp_path.iterdir()])


def test_a_file_that_cannot_be_written(cluster: FakeCluster, tmp_path: Path) -> None:
    """A wrong path or interval raises at once, and starts no thread."""
    with consumer_of(cluster) as consumer:
        with pytest.raises(FileNotFoundError):
            health.write(consumer, tmp_path / "missing" / "health")
        with pytest.raises(ValueError, match="every_s must be positive"):
            health.write(consumer, tmp_path / "health", every_s=0)
        assert [] == probe_threads()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_consumer_that_is_dropped(cluster: FakeCluster, tmp_path: Path) -> None:
    """Probes keep no consumer alive, and end when it is collected."""
    consumer = consumer_of(cluster)
    health.serve(consumer, 0)
    health.write(consumer, tmp_path / "health", every_s=0.1)
    del consumer
    gc.collect()
    until(lambda: not probe_threads(), SOON_S)


def probe_threads() -> list[threading.Thread]:
    """Returns the threads of probes."""
    return [thread for thread in threading.enumerate() if thread.name == "kconsumer-health"]
