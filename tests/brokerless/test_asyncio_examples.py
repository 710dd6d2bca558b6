"""The programs of examples/asyncio on a FakeCluster, in the event loops of asyncio, uvloop and anyio."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp import web

from kconsumer import ConsumerRecord
from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster
from support.harnesses.event_loops import EVENT_LOOPS, Run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "asyncio"
PARTITIONS, RECORDS = 3, 120
ALL = [(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)]
ALL_COMMITTED = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.fixture(params=EVENT_LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Returns a function that runs a coroutine in an event loop. Restores the signal handlers."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield EVENT_LOOPS[request.param]
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of 3 partitions, each with 40 records. Their values are their partitions and offsets."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS)
        for partition, offset in ALL:
            cluster.produce("orders", json.dumps([partition, offset]), partition=partition, key="ann")
        yield cluster


def example(name: str) -> ModuleType:
    """Returns a module of examples/asyncio."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(cluster: FakeCluster, group: str) -> dict[int, int]:
    """Returns the committed offsets of a group by partition."""
    return {tp.partition: position.offset for tp, position in cluster.committed(group).items()}


# --- the worker ----------------------------------------------------------------------------------------------------


class Work:
    """Stands for the work of a record. Notes what was processed, and how many records were processed at a time."""

    def __init__(self, count: int = RECORDS) -> None:
        self.done: list[tuple[int, int]] = []
        self.running = self.most = 0
        self._count = count

    async def __call__(self, record: ConsumerRecord) -> None:
        """Process a record: those with an even offset take longer. After the last record, end the program."""
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.005 if record.offset % 2 else 0.02)
        self.running -= 1
        self.done.append((record.partition, record.offset))
        if len(self.done) == self._count:
            signal.raise_signal(signal.SIGTERM)


def test_the_worker_processes_concurrently(run: Run, cluster: FakeCluster) -> None:
    """Ten records at a time are processed, each once. After SIGTERM, all are committed and the group is empty."""
    worker = example("concurrent_worker")
    worker.process = work = Work()
    run(worker.main(cluster.bootstrap_servers, "workers", "orders"))
    assert ALL == sorted(work.done)
    assert sorted(work.done) != work.done
    assert 10 == work.most
    assert ALL_COMMITTED == committed(cluster, "workers")
    assert () == cluster.group("workers").members


def test_the_worker_commits_the_lowest_unfinished_offset(run: Run, cluster: FakeCluster) -> None:
    """While a record is processed, later ones are finished, but not committed. If it fails, it is read again."""
    worker = example("concurrent_worker")
    seen: list[dict[int, int]] = []

    async def process(record: ConsumerRecord) -> None:
        if (record.partition, record.offset) == (1, 5):
            async with asyncio.timeout(20):
                while committed(cluster, "workers").get(0) != 40 or committed(cluster, "workers").get(2) != 40:
                    await asyncio.sleep(0.01)
            seen.append(committed(cluster, "workers"))
            raise ValueError("poison")

    worker.process = process
    with pytest.raises(ExceptionGroup, match="unhandled errors") as caught:
        run(worker.main(cluster.bootstrap_servers, "workers", "orders"))
    assert ["poison"] == [str(error) for error in caught.value.exceptions]
    assert [{0: 40, 1: 5, 2: 40}] == seen
    assert {0: 40, 1: 5, 2: 40} == committed(cluster, "workers")


def test_workers_hand_over_partitions(run: Run, cluster: FakeCluster) -> None:
    """A second worker joins. What the first is processing is finished before, so no record is processed twice."""
    worker = example("concurrent_worker")
    options = {"group_id": "workers", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    members: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}
    consumers: list[AsyncConsumer] = []

    async def work(name: str, started: asyncio.Event) -> None:
        async def process(record: ConsumerRecord) -> None:
            await asyncio.sleep(0.05)
            members[name].append((record.partition, record.offset))
            started.set()
            if sum(map(len, members.values())) == RECORDS:
                for consumer in consumers:
                    consumer.wakeup()

        async with AsyncConsumer(
            bootstrap_servers=cluster.bootstrap_servers, heartbeat_interval_ms=20, **options
        ) as consumer:
            consumers.append(consumer)
            await worker.Worker(consumer, process).run(["orders"])

    async def main() -> None:
        started = asyncio.Event()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(work("first", started))
            await started.wait()
            tasks.create_task(work("second", asyncio.Event()))

    run(main())
    assert sorted(members["first"] + members["second"]) == ALL
    assert all(members.values())
    assert ALL_COMMITTED == committed(cluster, "workers")


# --- the forwarder -------------------------------------------------------------------------------------------------


class Server:
    """An HTTP server that fails at first, and lets requests wait until the forwarder has paused a partition."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, int]] = []  # partition and offset
        self.failures = 0
        self.open = asyncio.Event()
        self.finished = asyncio.Event()
        self.url = ""

    async def post(self, request: web.Request) -> web.Response:
        """Refuse the first two requests. Accept the others while the server is open."""
        partition, offset = await request.json()
        if self.failures < 2:
            self.failures += 1
            raise web.HTTPServiceUnavailable
        await self.open.wait()
        self.accepted.append((partition, offset))
        if len(self.accepted) >= RECORDS:
            self.finished.set()
        return web.Response()

    async def start(self) -> web.AppRunner:
        """Start the server at a free port."""
        application = web.Application()
        application.router.add_post("/", self.post)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        return runner


def test_the_forwarder_pauses_partitions(
    run: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slow server makes the forwarder pause its partitions. Each record is posted in order, and then committed."""
    forwarder = example("http_forwarder")
    forwarder.FULL, forwarder.LOW, forwarder.RETRY_S = 30, 5, 0.01
    paused: list[int] = []
    resumed: list[int] = []
    pause, resume = AsyncConsumer.pause, AsyncConsumer.resume
    monkeypatch.setattr(AsyncConsumer, "pause", lambda self, tp: (paused.append(tp.partition), pause(self, tp)))
    monkeypatch.setattr(AsyncConsumer, "resume", lambda self, tp: (resumed.append(tp.partition), resume(self, tp)))

    async def main() -> None:
        server = Server()
        runner = await server.start()
        try:
            task = asyncio.create_task(forwarder.main(cluster.bootstrap_servers, "forwarders", "orders", server.url))
            async with asyncio.timeout(30):
                while len(paused) < PARTITIONS:
                    await asyncio.sleep(0.01)
                assert {} == committed(cluster, "forwarders")
                server.open.set()
                await server.finished.wait()
                while set(committed(cluster, "forwarders").values()) != {RECORDS // PARTITIONS}:
                    await asyncio.sleep(0.01)
                signal.raise_signal(signal.SIGTERM)
                await task
        finally:
            await runner.cleanup()
        accepted.extend(server.accepted)

    accepted: list[tuple[int, int]] = []
    run(main())
    assert ALL == sorted(accepted, key=lambda record: record[0])  # stable: within a partition in their order
    assert [0, 1, 2] == sorted(paused) == sorted(resumed)
    assert ALL_COMMITTED == committed(cluster, "forwarders")
    assert 2 == capsys.readouterr().err.count("503")


# --- the web application -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_web_application_reads_while_it_serves(loop: str, cluster: FakeCluster) -> None:
    """Requests show what was read. After SIGTERM, uvicorn ends, positions are committed, and the group is empty."""
    command = [Path(sysconfig.get_path("scripts"), "uvicorn"), "--app-dir", EXAMPLES, "--port", "0", "--loop", loop]
    environment = {
        **os.environ,
        "KAFKA": cluster.bootstrap_servers,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with subprocess.Popen(
        [*command, "web_application:app"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            url = next(found[1] for line in process.stderr if (found := re.search(r"running on (http://\S+)", line)))
            until = time.monotonic() + 20
            while (orders := get(f"{url}/orders")) != {"ann": RECORDS} and time.monotonic() < until:
                time.sleep(0.05)
            assert {"ann": RECORDS} == orders
            assert {f"orders-{partition}": 0 for partition in range(PARTITIONS)} == get(f"{url}/health")
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert "Traceback" not in errors, errors
    assert "Application shutdown complete" in errors
    assert ALL_COMMITTED == committed(cluster, "web")
    assert () == cluster.group("web").members


def get(url: str) -> object:
    """Returns the JSON of a response."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


# --- the tests -----------------------------------------------------------------------------------------------------


def test_the_tests_pass(tmp_path: Path) -> None:
    """The example passes as the page says, with pytest-asyncio. Warnings are errors."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = "function"\n'
    )
    pytest = Path(sysconfig.get_path("scripts"), "pytest")
    options = ["-q", "-ppytest_kconsumer", "-pno:cacheprovider", "--strict-markers", "-Werror"]
    command = [pytest, *options, "-c", tmp_path / "pyproject.toml", "--rootdir", tmp_path, EXAMPLES / "test_totals.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
