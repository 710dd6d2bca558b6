"""`buffer_memory` limits a consumer's memory: a process, whose memory is measured, reads a backlog slowly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.brokers.kafka import Kafka

ROOT = Path(__file__).parents[2]
READER = ROOT / "tests" / "support" / "oracles" / "memory_reader.py"

BUFFER_MEMORY = 8 << 20
ALLOWED_OVERHEAD = 40_000_000
RECORDS, VALUE_BYTES, PARTITIONS = 15_000, 10_000, 8


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_memory_of_a_backlog(kafka: Kafka, topic_name: str, codec: str) -> None:
    """A process that reads 150 MB, compressed by zstd to 1 MB, never uses more than `buffer_memory` plus 40 MB."""
    kafka.create_topic(topic_name, PARTITIONS)
    values = (b"%012d" % number + bytes(VALUE_BYTES - 12) for number in range(RECORDS))
    kafka.produce(topic_name, values, compression=codec, config={"batch.size": 1_000_000})
    command = [sys.executable, str(READER), kafka.bootstrap_servers, topic_name, str(BUFFER_MEMORY), "0.005"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=100)
    found = json.loads(done.stdout)
    assert RECORDS == found["records"]
    assert found["peak"] - found["idle"] < BUFFER_MEMORY + ALLOWED_OVERHEAD
    assert BUFFER_MEMORY // 4 < found["counted"] <= BUFFER_MEMORY + 1_000_000, "one batch more than all, at most"
