"""The topics of the comparisons, and the Java producer that fills them.

Values are random letters A to Z, without keys, in six partitions. Batches are those of the Java producer's defaults
(16 KiB, 5 ms linger), so the layout is that of most clusters.
"""

from __future__ import annotations

import compileall
import os
import random
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from support.brokers.kafka import Kafka, kafka_tools_jars
from support.brokers.kafka_jars import program

PARTITIONS = 6
# Members of the consumer protocol send heartbeats as often as with Kafka's default. Other test brokers request more.
DEFAULT_HEARTBEATS = {"group.consumer.heartbeat.interval.ms": "5000"}
QUICK_RECORDS = 200_000
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"


@dataclass(frozen=True)
class Corpus:
    """The content of one topic."""

    name: str
    records: int
    value_bytes: int
    compression: str = "none"
    headers: int = 0
    transactional: bool = False
    payloads: str = ""  # a file of values, one per line, in place of letters

    def quick(self) -> Corpus:
        """Return a smaller topic of the same kind, for a smoke run."""
        return replace(self, records=min(self.records, QUICK_RECORDS))

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are passed to clients."""
        return ("headers",) * bool(self.headers) + ("committed",) * self.transactional

    @property
    def title(self) -> str:
        """A description for the tables."""
        headers = f" and {self.headers} headers" if self.headers else ""
        transactions = ", in transactions" if self.transactional else ""
        compression = "uncompressed" if self.compression == "none" else self.compression
        return f"{self.records:,} records of {self.value_bytes} B{headers}, {compression}{transactions}"


CORPORA = (
    Corpus("100B", 5_000_000, 100),
    Corpus("100B-lz4", 5_000_000, 100, "lz4"),
    Corpus("1KB", 1_000_000, 1000),
    Corpus("100B-zstd", 3_000_000, 100, "zstd"),
    Corpus("1KB-headers", 500_000, 1000, headers=3),
    Corpus("100B-transactions", 3_000_000, 100, transactional=True),
)


def java_command(main: str, *arguments: str, heap: str = "1g") -> list[str]:
    """Return the command line of a class of Kafka's Java tools, or of a Java source file that uses the client."""
    class_path = os.pathsep.join(map(str, kafka_tools_jars()))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [program("java"), f"-Xmx{heap}", f"-Xms{heap}", quiet, "-cp", class_path, main, *arguments]


def load(kafka: Kafka, corpus: Corpus) -> str:
    """Create and fill the topic of a corpus and check its size. Returns the name of the topic."""
    topic = kafka.create_topic(f"bench-{corpus.name}", PARTITIONS)
    if corpus.headers:
        produce_with_headers(kafka, topic, corpus)
    else:
        produce_with_java(kafka, topic, corpus)
    found = sum(kafka.end_offsets(topic).values())
    if found != corpus.records and not (corpus.transactional and found > corpus.records):  # with control records
        raise RuntimeError(f"{topic} has {found} records, not {corpus.records}")
    return topic


def produce_with_java(kafka: Kafka, topic: str, corpus: Corpus) -> None:
    """Produce with Kafka's own tool. Transactions end every 100 ms."""
    options = {
        "--bootstrap-server": kafka.bootstrap_servers,
        "--topic": topic,
        "--num-records": str(corpus.records),
        "--throughput": "-1",
        "--command-property": f"compression.type={corpus.compression}",
    }
    size = {"--record-size": str(corpus.value_bytes)}
    options |= {"--payload-file": corpus.payloads} if corpus.payloads else size
    if corpus.transactional:
        options |= {"--transactional-id": topic, "--transaction-duration-ms": "100"}
    flat = [word for pair in options.items() for word in pair]
    subprocess.run(java_command(PRODUCER, *flat), check=True, stdout=subprocess.DEVNULL)


def produce_with_headers(kafka: Kafka, topic: str, corpus: Corpus) -> None:
    """Produce the same batches with another client, because Kafka's tool cannot write headers."""
    producer = kafka.producer(
        {
            "compression.type": corpus.compression,
            "batch.size": 16_384,
            "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
        }
    )
    letters = random.Random(0).choices(range(ord("A"), ord("Z") + 1), k=corpus.value_bytes + 1000)
    headers = [(f"header-{number}", b"value of a header") for number in range(corpus.headers)]
    for number in range(corpus.records):
        value = bytes(letters[number % 1000 : number % 1000 + corpus.value_bytes])
        while True:
            try:
                producer.produce(topic, value, partition=number // 16 % PARTITIONS, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)


def compile_sources() -> None:
    """Compile kconsumer's modules to bytecode, as pip did for its peers, outside of the measured time."""
    root = Path(__file__).resolve().parents[1]
    for package in (root / "kconsumer", root / "assignors"):
        compileall.compile_dir(package, quiet=1)
