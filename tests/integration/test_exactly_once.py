"""Offsets in the transactions of other clients' producers: each record is processed once, and a former member cannot
commit.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kconsumer import Consumer, GroupMetadata, TopicPartition
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.databases.postgres import Postgres

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "tests" / "support" / "oracles" / "exactly_once.py"
RECORDS = 2_000
TOTAL = RECORDS + 100
DEADLINE_S = 90
# The process is killed in the middle of the second transaction, after sending its offsets, and after its commit.
KILLS = {
    "confluent": ("produce:700:after", "send_offsets_to_transaction:2:after", "commit_transaction:2:after"),
    "kafka_python": ("send:700:after", "send_offsets_to_transaction:2:after", "commit_transaction:2:after"),
}


def start(client: str, kill: str, *arguments: str) -> subprocess.Popen[str]:
    """Start the example for this client."""
    example = ROOT / "examples" / f"exactly_once_{client}.py"
    # -P: the folder of WORKER contains a module `kafka`, too.
    command = [sys.executable, "-P", str(WORKER), str(example), kill, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_values(kafka: Kafka, topic: str, isolation_level: str, count: int = 0) -> list[bytes]:
    """Read at least `count` records of the topic's only partition, and then up to its end."""
    partition = TopicPartition(topic, 0)
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation_level) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        while len(values) < count or consumer.position(partition) < consumer.end_offsets([partition])[partition]:
            assert time.monotonic() < deadline, f"{len(values)} records of {count}"
            values += [record.value for record in consumer.poll(0.5)]
    return values


@pytest.mark.parametrize("client", KILLS)
def test_each_record_once_across_kills(kafka: Kafka, topic_name: str, client: str) -> None:
    """The examples are killed at three points and started again; a read_committed reader sees each result once."""
    source, target = f"{topic_name}-in", f"{topic_name}-out"
    kafka.create_topic(source, partitions=2)
    kafka.create_topic(target, partitions=1)
    kafka.produce(source, [b"r%d" % number for number in range(RECORDS)])
    arguments = (kafka.bootstrap_servers, topic_name, source, target)
    for kill in KILLS[client]:
        with start(client, kill, *arguments) as process:
            output, _ = process.communicate(timeout=DEADLINE_S)
            assert -signal.SIGKILL == process.returncode, output
    # The last process always has records to transfer, and so it waits for SIGINT when they have arrived.
    kafka.produce(source, [b"r%d" % number for number in range(RECORDS, TOTAL)])
    with start(client, "none", *arguments) as process:
        read_values(kafka, target, "read_committed", TOTAL)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert (0, "leaving the group\n") == (process.returncode, output)
    expected = sorted(b"R%d" % number for number in range(TOTAL))
    assert expected == sorted(read_values(kafka, target, "read_committed"))
    assert len(expected) < len(read_values(kafka, target, "read_uncommitted"))  # some transactions were aborted


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Postgres:
    """The server, without tables."""
    postgres.rows("DROP TABLE IF EXISTS results; DROP TABLE IF EXISTS offsets")
    return postgres


def wait_for_results(database: Postgres, count: int) -> list[str]:
    """Wait until the table of results has at least `count` rows. Returns them, sorted."""
    table = "SELECT count(*) FROM pg_tables WHERE tablename = 'results'"
    wait_until(lambda: database.rows(table) != [("0",)], DEADLINE_S, "the table of results")
    rows = "SELECT count(*) FROM results"
    wait_until(lambda: int(database.rows(rows)[0][0]) >= count, DEADLINE_S, f"{count} results")
    return sorted(value for (value,) in database.rows("SELECT value FROM results"))


def test_results_in_postgres_across_kills(kafka: Kafka, topic_name: str, database: Postgres) -> None:
    """The example is killed in a transaction, before it is committed, and after; the table has each result once."""
    kafka.create_topic(topic_name, partitions=2)
    kafka.produce(topic_name, [b"r%d" % number for number in range(RECORDS)])
    arguments = (kafka.bootstrap_servers, topic_name, topic_name, database.url)
    for kill in ("write_results:2:after", "before_commit:2:after", "transfer:2:after"):
        with start("postgres", kill, *arguments) as process:
            output, _ = process.communicate(timeout=DEADLINE_S)
            assert -signal.SIGKILL == process.returncode, output
    # The last process always has records to store, and so it waits for SIGINT when they have arrived.
    kafka.produce(topic_name, [b"r%d" % number for number in range(RECORDS, TOTAL)])
    with start("postgres", "none", *arguments) as process:
        found = wait_for_results(database, TOTAL)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert (0, "leaving the group\n") == (process.returncode, output)
    assert sorted(f"R{number}" for number in range(TOTAL)) == found


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", [*KILLS, "postgres"])
def test_each_record_once_across_random_kills(
    kafka: Kafka, topic_name: str, client: str, request: pytest.FixtureRequest
) -> None:
    """Two processes of a group are killed at random times and started again, while records are written. Each result is
    there once. KCONSUMER_KILLS sets the number of kills, and KCONSUMER_KILLS_SEED draws the same times again.
    """
    seed = int(os.environ.get("KCONSUMER_KILLS_SEED", time.time_ns() % 1_000_000))
    kills = int(os.environ.get("KCONSUMER_KILLS", "12"))
    print(f"seed {seed}, {kills} kills")
    draw = random.Random(seed)
    source, target = f"{topic_name}-in", f"{topic_name}-out"
    kafka.create_topic(source, partitions=4)
    kafka.create_topic(target, partitions=1)
    database: Postgres | None = request.getfixturevalue("database") if client == "postgres" else None
    arguments = (kafka.bootstrap_servers, topic_name, source, target if database is None else database.url)
    total = 0
    with contextlib.ExitStack() as stack:
        processes: dict[str, subprocess.Popen[str]] = {}

        def run(number: str) -> None:
            process = processes[number] = stack.enter_context(start(client, "none", *arguments, number))
            stack.callback(process.kill)

        for number in ("0", "1"):
            run(number)
        for _ in range(kills):
            for _ in range(draw.randint(1, 5)):
                kafka.produce(source, [b"r%d" % n for n in range(total, total + 500)])
                total += 500
                time.sleep(draw.uniform(0, 0.5))
            killed = draw.choice(("0", "1"))
            assert processes[killed].poll() is None, processes[killed].communicate()[0]
            processes[killed].kill()
            processes[killed].wait()
            run(killed)
            time.sleep(draw.uniform(0, 3))  # most of the time until the new process reads
        if database is None:
            read_values(kafka, target, "read_committed", total)
        else:
            wait_for_results(database, total)
        for process in processes.values():
            assert process.poll() is None, process.communicate()[0]
            process.kill()
    expected = sorted(f"R{number}" for number in range(total))
    if database is None:
        found = sorted(value.decode() for value in read_values(kafka, target, "read_committed"))
    else:
        found = wait_for_results(database, total)
    assert expected == found


Send = Callable[[int, GroupMetadata], None]


@contextlib.contextmanager
def confluent_producer(kafka: Kafka, partition: TopicPartition) -> Iterator[Send]:
    """Commit an offset in a transaction by confluent-kafka. On an error, abort and raise the producer's error."""
    producer = kafka.producer({"transactional.id": partition.topic})
    producer.init_transactions()

    def send(offset: int, metadata: GroupMetadata) -> None:
        producer.begin_transaction()
        try:
            at = confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
            producer.send_offsets_to_transaction([at], metadata)
            producer.commit_transaction()
        except confluent_kafka.KafkaException:
            producer.abort_transaction()
            raise

    yield send


@contextlib.contextmanager
def kafka_python_producer(kafka: Kafka, partition: TopicPartition) -> Iterator[Send]:
    """Commit an offset in a transaction by kafka-python. On an error, abort and raise the producer's error."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=partition.topic)
    producer.init_transactions()

    def send(offset: int, metadata: GroupMetadata) -> None:
        producer.begin_transaction()
        try:
            producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset)}, metadata)
            producer.commit_transaction()
        except KafkaError:
            producer.abort_transaction()
            raise

    try:
        yield send
    finally:
        producer.close()


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")  # of kafka-python's import
@pytest.mark.parametrize("producer", [confluent_producer, kafka_python_producer])
def test_only_the_present_member_commits(
    kafka: Kafka,
    topic_name: str,
    new_consumer: Callable[..., Consumer],
    producer: Callable[[Kafka, TopicPartition], contextlib.AbstractContextManager[Send]],
) -> None:
    """Both producers accept the result of `group_metadata()`. The broker rejects the metadata of another generation or
    member.
    """
    partition = TopicPartition(kafka.create_topic(topic_name), 0)
    kafka.produce(topic_name, [b"a"])
    consumer = new_consumer(topic_name, group_id=topic_name, enable_auto_commit=False)
    while not consumer.poll(1.0):
        pass
    mine = consumer.group_metadata()
    with producer(kafka, partition) as send:
        send(7, mine)
        for stale in (
            GroupMetadata(mine.group_id, mine.generation_id + 5, mine.member_id),
            GroupMetadata(mine.group_id, mine.generation_id, "unknown"),
        ):
            with pytest.raises(Exception, match=r"(?i)generation|member"):
                send(8, stale)
    committed = consumer.committed([partition])[partition]
    assert committed is not None
    assert 7 == committed.offset
