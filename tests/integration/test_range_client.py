"""RangeClient against a broker: many ranges over one connection, start and end points, Spark's schema, offsets of
groups.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.errors import CommitFailedError, ConfigError, OffsetOutOfRangeError
from kconsumer.ranges import EARLIEST, LATEST, RangeClient, RangeReader, borrow
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import numbered


def offsets(reader: RangeReader) -> list[int]:
    """Returns the offsets of all remaining rows."""
    return [offset for batch in reader for offset in batch.to_pyarrow()["offset"].to_pylist()]


def connections(client: RangeClient) -> int:
    """Returns the number of connections that the client has made."""
    metrics = client.consumer.metrics()
    return int(next(value for name, value in metrics.items() if name.name == "connection-creation-total"))


@pytest.fixture
def filled(kafka: Kafka, topic_name: str) -> str:
    """A topic of two partitions with 100 records each."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        stamps = [1_000 * n for n in range(1, 101)]
        kafka.produce(topic_name, numbered(100), partition=partition, timestamps=stamps)
    return topic_name


@pytest.mark.usefixtures("form")
def test_many_ranges_over_the_same_connections(kafka: Kafka, filled: str) -> None:
    """Ranges of both partitions, read completely or closed early, need no new connection, and none returns records of
    another range.
    """
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        assert list(range(10)) == offsets(client.read_range((filled, 0), 0, 10))
        made = connections(client)
        for turn in range(20):
            with client.read_range((filled, turn % 2), turn, 100, max_rows=10) as reader:
                first = next(reader).to_pyarrow()
                assert list(range(turn, turn + 10)) == first["offset"].to_pylist()
                assert {turn % 2} == set(first["partition"].to_pylist())
            assert [turn] == offsets(client.read_range((filled, turn % 2), turn, turn + 1))
        assert made == connections(client)


@pytest.mark.usefixtures("form")
def test_points(kafka: Kafka, filled: str) -> None:
    """Start and end may be ends of the log or times; the reader reports the offsets found for them."""
    kafka.delete_records(filled, {0: 12})
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        reader = client.read_range((filled, 0), EARLIEST, LATEST)
        assert (12, 100) == (reader.start_offset, reader.end_offset)
        assert list(range(12, 100)) == offsets(reader)
        moments = (datetime.fromtimestamp(90, UTC), datetime.fromtimestamp(95, UTC))
        assert list(range(89, 94)) == offsets(client.read_range((filled, 1), *moments))
        after = datetime.fromtimestamp(1_000, UTC)
        assert [] == offsets(client.read_range((filled, 1), after, LATEST))
        assert [] == offsets(client.read_range((filled, 1), LATEST, 50))
        assert [98, 99] == offsets(client.read_range((filled, 1), 98, LATEST))
        with pytest.raises(OffsetOutOfRangeError, match="ends at offset 100"):
            client.read_range((filled, 1), 120, LATEST)
        assert [] == offsets(client.read_range((filled, 1), 120, LATEST, on_data_loss="skip"))
        with pytest.raises(ValueError, match="time zone"):
            client.read_range((filled, 1), datetime.fromtimestamp(90), LATEST)


@pytest.mark.usefixtures("form")
def test_latest_is_the_last_stable_offset(kafka: Kafka, topic_name: str) -> None:
    """With read_committed, a range to LATEST ends before an open transaction and does not wait for it."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(3))
    producer = kafka.producer({"transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in numbered(2):
        producer.produce(topic_name, value)
    producer.flush(30)
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed") as client:
        tp = TopicPartition(topic_name, 0)
        assert {tp: 3} == client.end_offsets([tp])
        reader = client.read_range(tp, EARLIEST, LATEST)
        assert [0, 1, 2] == offsets(reader)
        assert (3, 5) == (reader.last_stable_offset, reader.high_watermark)
    producer.abort_transaction(30)


def test_pickles_as_its_options(kafka: Kafka, filled: str) -> None:
    """Unpickling a connected client gives an unconnected one that works."""
    options = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
    with RangeClient.from_config(options, idle_close_s=7) as client:
        assert [4] == offsets(client.read_range((filled, 0), 4, 5))
        copy = pickle.loads(pickle.dumps(client))
    with copy:
        assert (False, True, 7) == (copy.connected, copy.read_committed, copy.idle_close_s)
        assert [5] == offsets(copy.read_range((filled, 0), 5, 6))
    for wrong in ({"group.id": "g"}, {"auto_offset_reset": "earliest"}):
        with pytest.raises(ConfigError, match="is not an option of ranges"):
            RangeClient.from_config({**options, **wrong})
    with pytest.raises(ConfigError, match="required"):
        RangeClient.from_config({})


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_gets_connections_of_its_own(kafka: Kafka, filled: str) -> None:
    """A forked child can use the client, with new connections; the parent's connections continue."""
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        reader = client.read_range((filled, 0), 0, 100, max_rows=10)
        next(reader)
        child = os.fork()
        if child == 0:
            good = not client.connected
            good = good and offsets(client.read_range((filled, 1), 3, 6)) == [3, 4, 5]
            client.close()
            os._exit(0 if good else 1)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        made = connections(client)
        assert list(range(10, 100)) == offsets(reader)
        assert made == connections(client)


def test_idle_connections_are_closed(kafka: Kafka, filled: str) -> None:
    """A client closes its connections after some idle time, but not while a range is open; the next use
    connects again.
    """
    client = RangeClient(bootstrap_servers=kafka.bootstrap_servers, idle_close_s=0.3)
    reader = client.read_range((filled, 0), 0, 100, max_rows=10)
    next(reader)
    time.sleep(0.6)
    assert client.connected
    reader.close()
    wait_until(lambda: not client.connected, 10, "closing of idle connections")
    abandoned = client.read_range((filled, 0), 0, 100, max_rows=10)
    assert 10 == len(next(abandoned))
    del abandoned, reader
    gc.collect()
    wait_until(lambda: not client.connected, 10, "closing of connections of an abandoned range")


def test_borrowing(kafka: Kafka, filled: str) -> None:
    """Borrowing with the same options returns a client that was used before; two borrowers at the same time get two
    clients.
    """
    options = {"bootstrap_servers": kafka.bootstrap_servers, "idle_close_s": 1.0, "client_id": filled}
    with borrow(**options) as first:
        next(first.read_range((filled, 0), 0, 100, max_rows=10))
        with borrow(**options) as second:
            assert second is not first
    with borrow(**options) as again, borrow(**options) as other:
        assert {id(first), id(second)} == {id(again), id(other)}
        assert [0] == offsets(first.read_range((filled, 0), 0, 1))
        with borrow(**{**options, "client_id": "another"}) as third:
            assert third not in (first, second)
    wait_until(lambda: not first.connected, 10, "closing of a client given back")


@pytest.mark.usefixtures("form")
def test_topics(kafka: Kafka, filled: str) -> None:
    """topics() returns the present topics; Kafka's internal topics are marked."""
    with (
        Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=filled, enable_auto_commit=False) as member,
        RangeClient(bootstrap_servers=kafka.bootstrap_servers) as client,
    ):
        member.commit({TopicPartition(filled, 0): 1})
        found = client.topics()
        assert (True, False) == (found["__consumer_offsets"].internal, found[filled].internal)
        assert [0, 1] == [info.partition for info in found[filled].partitions]
        offsets(client.read_range((filled, 0), 0, 1))
        kafka.add_partitions(filled, 3)
        assert 3 == len(client.topics([filled])[filled].partitions)
        assert {} == client.topics([filled + "-not"])
        times = client.offsets_for_times({TopicPartition(filled, 0): 50_000})
        assert [49] == [at.offset for at in times.values() if at is not None]


@pytest.mark.usefixtures("form")
def test_commits_for_a_group_without_members(kafka: Kafka, filled: str) -> None:
    """Offsets are committed without joining the group; the offsets of a group with members are not changed."""
    tp = TopicPartition(filled, 0)
    group = f"group-{filled}"
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        assert {tp: None} == client.committed(group, [tp])
        client.commit(group, {tp: 42})
        client.commit(group, {TopicPartition(filled, 1): OffsetAndMetadata(7, "note")})
        assert {tp: OffsetAndMetadata(42)} == client.committed(group, [tp])
        with Consumer(filled, bootstrap_servers=kafka.bootstrap_servers, group_id=group) as member:
            wait_until(lambda: member.poll(0.1) is not None and member.assignment(), 20, "joining")
            with pytest.raises(CommitFailedError, match="has members"):
                client.commit(group, {tp: 50})
        client.commit(group, {tp: 50})
        assert {tp: OffsetAndMetadata(50)} == client.committed(group, [tp])


PROGRAM = """
import os, sys
from kconsumer.ranges import borrow
options = {"bootstrap_servers": sys.argv[1]}
def first(client):
    return next(iter(client.read_range((sys.argv[2], 0), 3, 4))).num_rows
with borrow(**options) as client:
    assert 1 == first(client)
    child = os.fork()
    if child:
        assert 0 == os.waitpid(child, 0)[1]
    assert 1 == first(client)
"""


def test_a_program_that_forks_and_ends_with_clients_waiting(kafka: Kafka, filled: str) -> None:
    """After a fork, parent and child continue with the clients that were borrowed before it. At exit, all clients are
    closed.
    """
    # From Python 3.12 on, a fork in a process with threads is a DeprecationWarning.
    warnings = ["-W", "always::ResourceWarning", "-W", "ignore::DeprecationWarning"]
    command = [sys.executable, *warnings, "-c", PROGRAM, kafka.bootstrap_servers, filled]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (0, "") == (done.returncode, done.stderr)
