"""An unclean leader election truncates a log below the consumers' positions, and every consumer detects it.

Two partitions have two replicas each. The follower is suspended, the leader continues alone and dies, and the follower,
which lacks the second half of the log, becomes leader. It then writes other records at the offsets of the lost ones:
more of them in one partition, so that the position is inside the new log, and fewer in the other, so that the position
is beyond its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ElectedPartition
from confluent_kafka.admin import NewTopic

from kconsumer import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from kconsumer.errors import LogTruncationError
from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.kafka_jars import release_of
from support.brokers.zookeeper import FIRST_KRAFT

TOPIC = "cut"
LONG, SHORT = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
BOTH = [LONG, SHORT]
KEPT, READ = 10, 20  # the offset of divergence, and the offset up to which consumers had read
NEW_END = {LONG: 30, SHORT: 15}
LEADER, FOLLOWER = 1, 2
PARTITIONS = [ElectedPartition(tp.topic, tp.partition) for tp in BOTH]
DRIVERS: dict[str, dict[str, Any]] = {"classic": {}, "threaded": {"engine": "threaded"}}
both_drivers = pytest.mark.parametrize(
    "driver", ["classic", pytest.param("threaded", marks=pytest.mark.network_thread)]
)


@dataclass
class Accident:
    """A cluster, and its consumers by reset policy and engine. They had read both partitions to the end before the
    election.

    Consumers named `halfway` had fetched all records, but only `returned` (by engine) were returned to the caller.
    `epoch` is the leader epoch of the records that were kept; `expected` holds the records that a consumer must read
    afterwards.
    """

    cluster: KafkaCluster
    consumers: dict[tuple[str, str], Consumer] = field(default_factory=dict)
    epoch: int | None = None
    returned: dict[str, int] = field(default_factory=dict)
    expected: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)

    def write(self, word: str, tp: TopicPartition, start: int, end: int, acks: str = "all") -> None:
        """Write records whose values contain their offsets and when they were written."""
        values = [b"%s-%d" % (word.encode(), offset) for offset in range(start, end)]
        self.cluster.produce(tp.topic, values, partition=tp.partition, config={"acks": acks})

    def consumer(self, policy: str, **options: Any) -> Consumer:
        """Make a consumer of both partitions without automatic commits."""
        consumer = Consumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            auto_offset_reset=policy,
            enable_auto_commit=False,
            request_timeout_ms=5_000,
            **options,
        )
        consumer.assign(BOTH)
        return consumer


def polled(consumer: Consumer, despite: TopicPartition | None) -> Iterable[ConsumerRecord]:
    """Returns the records of a poll, or none if it raises LogTruncationError for the partition `despite` alone."""
    try:
        return consumer.poll(0.5)
    except LogTruncationError as error:
        if [despite] != list(error.offsets):
            raise
        return ()


def read(
    consumer: Consumer, counts: dict[TopicPartition, int], despite: TopicPartition | None = None
) -> dict[TopicPartition, list[tuple[int, bytes]]]:
    """Read at least `counts` records of each partition. A LogTruncationError of the partition `despite` is ignored."""
    found: dict[TopicPartition, list[tuple[int, bytes]]] = {tp: [] for tp in counts}
    deadline = time.monotonic() + 40
    while any(len(found[tp]) < count for tp, count in counts.items()):
        for record in polled(consumer, despite):
            found[record.topic_partition].append((record.offset, record.value or b""))
        assert time.monotonic() < deadline, {str(tp): len(values) for tp, values in found.items()}
    return found


def in_sync(cluster: KafkaCluster) -> list[set[int]]:
    """The in-sync replicas of each partition."""
    partitions = cluster.metadata(TOPIC).topics[TOPIC].partitions
    return [set(partitions[tp.partition].isrs) for tp in BOTH]


def strike(accident: Accident) -> None:
    """Cause the truncation. The consumers first read the records that will be lost; all but those named `earliest` do
    not poll until it is over.
    """
    cluster = accident.cluster
    options = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    layout = [[LEADER, FOLLOWER]] * len(BOTH)
    topic = NewTopic(TOPIC, len(BOTH), replica_assignment=layout, config=options)
    cluster.create(topic)
    cluster.coordinator_of("any")  # makes the offsets topic, which with ZooKeeper needs a live broker for each replica
    for tp in BOTH:
        accident.write("kept", tp, 0, KEPT)
    cluster.node(FOLLOWER).pause()
    wait_until(lambda: in_sync(cluster) == [{LEADER}] * 2, 30, "a leader without follower")
    for tp in BOTH:
        accident.write("lost", tp, KEPT, READ, acks="1")
    for (policy, driver), consumer in accident.consumers.items():
        consumer.seek_to_beginning(*BOTH)
        if policy == "halfway":
            while not (records := consumer.poll(1.0, max_records=READ + 5)):
                pass
            accident.returned[driver] = len(records)
            accident.epoch = next(iter(records)).leader_epoch
            continue
        found = read(consumer, dict.fromkeys(BOTH, READ))
        assert [b"lost-19"] * 2 == [values[-1][1] for values in found.values()]
        if policy == "none":
            consumer.commit()
    cluster.node(LEADER).kill()
    cluster.node(FOLLOWER).resume()
    if FIRST_KRAFT <= release_of(cluster.version) < (3, 9):  # whose controllers elect it only by request (KAFKA-12670)
        wait_until(lambda: {cluster.leader_of(TOPIC, tp.partition) for tp in BOTH} == {-1}, 60, "the leader's end")
        cluster.admin.elect_leaders(ElectionType.UNCLEAN, PARTITIONS).result(30)
    live = [accident.consumers["earliest", driver] for driver in DRIVERS]

    def elected() -> bool:
        assert not any(consumer.poll(0.1) for consumer in live)
        return cluster.leader_of(TOPIC, 0) == cluster.leader_of(TOPIC, 1) == FOLLOWER

    wait_until(elected, 60, "the unclean election")
    for tp, end in NEW_END.items():
        accident.write("new", tp, KEPT, end)
        accident.expected[tp] = [(offset, b"new-%d" % offset) for offset in range(KEPT, end)]


@pytest.fixture(scope="module")
def accident(new_cluster: type[KafkaCluster]) -> Iterator[Accident]:
    """The cluster after the truncation; no consumer has fetched the new records yet."""
    with new_cluster(nodes=3) as cluster, ExitStack() as stack:
        found = Accident(cluster)
        for driver, options in DRIVERS.items():
            for policy in ("none", "earliest", "latest", "halfway"):
                group = f"sleepers-{driver}" if policy == "none" else None
                reset = "earliest" if policy == "halfway" else policy
                consumer = found.consumer(reset, group_id=group, **options)
                found.consumers[policy, driver] = stack.enter_context(consumer)
        strike(found)
        yield found


def counts(accident: Accident) -> dict[TopicPartition, int]:
    """Returns the number of records after the divergence in each partition."""
    return {tp: len(values) for tp, values in accident.expected.items()}


@both_drivers
@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_with_a_policy(accident: Accident, policy: str, driver: str) -> None:
    """With every reset policy, the position returns to the offset of divergence, as in Java, not to the policy's
    offset: every new record is read once, and no earlier record is read again.
    """
    assert accident.expected == read(accident.consumers[policy, driver], counts(accident))
    assert not accident.consumers[policy, driver].poll(0.5)


@both_drivers
def test_with_lost_records_buffered(accident: Accident, driver: str) -> None:
    """Buffered records of the old log may still be returned; they are followed by the new records from the offset of
    divergence on.
    """
    assert accident.returned[driver] < 2 * READ
    consumer = accident.consumers["halfway", driver]
    found: dict[TopicPartition, list[tuple[int, bytes]]] = {tp: [] for tp in BOTH}
    deadline = time.monotonic() + 40
    while any(accident.expected[tp] != found[tp][-len(accident.expected[tp]) :] for tp in BOTH):
        for record in consumer.poll(0.5):
            found[record.topic_partition].append((record.offset, record.value or b""))
        assert time.monotonic() < deadline, found
    before = [row for tp in BOTH for row in found[tp][: -len(accident.expected[tp])]]
    assert len(before) <= 2 * READ - accident.returned[driver]
    assert not [value for _, value in before if value.startswith(b"new")]
    assert not consumer.poll(0.3)


def raised(consumer: Consumer, timeout: float = 20.0) -> LogTruncationError:
    """Returns the error of the next poll."""
    with pytest.raises(LogTruncationError) as caught:
        consumer.poll(timeout)
    return caught.value


@both_drivers
def test_without_a_policy(accident: Accident, driver: str) -> None:
    """Every poll raises LogTruncationError with the positions and the offsets of divergence until the user has sought
    each partition. Then every new record is read once.
    """
    consumer = accident.consumers["none", driver]
    parting = OffsetAndMetadata(KEPT, "", accident.epoch)
    for error in (raised(consumer), *(raised(consumer, 0.0) for _ in range(3))):
        assert dict.fromkeys(BOTH, READ) == error.offsets
        assert dict.fromkeys(BOTH, parting) == error.divergent_offsets
    assert NEW_END == consumer.end_offsets(BOTH)
    consumer.pause(*BOTH)
    assert not consumer.poll(0.3)
    consumer.resume(*BOTH)
    consumer.seek(LONG, raised(consumer).divergent_offsets[LONG])
    assert accident.expected[LONG] == read(consumer, {LONG: counts(accident)[LONG]}, despite=SHORT)[LONG]
    assert {SHORT: READ} == raised(consumer, 0.0).offsets
    consumer.seek(SHORT, KEPT)
    assert accident.expected[SHORT] == read(consumer, {SHORT: counts(accident)[SHORT]})[SHORT]


@both_drivers
def test_committed_before(accident: Accident, driver: str) -> None:
    """A commit contains the leader epoch of the records that were read, so the group's next owner detects the
    truncation, too.
    """
    with accident.consumer("none", group_id=f"sleepers-{driver}", **DRIVERS[driver]) as heir:
        error = raised(heir)
        assert dict.fromkeys(BOTH, READ) == error.offsets
    with accident.consumer("latest", group_id=f"sleepers-{driver}", **DRIVERS[driver]) as heir:
        assert accident.expected == read(heir, counts(accident))


def test_the_old_leader_returns(accident: Accident) -> None:
    """The old leader drops its own records and leads again. The positions are validated and valid, and new records are
    read once.
    """
    cluster = accident.cluster
    with ExitStack() as stack:
        consumers = [stack.enter_context(accident.consumer("none", **options)) for options in DRIVERS.values()]
        for consumer in consumers:
            for tp in BOTH:
                consumer.seek(tp, KEPT)
            assert accident.expected == read(consumer, counts(accident))
        cluster.node(LEADER).start()
        wait_until(lambda: in_sync(cluster) == [{LEADER, FOLLOWER}] * 2, 60, "both replicas in sync")
        cluster.admin.elect_leaders(ElectionType.PREFERRED, PARTITIONS).result(30)
        wait_until(lambda: cluster.leader_of(TOPIC, 0) == cluster.leader_of(TOPIC, 1) == LEADER, 30, "the old leader")
        for tp, end in NEW_END.items():
            accident.write("later", tp, end, end + 5)
        later = {tp: [(offset, b"later-%d" % offset) for offset in range(end, end + 5)] for tp, end in NEW_END.items()}
        for consumer in consumers:
            assert later == read(consumer, dict.fromkeys(BOTH, 5))
            assert not consumer.poll(0.3)
