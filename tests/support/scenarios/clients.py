"""What aiokafka and kafka-python see on a broker, as lines of text: the same on FakeCluster as on Kafka.

`python -m support.scenarios.clients` writes what a real broker shows to `recorded/clients.txt`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from support.brokers.kafka_admin import wait_until

RECORDED = Path(__file__).parent / "recorded" / "clients.txt"
T0 = 1_700_000_000_000
DEADLINE_S = 30
SET_FOR_THE_TOPIC = 1  # the source of a setting
KEYS = [b"a", b"b", b"c", b"d", None]


def recorded() -> dict[str, list[str]]:
    """Returns what each client saw on a real broker, by the name of the scenario."""
    blocks = RECORDED.read_text().strip().split("\n\n")
    return {name: lines for name, *lines in (block.split("\n") for block in blocks)}


def seen(name: str, servers: str) -> list[str]:
    """Run a scenario. Returns what the client sees; its own names are replaced."""
    prefix = f"p{uuid.uuid4().hex[:8]}-"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python, for its own code
        return [line.replace(prefix, "~") for line in SCENARIOS[name](servers, prefix)]


def failed(call: Callable[[], object]) -> str:
    """Returns the name of the exception that a call raises, or "done"."""
    try:
        call()
        return "done"
    except Exception as error:
        return type(error).__name__


async def failed_later(call: Awaitable[object]) -> str:
    """Returns the name of the exception that an awaitable raises, or its result."""
    try:
        return str(await asyncio.wait_for(call, DEADLINE_S))
    except Exception as error:
        return type(error).__name__


async def until(ask: Callable[[], Awaitable[Any]], wanted: Callable[[Any], object]) -> Any:
    """Ask a broker again until it shows a change. Returns what it shows."""
    async with asyncio.timeout(DEADLINE_S):
        while not wanted(found := await ask()):
            await asyncio.sleep(0.02)
    return found


# --- aiokafka ---------------------------------------------------------------------------------------------------------


def of_aiokafka(scenario: Callable[[str, str], Any]) -> Callable[[str, str], list[str]]:
    """Returns the function that runs a coroutine function of lines."""

    async def lines(servers: str, prefix: str) -> list[str]:
        return [line async for line in scenario(servers, prefix)]

    return lambda servers, prefix: asyncio.run(lines(servers, prefix))


async def aiokafka_admin(servers: str, prefix: str) -> Any:
    """Topics are created, changed by the old request for settings, enlarged, emptied and deleted."""
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.structs import TopicPartition

    topic = f"{prefix}admin"

    def resource(**configs: str | None) -> ConfigResource:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        return ConfigResource(ConfigResourceType.TOPIC, topic, given)

    async with contextlib.AsyncExitStack() as stack:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        stack.push_async_callback(admin.close)

        async def settings() -> list[tuple[Any, ...]]:
            (found,) = await admin.describe_configs([resource(retention_ms=None, cleanup_policy=None)])
            return sorted((row[0], row[1]) for row in found.resources[0][4] if row[3] == SET_FOR_THE_TOPIC)

        for rows in ([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "5000"})], [NewTopic("a b", 1, 1)]):
            for _ in range(2):
                response = await admin.create_topics(rows)
                yield f"create {[(name, code) for name, code, *_ in response.topic_errors]}"
        await until(admin.list_topics, lambda names: topic in names)
        yield f"settings {await settings()}"
        for changes in ({"cleanup_policy": "compact"}, {"cleanup_policy": "burn"}, {"no_such": "1"}):
            before = await settings()
            (altered,) = await admin.alter_configs([resource(**changes)])
            (code,) = (row[0] for row in altered.resources)
            yield f"alter {changes} [{code}]"
            while not code and await settings() == before:
                await asyncio.sleep(0.02)
            yield f"settings {await settings()}"
        for count in (1, 2, 4):
            enlarged = await failed_later(admin.create_partitions({topic: NewPartitions(total_count=count)}))
            yield f"partitions {count} {enlarged if enlarged.isidentifier() else 'done'}"
        (described,) = await until(
            lambda: admin.describe_topics([topic]), lambda found: len(found[0]["partitions"]) == 4
        )
        yield f"topic {described['error_code']} {sorted(row['partition'] for row in described['partitions'])}"
        first = TopicPartition(topic, 0)
        yield f"empty {await failed_later(admin.delete_records({first: RecordsToDelete(before_offset=0)}))}"
        yield f"beyond {await failed_later(admin.delete_records({first: RecordsToDelete(before_offset=9)}))}"
        for _ in range(2):
            deleted = await admin.delete_topics([topic])
            yield f"delete {[row[1] for row in deleted.topic_error_codes]}"
            await until(admin.list_topics, lambda names: topic not in names)


async def aiokafka_records(servers: str, prefix: str) -> Any:
    """Records with keys, headers and timestamps, in transactions and outside; positions, times and commits."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    topic, group = f"{prefix}records", f"{prefix}group"
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 3, 1)])
    await admin.close()
    places = [TopicPartition(topic, partition) for partition in range(3)]
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number, key in enumerate(KEYS[:-1] * 2):
            done = await producer.send_and_wait(
                topic, b"%d" % number, key, timestamp_ms=T0 + number, headers=[("h", b"x")]
            )
            yield f"sent {key!r} {done.partition} {done.offset} {done.timestamp} {done.timestamp_type}"
        yield f"large {await failed_later(producer.send_and_wait(topic, bytes(2_000_000)))}"
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{prefix}tx") as producer:
        for commits in (True, False):
            await producer.begin_transaction()
            done = await producer.send_and_wait(topic, b"in", partition=0)
            yield f"in a transaction {done.partition} {done.offset}"
            await producer.send_offsets_to_transaction({places[1]: 1}, group)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    for isolation in ("read_committed", "read_uncommitted"):
        async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=isolation) as consumer:
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            ends = await consumer.end_offsets(places)
            yield f"{isolation} {sorted((place.partition, offset) for place, offset in ends.items())}"
            total = 10 if isolation == "read_uncommitted" else 9
            records: list[Any] = []
            while len(records) < total:
                found = await asyncio.wait_for(consumer.getmany(timeout_ms=500), DEADLINE_S)
                records += [record for some in found.values() for record in some]
            for record in sorted(records, key=lambda record: (record.partition, record.offset)):
                stamp = record.timestamp if record.key else ""
                yield f"{record.partition} {record.offset} {record.key} {record.value} {stamp} {record.headers}"
            times = await consumer.offsets_for_times(dict.fromkeys(places, T0 + 4))
            yield f"times {[(place.partition, found and found.offset) for place, found in sorted(times.items())]}"
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="none", enable_auto_commit=False
    ) as consumer:
        while not consumer.assignment():
            await asyncio.sleep(0.05)
        yield f"committed {[await consumer.committed(place) for place in places]}"
        await consumer.commit({places[0]: (2, "mine"), places[1]: 1})
        yield f"committed {[await consumer.committed(place) for place in places]}"
        consumer.seek(places[0], 999)
        yield f"out of range {await failed_later(consumer.getone(places[0]))}"


# --- kafka-python -----------------------------------------------------------------------------------------------------


def kafka_python_admin(servers: str, prefix: str) -> Iterator[str]:
    """Topics are created, changed by both requests for settings, enlarged and deleted; groups are described."""
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    topic = f"{prefix}admin"
    admin = KafkaAdminClient(bootstrap_servers=servers)

    def settings() -> list[tuple[str, str]]:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return sorted((name, row["value"]) for name, row in found["topic"][topic].items())

    def partitions() -> list[int]:
        return [len(row["partitions"]) for row in admin.describe_topics([topic])]

    try:
        options = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000"}}
        for _ in range(2):
            yield f"create {failed(partial(admin.create_topics, {topic: options}, wait_for_metadata=True))}"
        yield f"settings {settings()}"
        for incremental in (True, False):
            for changes in ({"max.message.bytes": "777"}, {"cleanup.policy": "compact"}, {"retention.ms": "soon"}):
                resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(changes))
                made = failed(partial(admin.alter_configs, [resource], incremental=incremental))
                valid = set() if "soon" in changes.values() else set(changes.items())
                wait_until(partial(lambda names: names <= set(settings()), valid), DEADLINE_S, "the change")
                yield f"alter {changes} {made} {settings()}"
        for count in (1, 4):
            yield f"partitions {count} {failed(partial(admin.create_partitions, {topic: count}))}"
        wait_until(lambda: partitions() == [4], DEADLINE_S, "the partitions")
        yield f"topic {partitions()}"
        yield f"offsets {admin.list_group_offsets({f'{prefix}none': None})}"
        for _ in range(2):
            yield f"delete {failed(partial(admin.delete_topics, [topic]))}"
            wait_until(lambda: topic not in admin.list_topics(), DEADLINE_S, "the deletion")
    finally:
        admin.close()


def kafka_python_records(servers: str, prefix: str) -> Iterator[str]:
    """Records with keys and headers, positions, times and commits of a group."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient

    topic, group = f"{prefix}records", f"{prefix}group"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics({topic: {"num_partitions": 3, "replication_factor": 1}}, wait_for_metadata=True)
    admin.close()
    places = [TopicPartition(topic, partition) for partition in range(3)]
    producer = KafkaProducer(bootstrap_servers=servers)
    for number, key in enumerate(KEYS[:-1] * 2):
        sent = producer.send(topic, b"%d" % number, key, headers=[("h", b"x")], timestamp_ms=T0 + number)
        done = sent.get(DEADLINE_S)
        yield f"sent {key!r} {done.partition} {done.offset} {done.timestamp}"
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        records: list[Any] = []
        while len(records) < 8:
            records += [record for some in consumer.poll(1000).values() for record in some]
        for record in sorted(records, key=lambda record: (record.partition, record.offset)):
            yield f"{record.partition} {record.offset} {record.key} {record.value} {record.timestamp} {record.headers}"
        yield f"positions {[consumer.position(place) for place in places]}"
        yield f"ends {sorted(consumer.end_offsets(places).values())}"
        times = consumer.offsets_for_times(dict.fromkeys(places, T0 + 4))
        yield f"times {[(place.partition, found and found.offset) for place, found in sorted(times.items())]}"
        consumer.commit()
        yield f"committed {[consumer.committed(place) for place in places]}"
    finally:
        consumer.close()


SCENARIOS: dict[str, Callable[[str, str], Any]] = {
    "aiokafka-admin": of_aiokafka(aiokafka_admin),
    "aiokafka-records": of_aiokafka(aiokafka_records),
    "kafka-python-admin": kafka_python_admin,
    "kafka-python-records": kafka_python_records,
}


if __name__ == "__main__":
    from support.brokers.kafka import KafkaCluster

    with KafkaCluster() as cluster:
        blocks = ["\n".join([name, *seen(name, cluster.bootstrap_servers)]) for name in SCENARIOS]
    RECORDED.write_text("\n\n".join(blocks) + "\n")
