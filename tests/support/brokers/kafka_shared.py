"""One broker of each version for a whole test run, however many pytest workers it has.

The controlling process creates a run folder with a lifeline and passes its path to the workers. The first worker that
needs a broker starts it there under a lock; the others find it. The broker belongs to the run and not to that worker:
it ends when the controlling process closes the lifeline or dies.
"""

from __future__ import annotations

from pathlib import Path

from support.brokers.kafka import Kafka, KafkaCluster
from support.brokers.kafka_jars import locked

_started: list[KafkaCluster] = []  # this worker's guards, kept so that nothing collects a running process


def shared_kafka(run_folder: Path, version: str) -> Kafka:
    """Returns the run's single-node broker of this version, started by the first worker that needs it."""
    note = run_folder / f"{version}.bootstrap"
    with locked(run_folder / f"{version}.lock"):
        if not note.exists():
            cluster = KafkaCluster(version, root=run_folder, lifeline=run_folder / "lifeline")
            cluster.start()
            _started.append(cluster)
            note.write_text(cluster.bootstrap_servers)
        return Kafka(note.read_text(), version)
