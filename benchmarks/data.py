"""The topics that comparisons read, and the Java producer that fills them.

Values are random letters A to Z without keys, six partitions, batches as the Java producer makes them by default
(16 KiB, 5 ms linger), so the batch layout is the one most clusters hold.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from support.kafka import Kafka, kafka_tools_jars
from support.kafka_jars import program

PARTITIONS = 6
QUICK_RECORDS = 200_000
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"


@dataclass(frozen=True)
class Corpus:
    """One topic: how many records of what size, compressed how."""

    name: str
    records: int
    value_bytes: int
    compression: str = "none"

    def quick(self) -> Corpus:
        """The same kind of topic at a size for a smoke run."""
        return Corpus(self.name, min(self.records, QUICK_RECORDS), self.value_bytes, self.compression)


CORPORA = (
    Corpus("100B", 5_000_000, 100),
    Corpus("100B-lz4", 5_000_000, 100, "lz4"),
    Corpus("1KB", 1_000_000, 1000),
)


def java_command(main: str, *arguments: str, heap: str = "1g") -> list[str]:
    """The command line of a class of Kafka's Java tools, or of a Java source file that uses the client."""
    class_path = os.pathsep.join(map(str, kafka_tools_jars()))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [program("java"), f"-Xmx{heap}", f"-Xms{heap}", quiet, "-cp", class_path, main, *arguments]


def load(kafka: Kafka, corpus: Corpus) -> str:
    """Create and fill the topic of a corpus and check its size; gives the topic's name."""
    topic = kafka.create_topic(f"bench-{corpus.name}", PARTITIONS)
    options = {
        "--bootstrap-server": kafka.bootstrap_servers,
        "--topic": topic,
        "--num-records": str(corpus.records),
        "--record-size": str(corpus.value_bytes),
        "--throughput": "-1",
        "--command-property": f"compression.type={corpus.compression}",
    }
    flat = [word for pair in options.items() for word in pair]
    subprocess.run(java_command(PRODUCER, *flat), check=True, stdout=subprocess.DEVNULL)
    found = sum(kafka.end_offsets(topic).values())
    if found != corpus.records:
        raise RuntimeError(f"{topic} has {found} records, not {corpus.records}")
    return topic
