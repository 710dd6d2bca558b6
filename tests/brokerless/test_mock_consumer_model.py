"""MockConsumer against a Consumer on FakeCluster: the same program of calls gives the same results.

A program is a list of random calls from a seed. The MockConsumer runs it first, so the number of records that each read
must return is known.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, OffsetAndMetadata, TimestampType, TopicPartition
from kconsumer.errors import KafkaError, NoOffsetForPartitionError, WakeupError
from kconsumer.testing import FakeCluster, MockConsumer

DEADLINE_S = 20.0
RAISES = -1  # in place of a number of records: the read raises an error
BASE_MS = 1_700_000_000_000

Result = Any
Call = Callable[["Side"], Result]


class Side:
    """One consumer, with what a program needs around it."""

    def __init__(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.consumer = consumer
        self.partitions = partitions
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []  # of the rebalance listener
        self.commits: list[tuple[object, object]] = []  # of commit callbacks
        self.expected: Iterator[int] | None = None  # how many records each read returns; None: the mock decides
        self.counts: list[int] = []
        self.ends: dict[TopicPartition, int] = {}

    def produce(self, tp: TopicPartition, values: list[bytes | None], timestamp: int) -> None:
        """Append records to a partition."""
        assert isinstance(self.consumer, MockConsumer)
        start = self.ends.get(tp, 0)
        self.ends[tp] = start + len(values)
        create = TimestampType.CREATE_TIME
        fields: dict[str, Any] = {"timestamp": timestamp, "timestamp_type": create, "key": b"k", "leader_epoch": 0}
        self.consumer.add_records(
            tp, [ConsumerRecord(*tp, start + n, value=value, **fields) for n, value in enumerate(values)]
        )

    def rebalance(self, partitions: list[TopicPartition]) -> None:
        """Let the group assign these partitions, unless they are assigned already."""
        assert isinstance(self.consumer, MockConsumer)
        if self.consumer.assignment() != frozenset(partitions):
            self.consumer.rebalance(partitions)

    def read(self) -> list[ConsumerRecord]:
        """Returns all records up to the end, sorted by partition."""
        found: list[ConsumerRecord] = []
        wanted = None if self.expected is None else next(self.expected)
        deadline = time.monotonic() + DEADLINE_S
        self.counts.append(RAISES)
        while wanted == RAISES or wanted is None or len(found) < wanted:
            batch = self.consumer.poll(0.0 if wanted is None else 0.05)
            found += batch
            if wanted is None and not batch:
                break
            assert time.monotonic() < deadline, f"{len(found)} of {wanted}: {self.consumer.partition_states()}"
        self.counts[-1] = len(found)
        assert wanted is None or not self.consumer.poll(0.02)
        return sorted(found, key=lambda record: (record.topic_partition, record.offset))

    def note(self, kind: str) -> Callable[[Consumer, tuple[TopicPartition, ...]], None]:
        """Returns a rebalance callback that notes its call."""

        def callback(consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
            self.calls.append((kind, partitions))

        return callback


class RealSide(Side):
    """A Consumer on FakeCluster."""

    def __init__(self, consumer: Consumer, partitions: list[TopicPartition], cluster: FakeCluster) -> None:
        super().__init__(consumer, partitions)
        self.cluster = cluster

    def produce(self, tp: TopicPartition, values: list[bytes | None], timestamp: int) -> None:
        """Append records to a partition."""
        self.cluster.produce(tp.topic, values, tp.partition, b"k", timestamp=timestamp)

    def rebalance(self, partitions: list[TopicPartition]) -> None:
        """Poll until the group has assigned these partitions."""
        deadline = time.monotonic() + DEADLINE_S
        while self.consumer.assignment() != frozenset(partitions):
            assert not self.consumer.poll(0.05)
            assert time.monotonic() < deadline, f"{self.consumer.assignment()} and not {partitions} assigned"


def outcome(call: Call, side: Side) -> Result:
    """Returns what a call returned, or its error."""
    try:
        return without_epochs(call(side))
    except (KafkaError, ValueError, TypeError) as error:
        return type(error).__name__, str(error)


def without_epochs(result: Result) -> Result:
    """Returns the result without leader epochs of offsets. They depend on where a response has ended."""
    if isinstance(result, dict):
        return {key: without_epochs(value) for key, value in result.items()}
    if isinstance(result, list):
        return [tuple(map(without_epochs, item)) if isinstance(item, tuple) else item for item in result]
    return replace(result, leader_epoch=None) if isinstance(result, OffsetAndMetadata) else result


# --- programs ---


def offsets(side: Side, method: str, *arguments: Any) -> Result:
    """Returns the result of a method that takes all partitions."""
    return getattr(side.consumer, method)(side.partitions, *arguments)


def find_positions(side: Side) -> Result:
    """Wait for the positions. Other calls find them in the background, so it would depend on time which exist.

    Returns the error of partitions that have none, and seeks to the beginning of these. A wakeup ends before.
    """
    with contextlib.suppress(WakeupError):
        side.consumer.end_offsets(side.partitions)
    try:
        for tp in sorted(side.consumer.assignment()):
            side.consumer.position(tp)
    except NoOffsetForPartitionError as error:
        for tp in error.partitions:
            side.consumer.seek(tp, 0)
        return str(error)
    return None


def commit(side: Side) -> None:
    """Commit the positions."""
    find_positions(side)
    side.consumer.commit()


def assign(side: Side, partitions: list[TopicPartition]) -> Result:
    """Assign partitions, and find their positions."""
    side.consumer.assign(partitions)
    return find_positions(side)


def reset(side: Side, method: str, *partitions: TopicPartition) -> Result:
    """Call seek_to_beginning or seek_to_end, and find the positions."""
    getattr(side.consumer, method)(*partitions)
    return find_positions(side)


def subscribe(side: Side) -> None:
    """Subscribe, and wait until all partitions are assigned and have positions."""
    find_positions(side)
    side.consumer.subscribe([side.partitions[0].topic], on_assign=lambda consumer, added: consumer.pause(*added))
    side.rebalance(side.partitions)
    find_positions(side)
    side.consumer.resume(*side.partitions)


def commit_in_background(side: Side) -> Result:
    """Commit the positions, and wait for the callback."""
    find_positions(side)
    before = len(side.commits)
    side.consumer.commit_async(callback=lambda offsets, error: side.commits.append((offsets, error)))
    deadline = time.monotonic() + DEADLINE_S
    while len(side.commits) == before:
        side.consumer.commit({})
        assert time.monotonic() < deadline
    return side.commits[before:]


def loop(side: Side, count: int) -> list[ConsumerRecord]:
    """Returns the records of a `for` loop that stops after `count`, or after `consumer_timeout_ms` without records."""
    found = []
    for record in side.consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


def random_call(rng: random.Random, partitions: list[TopicPartition], far: list[int]) -> tuple[str, Call]:
    """Returns a call, with its text for messages. `far`: offsets to seek to that may be out of range."""
    tp, count = rng.choice(partitions), rng.randrange(1, 6)
    offset, ts = rng.choice([0, *far]), BASE_MS + rng.randrange(0, 8) * 1000
    data: list[bytes | None] = [rng.choice([b"", b"value", None, b"x" * 40]) for _ in range(count)]
    some = [each for each in partitions if rng.random() < 0.6] or partitions[:1]
    calls: list[tuple[str, Call]] = [
        (f"produce {tp} {data} {ts}", lambda side: side.produce(tp, data, ts)),
        (f"produce {tp} {data} {ts}", lambda side: side.produce(tp, data, ts)),
        ("read", lambda side: side.read()),
        ("read", lambda side: side.read()),
        (f"seek {tp} {offset}", lambda side: side.consumer.seek(tp, offset)),
        (f"to the beginning {some}", lambda side: reset(side, "seek_to_beginning", *some)),
        ("to the end", lambda side: reset(side, "seek_to_end")),
        (f"pause {some}", lambda side: side.consumer.pause(*some)),
        (f"resume {some}", lambda side: side.consumer.resume(*some)),
        ("paused", lambda side: side.consumer.paused()),
        ("position", lambda side: side.consumer.position(tp)),
        ("commit", commit),
        (f"commit {tp} {offset}", lambda side: side.consumer.commit({tp: offset})),
        ("commit_async", commit_in_background),
        ("committed", lambda side: offsets(side, "committed")),
        ("beginning", lambda side: offsets(side, "beginning_offsets")),
        ("end", lambda side: offsets(side, "end_offsets")),
        (f"times {ts}", lambda side: side.consumer.offsets_for_times(dict.fromkeys(side.partitions, ts))),
        ("wakeup", lambda side: side.consumer.wakeup()),
        ("unsubscribe", lambda side: side.consumer.unsubscribe()),
        (f"assign {some}", lambda side: assign(side, some)),
        (f"assign {some}", lambda side: assign(side, some)),
        ("assignment", lambda side: side.consumer.assignment()),
        ("topics", lambda side: [info.partition for info in side.consumer.partitions_for(tp.topic)]),
    ]
    if far:  # without a reset policy, it depends on time in which poll the error is raised
        calls.append(("subscribe", subscribe))
    if len(partitions) == 1:  # otherwise the order of records differs
        calls += [(f"loop {count}", lambda side: loop(side, count))] * 2
    return rng.choice(calls)


def both_sides(cluster: FakeCluster, topic: str, partitions: int, **options: Any) -> tuple[Side, RealSide]:
    """Returns a MockConsumer and a Consumer with the same options."""
    cluster.create_topic(topic, partitions)
    names = [TopicPartition(topic, partition) for partition in range(partitions)]
    chosen: dict[str, Any] = {
        "group_id": f"group-{topic}",
        "fetch_max_wait_ms": 10,
        "consumer_timeout_ms": 500,
        **options,
    }
    mock = MockConsumer(**chosen)
    mock.update_beginning_offsets(dict.fromkeys(names, 0))
    servers = cluster.bootstrap_servers
    return Side(mock, names), RealSide(Consumer(bootstrap_servers=servers, **chosen), names, cluster)


def compare(program: list[tuple[str, Call]], mock: Side, real: RealSide) -> None:
    """Run a program on both sides, call by call."""
    for number, (text, call) in enumerate(program):
        done = "; ".join(text for text, _ in program[: number + 1])
        before = len(mock.counts)
        wanted = outcome(call, mock)
        real.expected = iter(mock.counts[before:])
        assert wanted == outcome(call, real), done


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """One cluster for all programs. Each has a topic and a group of its own."""
    with FakeCluster() as running:
        yield running


@pytest.mark.parametrize("seed", range(40))
def test_programs_of_calls(cluster: FakeCluster, seed: int) -> None:
    """Positions, reads, pauses, seeks, commits, resets and errors are the same for a manual assignment."""
    rng = random.Random(seed)
    policy = "none" if seed % 8 == 7 else rng.choice(["earliest", "latest"])
    # Without a reset policy, it depends on time whether a poll returns other records or raises the error first.
    far = [] if policy == "none" else [1, 2, 5, 9, 99]
    mock, real = both_sides(
        cluster, f"program-{seed}", rng.choice([1, 3]), auto_offset_reset=policy, enable_auto_commit=False
    )
    partitions = mock.partitions
    program: list[tuple[str, Call]] = [("assign", lambda side: assign(side, partitions))]
    program += [random_call(rng, partitions, far) for _ in range(25)]
    with mock.consumer, real.consumer:
        compare(program, mock, real)


def test_out_of_range_without_a_reset_policy(cluster: FakeCluster) -> None:
    """The error of a position outside of the log is the same, and every poll raises it until a seek."""
    mock, real = both_sides(cluster, "out-of-range", 1, auto_offset_reset="none")
    [tp] = mock.partitions
    program: list[tuple[str, Call]] = [
        ("assign", lambda side: assign(side, [tp])),
        ("produce", lambda side: side.produce(tp, [b"1"], BASE_MS)),
        ("seek", lambda side: side.consumer.seek(tp, 7)),
        ("read", lambda side: side.read()),
        ("read again", lambda side: side.read()),
        ("seek back", lambda side: side.consumer.seek(tp, 0)),
        ("read the record", lambda side: side.read()),
    ]
    with mock.consumer, real.consumer:
        compare(program, mock, real)


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_rebalances(cluster: FakeCluster, protocol: str) -> None:
    """The listener is called with the same partitions, and the same offsets are committed by auto-commit."""
    options: dict[str, Any] = {"assignors": [protocol]} if protocol != "consumer" else {"group_protocol": "consumer"}
    topic = f"rebalances-{protocol}"
    mock, real = (
        both_sides(cluster, topic, 4, auto_offset_reset="earliest", heartbeat_interval_ms=100, **options)
        if (protocol != "consumer")
        else both_sides(cluster, topic, 4, auto_offset_reset="earliest", **options)
    )
    with mock.consumer, real.consumer:
        for side in (mock, real):
            callbacks = {f"on_{kind}": side.note(kind) for kind in ("assign", "revoke", "lost")}
            side.consumer.subscribe([topic], **callbacks)
            side.rebalance(side.partitions)
            for tp in side.partitions:
                side.produce(tp, [b"1", b"2", b"3"], BASE_MS)
            side.expected = None if side is mock else iter(mock.counts)
            side.read()
        second = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": f"group-{topic}", **options}
        with Consumer(topic, **second) as other:
            deadline = time.monotonic() + DEADLINE_S
            while len(other.assignment()) != 2 or len(real.consumer.assignment()) != 2:
                other.poll(0.05)
                real.consumer.poll(0.05)
                assert time.monotonic() < deadline
            kept = sorted(real.consumer.assignment())
        mock.rebalance(kept)
        assert mock.consumer.committed(mock.partitions) == real.consumer.committed(real.partitions)
        assert mock.consumer.assignment() == real.consumer.assignment()
    assert [call for call in mock.calls if call[1]] == [call for call in real.calls if call[1]]
    assert isinstance(mock.consumer, MockConsumer)
    assert mock.consumer.committed_offsets() == cluster.committed(f"group-{topic}")
