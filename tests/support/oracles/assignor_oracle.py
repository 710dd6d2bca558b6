"""Kafka's own assignors in a JVM that computes one case after another, for comparison with ours.

Compiles tests/support/java/AssignorOracle.java against the kafka-clients jar on first use and caches the class next to
the jars. The tests decide which results count as equal.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from kconsumer.assignors import ClusterView, Subscription
from kconsumer.types import TopicPartition
from support.brokers.kafka_jars import DEFAULT_VERSION, cache_root, kafka_jars, program

SOURCE = Path(__file__).parents[1] / "java" / "AssignorOracle.java"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


@dataclass
class JavaAssignment:
    """Java's result: the partitions by member and the time of each run (ns), or the error."""

    given: dict[str, list[TopicPartition]] = field(default_factory=dict)
    times_ns: list[int] = field(default_factory=list)
    failure: str | None = None


class AssignorOracle:
    """A running oracle; a context manager."""

    def __init__(self, version: str = DEFAULT_VERSION) -> None:
        jars = kafka_jars(version)
        classes = _compiled(jars, version)
        class_path = os.pathsep.join(map(str, [classes, *jars]))
        command = [program("java"), "-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", QUIET, "-cp", class_path]
        self._process = subprocess.Popen(
            [*command, "AssignorOracle"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def assign(
        self, name: str, cluster: ClusterView, subscriptions: Mapping[str, Subscription], runs: int = 1
    ) -> JavaAssignment:
        """Returns the result of Java's assignor for this input, after `runs` runs in a warm JVM."""
        self._send([*_topic_lines(cluster), *_member_lines(subscriptions), f"assign {name} {runs}"])
        result = JavaAssignment()
        while (line := self._line()) != "end":
            kind, *words = line.split(" ")
            if kind == "given":
                result.given[words[0]] = [_parsed(word) for word in words[1:]]
            elif kind == "ns":
                result.times_ns = [int(word) for word in words]
            else:
                result.failure = " ".join(words)
        return result

    def user_data(self, name: str, generation: int, partitions: Iterable[TopicPartition]) -> bytes:
        """Returns the bytes Java's assignor adds to a subscription after this assignment."""
        self._send([f"userdata {name} {generation}{_listing(partitions)}"])
        return bytes.fromhex(self._line().removeprefix("bytes").strip())

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, lines: list[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join(lines) + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the assignor oracle ended (exit code {self._process.wait()})")
        return line.rstrip("\n")


def _compiled(jars: list[Path], version: str) -> Path:
    """Returns the folder of the compiled class, named for what it was compiled from."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = cache_root() / f"oracle-{version}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        class_path = os.pathsep.join(map(str, jars))
        subprocess.run([program("javac"), "-cp", class_path, "-d", str(made), str(SOURCE)], check=True)
        try:
            made.rename(folder)
        except OSError:  # another worker was faster; its class is the same
            if not folder.is_dir():
                raise
    return folder


def _topic_lines(cluster: ClusterView) -> Iterable[str]:
    for topic in sorted(cluster.topics()):
        infos = cluster.partitions(topic)
        assert list(range(len(infos))) == [info.partition for info in infos], "Java numbers partitions from 0"
        racks = (",".join(node.rack for node in info.replicas if node.rack) or "-" for info in infos)
        yield f"topic {topic} {' '.join(racks)}"


def _member_lines(subscriptions: Mapping[str, Subscription]) -> Iterable[str]:
    for member, subscription in subscriptions.items():
        data = "-" if subscription.user_data is None else subscription.user_data.hex()
        instance, rack = subscription.group_instance_id or "-", subscription.rack_id or "-"
        yield f"member {member} {instance} {rack} {subscription.generation_id} {data}"
        yield " ".join(["topics", member, *subscription.topics])
        yield f"owns {member}{_listing(subscription.owned_partitions)}"


def _listing(partitions: Iterable[TopicPartition]) -> str:
    return "".join(f" {topic}:{partition}" for topic, partition in partitions)


def _parsed(word: str) -> TopicPartition:
    topic, _, partition = word.rpartition(":")
    return TopicPartition(topic, int(partition))
