"""Other clients against FakeCluster: librdkafka (confluent-kafka) and kafka-python produce, read in groups, and
administer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kconsumer.testing import FakeCluster

DEADLINE_S = 20
VALUES = {f"value {i}".encode() for i in range(100)}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        yield cluster


def reader(cluster: FakeCluster, **options: Any) -> confluent_kafka.Consumer:
    """Returns a consumer of librdkafka, which reads from the first record on."""
    chosen = {"group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 200, **options}
    return confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, **chosen})


def read(consumer: confluent_kafka.Consumer, count: int) -> list[bytes | None]:
    """Poll until a number of records have arrived. Returns their values."""
    values: list[bytes | None] = []

    def poll() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            values.append(message.value())
        return len(values) >= count

    until(poll)
    return values


def until(condition: Callable[[], bool]) -> None:
    """Repeat a call until it returns true."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"


@pytest.mark.parametrize("idempotent", [False, True])
def test_librdkafka_in_a_group(cluster: FakeCluster, idempotent: bool) -> None:
    """librdkafka produces records, and two of its consumers read them as a group and commit."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": idempotent, "compression.type": "lz4"}
    )
    errors: list[Any] = []
    for value in VALUES:
        producer.produce("t", value, key=value, on_delivery=lambda error, _: errors.append(error))
    assert 0 == producer.flush(DEADLINE_S)
    assert {None} == set(errors)
    first, second = reader(cluster), reader(cluster)
    try:
        first.subscribe(["t"])
        assert set(read(first, len(VALUES))) == VALUES
        first.commit(asynchronous=False)
        assert len(VALUES) == sum(row.offset for row in cluster.committed("g").values())
        second.subscribe(["t"])

        def shared() -> bool:
            first.poll(0.05)
            second.poll(0.05)
            counts = len(first.assignment()), len(second.assignment())
            return sum(counts) == 3 and min(counts) > 0

        until(shared)
        assert 2 == len(cluster.group("g").members)
    finally:
        first.close()
        second.close()


def test_transactions_of_librdkafka(cluster: FakeCluster) -> None:
    """A transactional producer of librdkafka commits and aborts; its consumer reads what was committed."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "transactional"}
    )
    producer.init_transactions(DEADLINE_S)
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        producer.flush(DEADLINE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_S)
    consumer = reader(cluster, **{"isolation.level": "read_committed"})
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        assert [b"a", b"c"] == read(consumer, 2)
    finally:
        consumer.close()


def test_administration_by_librdkafka(cluster: FakeCluster) -> None:
    """librdkafka creates, lists and deletes topics."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for result in admin.create_topics([NewTopic("new", 2, 1)]).values():
        assert result.result(DEADLINE_S) is None
    assert {"new", "t"} <= set(admin.list_topics(timeout=DEADLINE_S).topics)
    for result in admin.delete_topics(["new"]).values():
        assert result.result(DEADLINE_S) is None
    assert "new" not in admin.list_topics(timeout=DEADLINE_S).topics


def test_acls_by_librdkafka() -> None:
    """librdkafka creates, describes and deletes ACLs; they apply, and READ does not show the settings of a topic."""
    users = {"admin": "s", "alice": "s"}
    sasl = {"mechanism": "PLAIN", "users": users}
    with FakeCluster(sasl=sasl, authorizer_class_name="x", super_users=("User:admin",)) as cluster:
        cluster.create_topic("t")
        admin, alice = (AdminClient(login(cluster, user)) for user in users)
        rules = {"principal": "User:alice", "host": "*", "permission_type": AclPermissionType.ALLOW}
        binding = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, operation=AclOperation.READ, **rules)
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        assert [None] == [found.result(DEADLINE_S) for found in admin.create_acls([binding]).values()]
        assert [binding] == admin.describe_acls(everything).result(DEADLINE_S)
        assert ["t"] == list(alice.list_topics(timeout=DEADLINE_S).topics)
        for found in alice.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values():
            with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                found.result(DEADLINE_S)
        assert [[binding]] == [found.result(DEADLINE_S) for found in admin.delete_acls([everything]).values()]
        assert [] == admin.describe_acls(everything).result(DEADLINE_S)


def login(cluster: FakeCluster, user: str) -> dict[str, str]:
    """Returns the options of a client that authenticates by PLAIN."""
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": "s",
    }


def test_librdkafka_members_of_both_protocols() -> None:
    """A member of the classic protocol joins a group of the consumer protocol, and both get partitions."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=200) as cluster:
        cluster.create_topic("t", 4)
        options = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
        classic = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200}
        members = [confluent_kafka.Consumer({**options, **own}) for own in ({"group.protocol": "consumer"}, classic)]

        def assigned(count: int) -> bool:
            for member in members[:count]:
                member.poll(0.05)
            return sorted(len(member.assignment()) for member in members[:count]) == [4 // count] * count

        try:
            for count, member in enumerate(members, start=1):
                member.subscribe(["t"])
                until(partial(assigned, count))
        finally:
            for member in members:
                member.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_authenticates(mechanism: str) -> None:
    """librdkafka authenticates by each mechanism, and produces and reads."""
    with FakeCluster(sasl={"mechanism": mechanism, "users": {"alice": "secret"}}) as cluster:
        cluster.create_topic("t")
        options = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **options})
        producer.produce("t", b"a")
        assert 0 == producer.flush(DEADLINE_S)
        consumer = reader(cluster, **options)
        try:
            consumer.subscribe(["t"])
            assert [b"a"] == read(consumer, 1)
        finally:
            consumer.close()
