"""Kafka's own command line tools for groups, and their tables as dictionaries."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from support.brokers.kafka_jars import kafka_tools_jars, program

TIMEOUT_S = 120
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"

Row = dict[str, str]


def tool(main: str, bootstrap_servers: str, *arguments: str) -> list[str]:
    """Returns the command line of one of Kafka's tools."""
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    class_path = os.pathsep.join(map(str, kafka_tools_jars()))
    return [program("java"), *options, "-cp", class_path, main, "--bootstrap-server", bootstrap_servers, *arguments]


def ask(main: str, bootstrap_servers: str, *arguments: str) -> list[Row]:
    """Returns the tool's output, one dictionary per line of its table."""
    return rows(print_of(main, bootstrap_servers, *arguments))


def print_of(main: str, bootstrap_servers: str, *arguments: str) -> str:
    """Returns the tool's output."""
    command = tool(main, bootstrap_servers, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout


def rows(text: str) -> list[Row]:
    """Returns a table as dictionaries. A cell starts in the column of its head; some tools omit empty cells."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and not lines[0].startswith("GROUP"):
        lines = lines[1:]  # "Consumer group 'x' has no active members."
    if not lines:
        return []
    heads = [(found.start(), found[0]) for found in re.finditer(r"\S+( \(ID\))?", lines[0])]
    ends = [start for start, _ in heads[1:]] + [None]
    return [
        {head: line[start:end].strip() for (start, head), end in zip(heads, ends, strict=True)} for line in lines[1:]
    ]


@contextmanager
def share_consumer(bootstrap_servers: str, group: str, topic: str) -> Iterator[None]:
    """A member of a share group, which takes and accepts everything, while the block runs."""
    command = tool(SHARE_CONSUMER, bootstrap_servers, "--topic", topic, "--group", group)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
