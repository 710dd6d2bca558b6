"""The clients of the comparison, what each one reads, and how a reading is taken: in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import PARTITIONS, Corpus
from support.brokers.kafka import KafkaCluster

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "clients"
REFERENCE = "kconsumer"
TIMEOUT_S = 600

Reading = dict[str, Any]

# Environment variable: the file of trusted certificates. If it is set, readings are over TLS.
CA = "KCONSUMER_BENCHMARK_CA"

TLS_LISTENER = "SSL"
SPEAK_TLS = {"kconsumer_arrow.py", "kconsumer_poll.py", "confluent_consume.py"}


@dataclass(frozen=True)
class Client:
    """A script of clients/, its arguments, and the share of a topic that it reads."""

    script: str
    words: tuple[str, ...] = ()
    share: int = 1  # above 1: reads only 1/share of the records, and only in the first round, because it is slow
    topics: frozenset[str] | None = None  # None: all topics


PLAIN = frozenset({"100B", "100B-lz4", "1KB"})

CLIENTS: dict[str, Client] = {
    "Python loop alone": Client("python_loop.py", topics=frozenset({"100B"})),
    "bare socket": Client("bare_socket.py", topics=PLAIN | {"100B-zstd", "1KB-headers"}),
    "one bare connection": Client("bare_socket.py", ("one",), topics=PLAIN | {"100B-zstd", "1KB-headers"}),
    "kconsumer arrow": Client("kconsumer_arrow.py"),
    "kconsumer": Client("kconsumer_poll.py"),
    "kconsumer arrow, threaded": Client("kconsumer_arrow.py", ("threaded",), topics=PLAIN),
    "kconsumer, threaded": Client("kconsumer_poll.py", ("threaded",)),
    "kconsumer arrow, consumer protocol": Client("kconsumer_arrow.py", ("consumer",), topics=PLAIN),
    "kconsumer, consumer protocol": Client("kconsumer_poll.py", ("consumer",), topics=PLAIN),
    "Java warm": Client("java_tool.py", ("warm",)),
    "Java": Client("java_tool.py", topics=PLAIN),
    "confluent tuned": Client("confluent_consume.py", ("tuned",)),
    "confluent": Client("confluent_consume.py", share=5, topics=PLAIN),
    "aiokafka": Client("aiokafka_getmany.py", share=2),
    "kafka-python": Client("kafka_python_poll.py", share=5),
}

LIMITS = ("bare socket", "one bare connection")
ENGINES = (*LIMITS, *(name for name in CLIENTS if name.startswith("kconsumer")), "Java warm")
"""kconsumer on both engines and with both protocols, the limits, and the Java client."""


def reads(client: str, corpus: Corpus) -> bool:
    """Whether a client reads this topic."""
    if CA in os.environ and CLIENTS[client].script not in SPEAK_TLS:
        return False
    topics = CLIENTS[client].topics
    return topics is None or corpus.name in topics


def read_once(client: str, kafka: KafkaCluster, topic: str, corpus: Corpus) -> Reading:
    """Run one client over one topic. Returns its reading."""
    chosen = CLIENTS[client]
    records = corpus.records // chosen.share
    words = [*chosen.words, *corpus.words]
    servers = kafka.servers(TLS_LISTENER) if CA in os.environ else kafka.bootstrap_servers
    return run(chosen.script, servers, topic, str(records), str(PARTITIONS), *words)


def environment() -> dict[str, str]:
    """Return the environment of a script."""
    folders = [ROOT, ROOT / "tests", ROOT / "assignors"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}


def run(script: str, *arguments: str) -> Reading:
    """Run a script. Returns the JSON that it prints. Raises RuntimeError if it fails or does not end."""
    try:
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / script), *arguments],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{script} {' '.join(arguments)} did not end within {TIMEOUT_S} s") from error
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"{script} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
