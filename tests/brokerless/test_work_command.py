"""`kconsumer work` as a process with a FakeCluster: signals, exit codes, and what is committed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kconsumer import TopicPartition, groups
from kconsumer.cli.work import STOPPING
from kconsumer.testing import FakeCluster
from support.harnesses.parallel_runs import until

DEADLINE_S = 60
RECORDS, PARTITIONS = 300, 3
MODULE = """
import asyncio, os, time

JOURNAL = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
SIZES = os.open("sizes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
NOT_CALLABLE = 1

def note(record):
    os.write(JOURNAL, f"{record.partition} {record.offset}\\n".encode())

def handle(record):
    time.sleep(0.005)
    note(record)

async def handle_async(record):
    await asyncio.sleep(0.005)
    note(record)

def hang(record):
    note(record)
    time.sleep(1000)

def fail(record):
    raise ValueError("no such customer")

class Refused(Exception):
    pass

def fail_as_refused(record):
    raise Refused if record.offset % 2 else ConnectionError

def handle_batch(records):
    os.write(JOURNAL, "".join(f"{record.partition} {record.offset}\\n" for record in records).encode())
    os.write(SIZES, f"{len(records)}\\n".encode())

def bury(record, error):
    note(record)
"""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with records in some partitions."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders", PARTITIONS)
        for partition in range(PARTITIONS):
            values = [f"{n}" for n in range(RECORDS // PARTITIONS)]
            cluster.produce("orders", values, partition=partition)
        yield cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory in which the command runs. It has the module of the handlers."""
    (tmp_path / "shop.py").write_text(MODULE)
    (tmp_path / "journal").touch()
    return tmp_path


@contextmanager
def working(cluster: FakeCluster, folder: Path, handler: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command meanwhile. Its log is in the file `log`."""
    command = [sys.executable, "-m", "kconsumer", "work", handler, "--topic", "orders", "-g", "g", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, "-b", cluster.bootstrap_servers], cwd=folder, env=environment, stderr=log
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def processed(folder: Path) -> list[str]:
    """Returns a line for each call of a handler."""
    return (folder / "journal").read_text().splitlines()


@pytest.mark.parametrize(
    ("handler", "arguments"),
    [
        ("shop:handle", ["--order", "key"]),
        ("shop:handle", ["--executor", "processes", "--order", "none", "--workers", "2"]),
        ("shop:handle_async", ["--workers", "4"]),
    ],
)
def test_a_clean_stop_repeats_nothing(cluster: FakeCluster, folder: Path, handler: str, arguments: list[str]) -> None:
    """SIGTERM and SIGINT end the command with 0 when what runs is committed. Another one continues behind it."""
    ready = folder / "ready"
    for number, enough in ((signal.SIGTERM, 50), (signal.SIGINT, RECORDS)):
        with working(cluster, folder, handler, "--ready-file", "ready", *arguments) as process:
            until(lambda enough=enough: len(processed(folder)) >= enough, DEADLINE_S)
            assert ready.exists()
            process.send_signal(number)
            assert 0 == process.wait(DEADLINE_S), (folder / "log").read_text()
        assert not ready.exists()
    expected = [f"{p} {n}" for p in range(PARTITIONS) for n in range(RECORDS // PARTITIONS)]
    assert sorted(expected) == sorted(processed(folder))
    committed = {TopicPartition("orders", p): RECORDS // PARTITIONS for p in range(PARTITIONS)}
    assert committed == {tp: found.offset for tp, found in cluster.committed("g").items()}


def test_batches(cluster: FakeCluster, folder: Path) -> None:
    """With --batch, the handler gets lists of up to that length."""
    with working(
        cluster, folder, "shop:handle_batch", "--batch", "40", "--batch-wait", "0.2", "--order", "key"
    ) as process:
        until(lambda: len(processed(folder)) == RECORDS, DEADLINE_S)
        process.terminate()
        assert 0 == process.wait(DEADLINE_S), (folder / "log").read_text()
    sizes = [int(size) for size in (folder / "sizes").read_text().split()]
    assert (RECORDS, 40) == (sum(sizes), max(sizes))
    assert RECORDS == sum(found.offset for found in cluster.committed("g").values())


@pytest.mark.parametrize("handler", ["shop:handle", "shop:handle_async"])
def test_a_share_group(cluster: FakeCluster, folder: Path, handler: str) -> None:
    """With --share, members of a share group process each record once, and acknowledge it."""
    cluster.configure_group("g", share_auto_offset_reset="earliest")
    ready = folder / "ready"
    with working(cluster, folder, handler, "--share", "--ready-file", "ready") as process:
        until(lambda: len(processed(folder)) >= 50 and ready.exists(), DEADLINE_S)
        process.terminate()
        assert 0 == process.wait(DEADLINE_S), (folder / "log").read_text()
    assert not ready.exists()
    with working(cluster, folder, handler, "--share") as process:
        until(lambda: len(processed(folder)) == RECORDS, DEADLINE_S)
        process.terminate()
        assert 0 == process.wait(DEADLINE_S)
    assert RECORDS == len(set(processed(folder)))
    servers = cluster.bootstrap_servers
    assert {0} == {offset.lag for offset in groups.offsets("g", bootstrap_servers=servers).values()}


@pytest.mark.parametrize(
    ("arguments", "retries"),
    [
        (["--retry", "0,0.01"], 2 * RECORDS),
        (["--retry", "0,0.01", "--retry-never", "shop:Refused"], RECORDS),
        (["--attempts", "2", "--backoff", "0", "--retry-on", "OSError"], RECORDS // 2),
    ],
)
def test_retries(cluster: FakeCluster, folder: Path, arguments: list[str], retries: int) -> None:
    """--retry has a delay for each further attempt; --retry-on and --retry-never choose the errors."""
    with working(cluster, folder, "shop:fail_as_refused", "--on-failure", "shop:bury", *arguments) as process:
        until(lambda: len(processed(folder)) == RECORDS, DEADLINE_S)
        process.terminate()
        assert 0 == process.wait(DEADLINE_S)
    assert f"failed {RECORDS}, retries {retries}," in (folder / "log").read_text()


def test_probes(cluster: FakeCluster, folder: Path) -> None:
    """With --health-port, the command responds to probes at the port that the log names."""
    with working(cluster, folder, "shop:hang", "--health-port", "0", "--drain-timeout", "60") as process:
        until(lambda: "/live and /ready" in (folder / "log").read_text(), DEADLINE_S)
        found = re.search(r"http://0\.0\.0\.0:(\d+)/live and /ready", (folder / "log").read_text())
        assert found is not None
        url = f"http://127.0.0.1:{found[1]}"
        until(lambda: probe(f"{url}/ready") == (200, []), DEADLINE_S)
        until(lambda: len(processed(folder)) == PARTITIONS, DEADLINE_S)
        process.send_signal(signal.SIGTERM)
        until(lambda: probe(f"{url}/ready")[1][:1] == ["the run ends: stop"], DEADLINE_S)
        assert (200, []) == probe(f"{url}/live")


def probe(url: str) -> tuple[int, list[str]]:
    """Returns the status of a response, and the reasons in it."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
            return response.status, json.load(response)["reasons"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["reasons"]


@pytest.mark.parametrize(("signals", "code"), [([signal.SIGTERM] * 2, 143), ([signal.SIGTERM], 4)])
def test_handlers_that_do_not_return(
    cluster: FakeCluster, folder: Path, signals: list[signal.Signals], code: int
) -> None:
    """A second signal ends the command at once; without it, the exit code says that handlers were abandoned."""
    drain = "1000" if len(signals) > 1 else "0.1"
    with working(cluster, folder, "shop:hang", "--drain-timeout", drain) as process:
        until(lambda: len(processed(folder)) == PARTITIONS, DEADLINE_S)
        for number in signals:
            process.send_signal(number)
            until(lambda: STOPPING in (folder / "log").read_bytes(), DEADLINE_S)
        assert code == process.wait(DEADLINE_S)
    assert [] == [found for found in cluster.committed("g").values() if found.offset]


def test_a_handler_that_fails(cluster: FakeCluster, folder: Path) -> None:
    """Its error ends the command with 1 and a traceback; with a function for `--on-failure`, the command continues."""
    with working(cluster, folder, "shop:fail", "--attempts", "1") as process:
        assert 1 == process.wait(DEADLINE_S)
    assert "ValueError: no such customer" in (folder / "log").read_text()
    with working(
        cluster, folder, "shop:fail", "--attempts", "2", "--backoff", "0", "--on-failure", "shop:bury"
    ) as other:
        until(lambda: len(processed(folder)) == RECORDS, DEADLINE_S)
        other.terminate()
        assert 0 == other.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("handler", "arguments", "message"),
    [
        ("shop", [], "'shop' is not of the form MODULE:NAME"),
        ("shops:handle", [], "no module shops is in"),
        ("shop:handel", [], "module 'shop' has no attribute 'handel'"),
        ("shop:NOT_CALLABLE", [], "is not a function"),
        ("shop:handle", ["--on-failure", "shop:nothing"], "has no attribute 'nothing'"),
        ("shop:handle", ["--workers", "0"], "workers must be an integer of at least 1"),
        ("shop:handle_async", ["--executor", "threads"], "coroutine function"),
        ("shop:handle", ["--health-port", "99999"], "--health-port 99999: "),
        ("shop:handle", ["--health-host", "::1"], "--health-host needs --health-port"),
        ("shop:handle", ["-X", "enable.auto.commit=true"], "another argument sets this option already"),
        ("shop:handle", ["--share", "--order", "key"], "the records of a share group have no order"),
        ("shop:handle", ["--share", "--from", "latest"], "--from has no meaning for a share group"),
        ("shop:handle", ["--batch", "0"], "max_records must be an integer of at least 1"),
        ("shop:handle", ["--batch-wait", "1"], "--batch-wait needs --batch"),
        ("shop:handle", ["--retry", "1", "--attempts", "2"], "leave out --attempts and --backoff"),
        ("shop:handle", ["--retry-on", "shop:bury"], "shop:bury is not a class of errors"),
    ],
)
def test_wrong_arguments(cluster: FakeCluster, folder: Path, handler: str, arguments: list[str], message: str) -> None:
    """The command ends with 2, and one line that names the mistake."""
    with working(cluster, folder, handler, *arguments) as process:
        assert 2 == process.wait(DEADLINE_S)
    [line] = (folder / "log").read_text().splitlines()
    assert message in line
