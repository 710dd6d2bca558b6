"""The command, the examples and the demo as users start them: processes against a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}
# A program imports the modules of its folder. With PYTHONSAFEPATH, which tox sets, it would not find them.
PROGRAM_ENVIRONMENT = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONSAFEPATH"}

pytestmark = pytest.mark.broker


def kconsumer(*arguments: str) -> tuple[int, str, str]:
    """Run the command. Returns its exit code, stdout and stderr."""
    command = [sys.executable, "-m", "kconsumer", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT)
    return done.returncode, done.stdout, done.stderr


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and end it when the block ends."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic of two partitions with three records each, with keys and timestamps."""
    kafka.create_topic(topic_name, partitions=2)
    for partition in range(2):
        values = [f"{partition}-{number}".encode() for number in range(3)]
        dates = [1_700_000_000_000 + number * 1000 for number in range(3)]
        kafka.produce(topic_name, values, partition=partition, keys=[b"k"] * 3, timestamps=dates)
    return topic_name


def test_reads_a_topic(kafka: Kafka, topic: str) -> None:
    """The command prints every record in each format, from the start, an offset or a time."""
    base = ["consume", topic, "-b", kafka.bootstrap_servers, "--exit-at-end"]
    assert (0, "0-0\n0-1\n0-2\n1-0\n1-1\n1-2\n", "") == _sorted(kconsumer(*base))
    assert (0, "0/2\n1/2\n", "") == _sorted(kconsumer(*base, "--from", "2", "-f", r"%p/%o\n"))
    assert (0, "0/1\n0/2\n1/1\n1/2\n", "") == _sorted(kconsumer(*base, "--from", "@1700000001000", "-f", r"%p/%o\n"))
    code, out, err = kconsumer(*base, "-f", "json", "-n", "1")
    assert (0, "", "k", 1_700_000_000_000) == (code, err, json.loads(out)["key"], json.loads(out)["timestamp"])


def _sorted(result: tuple[int, str, str]) -> tuple[int, str, str]:
    code, out, err = result
    return code, "".join(sorted(out.splitlines(keepends=True))), err


def test_a_group_continues_where_it_stopped(kafka: Kafka, topic: str) -> None:
    """A run with -n commits only the records that it printed. The next run prints the remaining ones, and the one after
    it none.
    """
    base = ["consume", topic, "-b", kafka.bootstrap_servers, "-g", topic, "--from", "earliest"]
    first = kconsumer(*base, "-n", "4")[1].split()
    rest = kconsumer(*base, "--exit-at-end")[1].split()
    assert (4, 2) == (len(first), len(rest))
    assert 6 == len({*first, *rest})
    assert (0, "", "") == kconsumer(*base, "--exit-at-end")


def test_ctrl_c(kafka: Kafka, topic: str) -> None:
    """SIGINT ends a command that waits for records with exit code 130 and nothing on stderr."""
    command = ["-m", "kconsumer", "consume", topic, "-b", kafka.bootstrap_servers, "--from", "earliest"]
    with running(*command) as process:
        assert process.stdout is not None
        for _ in range(6):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert ("", "") == process.communicate(timeout=20)
        assert 130 == process.returncode


@pytest.mark.parametrize("example", ["quickstart.py", "manual_commit.py", "rebalance_listener.py", "parallel.py"])
def test_examples(kafka: Kafka, topic_name: str, example: str) -> None:
    """Each example reads and commits the existing records, and ends on Ctrl-C without output."""
    kafka.create_topic(topic_name, partitions=2)
    for partition in range(2):
        kafka.produce(topic_name, [b'{"n": 1}', b"no json"], partition=partition)
    arguments = [str(ROOT / "examples" / example), kafka.bootstrap_servers, topic_name, topic_name]
    with running(*arguments) as process:
        done = {0: 2, 1: 2}
        wait_until(lambda: kafka.committed(topic_name, topic_name) == done or process.poll(), 30, "the commit")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (0, False) == (process.returncode, "Traceback" in err), err
    assert done == kafka.committed(topic_name, topic_name)


def test_the_first_block_of_the_readme(kafka: Kafka, topic_name: str) -> None:
    """The first program of README prints an existing record; only names are replaced."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"hello"])
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    for shown, real in (("localhost:9092", kafka.bootstrap_servers), ("orders", topic_name), ("billing", topic_name)):
        assert f'"{shown}"' in block
        block = block.replace(f'"{shown}"', f'"{real}"')
    with running("-u", "-c", block) as process:
        assert process.stdout is not None
        assert "0 0 None b'hello'\n" == process.stdout.readline()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_without_arguments(example: Path) -> None:
    """An example that is started without arguments prints which arguments it takes."""
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert (1, "") == (done.returncode, done.stdout)
    assert re.fullmatch(rf"usage: {re.escape(example.name)} HOST:PORT GROUP [^\n]+\n", done.stderr)


def test_demo_on_a_topic_of_ones_own(kafka: Kafka, topic: str) -> None:
    """The demo reads a given topic to its end with members that join and leave, and writes no records."""
    before = kafka.end_offsets(topic)
    command = [sys.executable, str(ROOT / "examples" / "demo" / "run.py"), "--plain", "--timeout", "60"]
    command += ["--bootstrap", kafka.bootstrap_servers, "--topic", topic]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110, env=PROGRAM_ENVIRONMENT)
    assert (0, "") == (done.returncode, done.stderr)
    assert "6 records read, up to the end of every partition" in done.stdout
    assert "member-2 has left" in done.stdout
    assert before == kafka.end_offsets(topic)


@pytest.mark.parametrize("cluster", ["Apache Kafka", "kconsumer's FakeCluster"])
def test_demo(cluster: str, tmp_path: Path) -> None:
    """The demo reads every record from a cluster that it starts, which is FakeCluster if there is no Java."""
    environment = PROGRAM_ENVIRONMENT if cluster == "Apache Kafka" else {**PROGRAM_ENVIRONMENT, "PATH": str(tmp_path)}
    command = [sys.executable, str(ROOT / "examples" / "demo" / "run.py"), "--plain", "--records", "50000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110, env=environment)
    assert (0, "") == (done.returncode, done.stderr)
    assert cluster in done.stdout.splitlines()[0]
    assert done.stdout.endswith("every record was seen\n")
