"""The producers of a scenario: they append records directly to the logs of the model, some of them in transactions."""

from __future__ import annotations

from collections.abc import Iterator

from kconsumer import TopicPartition
from kconsumer.testing.batches import build_batch
from kconsumer.testing.cluster.topic import NO_LEADER, Partition
from kconsumer.testing.records import Rec
from support.simulation.journal import Journal
from support.simulation.scenario import STABLE_TOPICS, Scenario
from support.simulation.settings import DROPPED, HEADER, LAST_APPEND_MS, SELECTED, is_selected
from support.simulation.simulation import Simulation

MAX_BATCH = 10  # records
LARGE_VALUE = bytes(20_000)
MAX_TRANSACTION_PAUSE_MS = 10_000.0  # between two batches of a transaction
ABORTS = 0.4  # how many of the transactions are aborted
MAX_BACKLOG = 5_000  # records that were not processed; with more, the producers wait, so that slow members catch up


class Producers:
    """The producers of one run. They end some minutes before the members, so that the last records are processed."""

    def __init__(
        self, simulation: Simulation, journal: Journal, scenario: Scenario, last_append_ms: float = LAST_APPEND_MS
    ) -> None:
        self._simulation = simulation
        self._journal = journal
        self._scenario = scenario
        self._ends_ms = scenario.duration_ms - last_append_ms

    def write(self) -> None:
        """Append a batch to a random partition now and then."""
        for partition in self._partitions():
            for offset in self._append(partition):
                self._journal.append(_tp(partition), offset)
            self._simulation.network.pump()

    def write_transactions(self) -> None:
        """Append some batches in a transaction now and then, and commit or abort it."""
        transactions = self._simulation.cluster.transactions
        for partition in self._partitions(volatile=False):
            transaction = transactions.init_producer("producer", 900_000, self._simulation.now)
            written: list[tuple[TopicPartition, int]] = []
            sequences: dict[Partition, int] = {}
            for _ in range(self._simulation.random.randint(1, 3)):
                chosen = self._choose(volatile=False) or partition
                transactions.add_partitions(transaction, [chosen], self._simulation.now)
                producer = transaction.producer_id, transaction.producer_epoch, sequences.get(chosen, 0)
                offsets = self._append(chosen, producer)
                sequences[chosen] = sequences.get(chosen, 0) + len(offsets)
                written += [(_tp(chosen), offset) for offset in offsets]
                self._simulation.network.pump()
                self._simulation.sleep(self._simulation.random.uniform(0, MAX_TRANSACTION_PAUSE_MS))
            commits = self._simulation.random.random() >= ABORTS
            if commits:
                for tp, offset in written:
                    self._journal.append(tp, offset)
            transactions.end(transaction, self._simulation.now, commit=commits)
            self._simulation.record(
                "producer", f"transaction of {_named(written)} {'committed' if commits else 'aborted'}"
            )
            self._simulation.network.pump()

    def _partitions(self, *, volatile: bool = True) -> Iterator[Partition]:
        """Wait a random time and yield a partition that has a leader, until the producers end.

        Yields none while the members have a long backlog. They could not process it before the run ends.
        """
        simulation, scenario = self._simulation, self._scenario
        while simulation.now < self._ends_ms:
            partition = self._choose(volatile=volatile)
            if partition is not None and self._journal.backlog() < MAX_BACKLOG:
                yield partition
            simulation.sleep(simulation.random.expovariate(1 / scenario.record_interval_ms))

    def _choose(self, *, volatile: bool = True) -> Partition | None:
        """Returns a random partition, or None if it has no leader. Some of its topics may not exist at the moment."""
        topics = self._simulation.cluster.topics
        names = self._scenario.topic_names if volatile else STABLE_TOPICS
        partitions = [p for name in names if name in topics for p in topics[name].partitions]
        partition = partitions[self._simulation.random.randrange(len(partitions))]
        return None if partition.leader == NO_LEADER else partition

    def _append(self, partition: Partition, producer: tuple[int, int, int] | None = None) -> range:
        """Append a batch. `producer`: its id, epoch and first sequence number. Returns the offsets of the records."""
        wall_ms = self._simulation.clock.wall_ms()
        padding = LARGE_VALUE if self._scenario.compressed else b""
        codec = "gzip" if self._scenario.compressed else "none"
        count = self._simulation.random.randint(1, MAX_BATCH)
        first = partition.log.end
        rows = [
            Rec(b"%d%b" % (number, padding), self._key(first + number), self._headers(first + number))
            for number in range(count)
        ]
        if producer is None:
            batch = build_batch(rows, timestamp=wall_ms, codec=codec)
        else:
            number, epoch, sequence = producer
            batch = build_batch(
                rows,
                timestamp=wall_ms,
                codec=codec,
                producer_id=number,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        partition.append(batch, wall_ms)
        return range(first, first + len(rows))

    def _key(self, offset: int) -> bytes | None:
        """Returns the key of the record at an offset. Some records have none."""
        keys = self._scenario.keys
        return b"%d" % (31 * offset // 7 % keys) if keys and offset % 11 else None

    def _headers(self, offset: int) -> tuple[tuple[str, bytes], ...]:
        """Returns the headers of the record at an offset."""
        return ((HEADER, SELECTED if is_selected(offset) else DROPPED),) if self._scenario.filtered else ()


def _tp(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic.name, partition.index)


def _named(written: list[tuple[TopicPartition, int]]) -> str:
    return " ".join(f"{tp}@{offset}" for tp, offset in written)
