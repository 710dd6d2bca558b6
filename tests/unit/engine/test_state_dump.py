"""The state of a consumer as text: `repr`, and the report that SIGUSR1 prints."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

from kconsumer import Consumer, ConsumerRecords, TopicPartition
from kconsumer._internal.status import table
from kconsumer.engine.state_dump import full_report
from kconsumer.engine.status import summary
from kconsumer.net.describe import ConnectionReport
from kconsumer.testing.clock import VirtualClock
from kconsumer.types import PartitionCondition, PartitionStatus
from support.harnesses.inside import engine_of, parts_of

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


class Interceptor:
    """An interceptor that does nothing."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Returns the records."""
        return records


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """Returns a consumer that has not connected, with three partitions of which one is paused."""
    with Consumer(bootstrap_servers="127.0.0.1:1", client_id="c", group_id="g", enable_auto_commit=False) as made:
        made.assign(PARTITIONS)
        made.pause(PARTITIONS[1])
        for tp in PARTITIONS[:2]:
            made.seek(tp, 5)
        yield made


def status(state: PartitionCondition) -> PartitionStatus:
    """Returns a row in which only the state matters."""
    return PartitionStatus(state, "", 0.0, None, None, None)


def test_summary() -> None:
    """States are counted, the most frequent first."""
    condition = PartitionCondition
    assert "0 partitions" == summary([])
    assert "1 partition: 1 paused" == summary([status(condition.PAUSED)])
    found = [condition.PAUSED, condition.IN_FLIGHT, condition.IN_FLIGHT, condition.BUFFER_FULL]
    assert "4 partitions: 2 in flight, 1 buffer full, 1 paused" == summary(map(status, found))


def test_repr(consumer: Consumer) -> None:
    """The repr has the number of partitions in each state, and "closed" after close()."""
    states = "3 partitions: 1 initializing, 1 no leader, 1 paused"
    assert f"<Consumer 'c' group='g' {states}>" == repr(consumer)
    consumer.close()
    assert "<Consumer 'c' group='g' closed>" == repr(consumer)


def test_repr_never_blocks(consumer: Consumer) -> None:
    """While another thread is inside a call the repr is shorter, but returns at once."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with engine_of(consumer).lock:
            taken.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(10)
    try:
        busy = "3 partitions, busy in another thread"
        assert f"<Consumer 'c' group='g' {busy}>" == repr(consumer)
    finally:
        done.set()
        thread.join()


def test_since_counts_from_the_call(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a pause starts when `pause` is called, however long ago the last poll was."""
    clock = VirtualClock()
    monkeypatch.setattr(parts_of(consumer), "clock", clock)
    clock.advance(60_000)
    consumer.pause(PARTITIONS[0])
    clock.advance(1500)
    assert 1.5 == consumer.partition_states()[PARTITIONS[0]].since


def test_full_report(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has partitions with reasons, memory, the member, and connections with their errors."""
    found = [
        ConnectionReport("broker 1 at b:9092", "ready", 1, "Fetch", 1234.0, "", "TLSv1.3 through OpenSSL"),
        ConnectionReport("broker 2 at c:9092", "not connected", 0, "", 0.0, "connection refused"),
    ]
    monkeypatch.setattr(parts_of(consumer).client, "report", lambda now: found)
    lines = full_report(consumer).splitlines()
    assert "3 partitions: 1 initializing, 1 no leader, 1 paused" == lines[0]
    assert ["PARTITION", "STATE", "SINCE", "POSITION", "END", "LAG", "BUFFERED", "REASON"] == lines[1].split()
    name, state, since, *row = lines[3].split()
    assert ["t-1", "paused", "5", "-", "-", "0", "paused"] == [name, state, *row[:5]]
    assert re.fullmatch(r"\d+\.\d+s", since), "a duration in seconds"
    assert "no position yet; waiting for the committed offset; the coordinator is unknown" in lines[4]
    assert lines[5].startswith("memory: 0 bytes buffered, 0 in returned batches")
    assert "group 'g': unjoined, generation -1, member None, assignor None" == lines[6]
    assert "coordinator: unknown" == lines[7]
    assert ["CONNECTION", "STATE", "IN", "FLIGHT", "OLDEST", "ENCRYPTION", "ERROR"] == lines[8].split()
    assert "broker 1 at b:9092  ready          1          Fetch 1.2s  TLSv1.3 through OpenSSL  -" == lines[9]
    assert (
        "broker 2 at c:9092  not connected  0          -           -                        connection refused"
        == lines[10]
    )


def test_report_without_a_group() -> None:
    """Without a group the report has no section for the member."""
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        lines = full_report(consumer).splitlines()
    first = [line.split(":")[0].split()[0] for line in lines[1:]]
    assert ("0 partitions", ["memory", "CONNECTION"]) == (lines[0], first)


def test_table() -> None:
    """Columns are as wide as their widest cell, and an empty cell is a dash."""
    assert ["A    B", "xyz  -", "-    1"] == table(("A", "B"), [("xyz", None), ("", 1)])
