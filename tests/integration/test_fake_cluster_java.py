"""Kafka's own Java tools against FakeCluster: they produce, read as a group and in transactions, and list groups."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from kconsumer.testing import FakeCluster
from support.members.java_groups import GROUPS, TIMEOUT_S, ask, tool

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VALUES = [f"value {i}" for i in range(100)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        yield cluster


def run(main: str, cluster: FakeCluster, *arguments: str, text: str = "") -> list[str]:
    """Run a tool, which must succeed. Returns the lines that it prints."""
    command = tool(main, cluster.bootstrap_servers, *arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_group(cluster: FakeCluster) -> None:
    """The console producer writes records, and the console consumer reads them in a group and commits."""
    run(PRODUCER, cluster, "--topic", "t", text="\n".join(VALUES))
    count = str(len(VALUES))
    arguments = ["--topic", "t", "--group", "g", "--from-beginning", "--max-messages", count]
    assert sorted(VALUES) == sorted(run(CONSUMER, cluster, *arguments))
    assert len(VALUES) == sum(row.offset for row in cluster.committed("g").values())
    described = ask(GROUPS, cluster.bootstrap_servers, "--describe", "--group", "g")
    assert {"0"} == {row["LAG"] for row in described}


def test_transactions(cluster: FakeCluster) -> None:
    """The console consumer with read_committed reads the records of committed transactions."""
    with cluster.transaction() as transaction:
        transaction.produce("t", "aborted")
        transaction.abort()
    with cluster.transaction() as transaction:
        transaction.produce("t", VALUES)
    arguments = ["--topic", "t", "--from-beginning", "--max-messages", str(len(VALUES))]
    isolation = ["--isolation-level", "read_committed"]
    assert sorted(VALUES) == sorted(run(CONSUMER, cluster, *arguments, *isolation))
