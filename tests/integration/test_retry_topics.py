"""Retry topics of kconsumer.parallel: a member is killed at points of a hand-over, and no record is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.brokers.kafka import Kafka
from support.harnesses.polling import read_committed
from support.members import retry_member
from support.members.retry_member import DELAYS_S, always_fails

RECORDS, PARTITIONS, KEYS = 120, 2, 6
TIMEOUT_S = 90
OK = {number for number in range(RECORDS) if not always_fails(number)}
FAILING = set(range(RECORDS)) - OK
IN_TRANSACTIONS = tuple(
    f"{method}:1:{when}"
    for method in ("send_offsets_to_transaction", "commit_transaction")
    for when in ("before", "after")
)
#: client, whether its producer is transactional, the calls at which a process is killed
CASES = [
    pytest.param("confluent", False, ("produce:2:before", "produce:3:after"), id="confluent"),
    pytest.param("aiokafka", False, ("send:2:before", "send:3:after"), id="aiokafka"),
    pytest.param("confluent", True, ("produce:3:after", *IN_TRANSACTIONS), id="confluent-transactions"),
    pytest.param("aiokafka", True, ("send:3:after", *IN_TRANSACTIONS), id="aiokafka-transactions"),
]


@pytest.mark.parametrize(("client", "transactional", "kills"), CASES)
def test_a_killed_member_loses_no_record(
    kafka: Kafka, topic_name: str, tmp_path: Path, client: str, transactional: bool, kills: tuple[str, ...]
) -> None:
    """Each record is processed, or has gone through both delay topics and is dead; with transactions exactly once."""
    retry_topics = [f"{topic_name}-retry-{round(1000 * delay)}" for delay in DELAYS_S]
    dead, journal = f"{topic_name}-dead", tmp_path / "journal"
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    for topic in (*retry_topics, dead):
        kafka.create_topic(topic)
    for partition in range(PARTITIONS):
        chosen = range(partition, RECORDS, PARTITIONS)
        keys = [b"%d" % (n % KEYS) for n in chosen]
        kafka.produce(topic_name, [b"%d" % n for n in chosen], partition=partition, keys=keys)
    for kill in (*kills, ""):
        arguments = {
            "client": client,
            "bootstrap_servers": kafka.bootstrap_servers,
            "group_id": topic_name,
            "topic": topic_name,
            "dead": dead,
            "journal": str(journal),
            "transactional": transactional,
            "kill": kill,
        }
        command = [sys.executable, retry_member.__file__, json.dumps(arguments)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
        assert (-signal.SIGKILL if kill else 0) == done.returncode, done.stdout + done.stderr
    assert OK == {int(line) for line in journal.read_text().splitlines()}
    for topic in (*retry_topics, dead):
        found = Counter(int(record.value) for record in read_committed(kafka.bootstrap_servers, topic))
        assert set(found) == FAILING
        if transactional:
            assert {1} == set(found.values()), topic
