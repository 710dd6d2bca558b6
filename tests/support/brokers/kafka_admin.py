"""Operations on a running Kafka from outside: topics, records, leaders, committed offsets.

All of them use confluent-kafka, a client that shares no code with the one under test.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

METADATA_TRY_S = 5
ADMIN_TIMEOUT_S = 30
OFFSETS_TOPIC = "__consumer_offsets"


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Returns the first truthy result of `condition`. Raises TimeoutError, which names `what`, after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.05)
    return found


def java_hash(text: str) -> int:
    """Returns Java's String.hashCode, which selects a group's partition of __consumer_offsets."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


class Kafka:
    """A running cluster, given by its bootstrap servers, as a client sees it."""

    def __init__(self, bootstrap_servers: str, version: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.version = version
        self._admin: AdminClient | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.version}, {self.bootstrap_servers})"

    @property
    def admin(self) -> AdminClient:
        """Returns a confluent-kafka admin client, for what the helpers below do not cover."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        return self._admin

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and wait until every partition has a leader. Returns its name."""
        return self.create(NewTopic(name, partitions, replication, config=dict(config or {})))

    def create(self, topic: NewTopic) -> str:
        """Create a topic from a NewTopic with any attributes, and wait as `create_topic` does."""
        name, count = topic.topic, len(topic.replica_assignment or ()) or topic.num_partitions
        try:
            self.admin.create_topics([topic])[name].result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            # librdkafka may lose its handle of a broker just after the start of a cluster, or, with ZooKeeper, ask one
            # that is not the controller any more; a new client asks again.
            if error.args[0].code() not in (KafkaError._DESTROY_BROKER, KafkaError.NOT_CONTROLLER):
                raise
            self._admin = None
            failure = self.admin.create_topics([topic])[name].exception(ADMIN_TIMEOUT_S)
            if failure is not None and failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise failure from error
        self.wait_for_partitions(name, count)
        return name

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(ADMIN_TIMEOUT_S)
        self.wait_for_partitions(name, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until metadata no longer lists it and another one may have its name."""
        self.admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)
        wait_until(lambda: name not in self.metadata().topics, ADMIN_TIMEOUT_S, f"deletion of {name}")
        # A broker with ZooKeeper keeps the name for a while.
        wait_until(lambda: self._is_free(name), ADMIN_TIMEOUT_S, f"end of the deletion of {name}")

    def _is_free(self, name: str) -> bool:
        """Returns False if a topic has this name."""
        failure = self.admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].exception(ADMIN_TIMEOUT_S)
        return failure is None or failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Move the log start offset of the given partitions (partition -> first offset to keep)."""
        wanted = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        for future in self.admin.delete_records(wanted).values():
            future.result(ADMIN_TIMEOUT_S)

    def metadata(self, topic: str | None = None) -> Any:
        """Request metadata. Returns confluent-kafka's ClusterMetadata."""
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while True:
            try:
                return self.admin.list_topics(topic, timeout=METADATA_TRY_S)
            except KafkaException:
                # librdkafka may wait for a broker that was killed under it; a new client asks another one.
                if time.monotonic() > deadline:
                    raise
                self._admin = None

    def wait_for_partitions(self, name: str, count: int) -> None:
        """Wait until metadata shows `count` partitions of a topic, each with a leader."""

        def led() -> bool:
            topic = self.metadata().topics.get(name)
            partitions = topic.partitions.values() if topic else ()
            return len(partitions) == count and all(partition.leader >= 0 for partition in partitions)

        wait_until(led, ADMIN_TIMEOUT_S, f"leaders for {count} partitions of {name}")

    # Who is where

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Returns the id of the broker that leads a partition now, or -1 if there is none."""
        return int(self._partitions_of(topic)[partition].leader)

    def coordinator_of(self, group: str) -> int:
        """Returns the broker id of a group's coordinator: the leader of the group's partition of __consumer_offsets."""
        if OFFSETS_TOPIC not in self.metadata().topics:
            self._look_up_coordinator(group)
        partitions = len(self._partitions_of(OFFSETS_TOPIC))
        self.wait_for_partitions(OFFSETS_TOPIC, partitions)
        return self.leader_of(OFFSETS_TOPIC, abs(java_hash(group)) % partitions)

    def _look_up_coordinator(self, group: str) -> None:
        """Look the coordinator up: the first lookup of any coordinator makes the broker create the offsets topic."""
        # An AdminClient may wait for ever for the response to that first lookup (confluent-kafka 2.16).
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": group, "log_level": 0})
        try:
            consumer.committed([TopicPartition("none", 0)], timeout=METADATA_TRY_S)
        except KafkaException:
            pass  # there is none yet
        finally:
            consumer.close()

    def _partitions_of(self, topic: str) -> Any:
        """Returns the partitions of an existing topic, after a broker that has just started knows it, too."""

        def listed() -> Any:
            found = self.metadata().topics.get(topic)
            return found and found.partitions

        return wait_until(listed, ADMIN_TIMEOUT_S, f"metadata of {topic}")

    # Groups and offsets

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Returns the committed offsets of a group in one topic, by partition."""
        asked = [TopicPartition(topic, partition) for partition in self.metadata().topics[topic].partitions]
        self.coordinator_of(group)
        # AdminClient.list_consumer_group_offsets crashes while a coordinator loads (confluent-kafka 2.16).
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": group, "log_level": 0})
        try:
            found = wait_until(lambda: self._ask_committed(consumer, asked), ADMIN_TIMEOUT_S, "OffsetFetch")
        finally:
            consumer.close()
        return {tp.partition: tp.offset for tp in found if tp.offset >= 0}

    @staticmethod
    def _ask_committed(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition] | None:
        """Send one OffsetFetch. Returns None while the coordinator moves or loads."""
        try:
            return list(consumer.committed(asked, timeout=ADMIN_TIMEOUT_S))
        except KafkaException as error:
            if error.args[0].name() in (
                "NOT_COORDINATOR",
                "COORDINATOR_LOAD_IN_PROGRESS",
                "COORDINATOR_NOT_AVAILABLE",
            ):
                return None
            raise

    def group_state(self, group: str) -> str:
        """Returns the broker's name of the state, such as STABLE or EMPTY, or UNKNOWN if no broker responded."""
        try:
            return str(self.admin.describe_consumer_groups([group])[group].result(ADMIN_TIMEOUT_S).state.name)
        except (KafkaException, TimeoutError):
            return "UNKNOWN"

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Returns the offset after the last record of each partition."""
        partitions = self.metadata().topics[topic].partitions
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
        end = time.monotonic() + ADMIN_TIMEOUT_S
        while True:
            futures = self.admin.list_offsets(asked)
            try:
                return {tp.partition: future.result(ADMIN_TIMEOUT_S).offset for tp, future in futures.items()}
            except KafkaException as error:
                # Metadata may name a leader that does not lead the new partition yet.
                if error.args[0].name() != "NOT_LEADER_FOR_PARTITION" or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    # Records

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = -1,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamps: Sequence[int] | None = None,
        compression: str = "none",
        config: Mapping[str, Any] | None = None,
    ) -> int:
        """Write records and wait for all acknowledgements. Returns the number of records.

        `headers` are added to every record; `timestamps` are milliseconds per record; `config` is librdkafka's.
        """
        errors: list[object] = []
        producer = self.producer({"compression.type": compression, **(config or {})})
        count = 0
        for count, value in enumerate(values, 1):
            extra: dict[str, Any] = {"headers": list(headers)} if headers else {}
            if timestamps is not None:
                extra["timestamp"] = timestamps[count - 1]
            self._send(producer, topic, value, partition, keys[count - 1] if keys else None, errors, extra)
        if producer.flush(ADMIN_TIMEOUT_S) or errors:
            raise RuntimeError(f"producing to {topic} failed: {errors[:3] or 'not acknowledged in time'}")
        return count

    @staticmethod
    def _send(
        producer: Producer,
        topic: str,
        value: bytes | None,
        partition: int,
        key: bytes | None,
        errors: list[object],
        extra: dict[str, Any],
    ) -> None:
        """Queue one record, waiting while the producer's queue is full."""

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                errors.append(error)

        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered, **extra)
                return
            except BufferError:
                producer.poll(0.1)

    def producer(self, config: Mapping[str, Any] | None = None) -> Producer:
        """Returns a confluent-kafka producer to this cluster."""
        return Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "linger.ms": 5, **(config or {})})

    def produce_transaction(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        commit: bool = True,
        partition: int = 0,
        transactional_id: str = "",
    ) -> None:
        """Write records in one transaction, commit or abort it, and wait for its marker in the log."""
        written = list(values)
        marked = self.end_offsets(topic)[partition] + len(written) + 1
        producer = self.producer({"transactional.id": transactional_id or uuid.uuid4().hex})
        producer.init_transactions(ADMIN_TIMEOUT_S)
        producer.begin_transaction()
        for value in written:
            producer.produce(topic, value, partition=partition)
        producer.flush(ADMIN_TIMEOUT_S)  # aborted records must have reached the log to be worth testing
        if commit:
            producer.commit_transaction(ADMIN_TIMEOUT_S)
        else:
            producer.abort_transaction(ADMIN_TIMEOUT_S)
        # The coordinator responds before partition leaders have their markers.
        wait_until(lambda: self.end_offsets(topic)[partition] >= marked, ADMIN_TIMEOUT_S, f"marker in {topic}")
