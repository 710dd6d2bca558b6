"""Kerberos logins with an MIT key distribution centre and a real broker."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.errors import AuthenticationError
from support.brokers.kafka import HOST, JVM_LIGHT, Kafka, KafkaCluster
from support.brokers.kerberos import REALM, KeyCentre

pytestmark = pytest.mark.broker

SESSION_MS = 3_000
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyCentre]:
    """The key distribution centre of a realm; clients in this process are configured to use it."""
    before = os.environ.get("KRB5_CONFIG")
    with KeyCentre(tmp_path_factory.mktemp("kerberos")) as centre:
        os.environ["KRB5_CONFIG"] = str(centre.conf)
        yield centre
        os.environ.pop("KRB5_CONFIG")
        if before is not None:
            os.environ["KRB5_CONFIG"] = before


@pytest.fixture(scope="module")
def kafka(keys: KeyCentre) -> Iterator[KafkaCluster]:
    """A broker with a listener KERBEROS, whose principal is kafka/127.0.0.1."""
    service = f"kafka/{HOST}"
    entry = (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keys.add(service)}" principal="{service}@{REALM}";'
    )
    properties = {
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.gssapi.sasl.jaas.config": entry,
        "listener.name.kerberos.gssapi.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.kerberos.sasl.kerberos.service.name": "kafka",
    }
    jvm = (*JVM_LIGHT, f"-Djava.security.krb5.conf={keys.conf}")
    listeners = {"KERBEROS": "SASL_PLAINTEXT"}
    with KafkaCluster(properties=properties, listeners=listeners, jvm=jvm) as cluster:
        yield cluster


@pytest.fixture
def topic_name() -> str:
    """A topic, group and principal that no other test uses."""
    return f"kerberos-{uuid.uuid4().hex[:8]}"


def options(kafka: Kafka, **changes: Any) -> dict[str, Any]:
    """Returns the options of a client of that listener."""
    assert isinstance(kafka, KafkaCluster)
    return {
        "bootstrap_servers": kafka.servers("KERBEROS"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        **changes,
    }


def read_one(consumer: Consumer) -> bytes | None:
    """Returns the value of the next record."""
    for _ in range(100):
        for record in consumer.poll(0.2):
            value: bytes | None = record.value
            return value
    raise AssertionError("no record came")


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_with_a_keytab(kafka: Kafka, keys: KeyCentre, topic_name: str, engine: str) -> None:
    """A ticket is obtained with the keytab, without kinit; the session is prolonged while the consumer reads."""
    kafka.create_topic(topic_name)
    user = {"sasl_kerberos_principal": f"{topic_name}@{REALM}", "sasl_kerberos_keytab": keys.add(topic_name)}
    chosen = options(kafka, group_id=topic_name, auto_offset_reset="earliest", engine=engine, **user)
    with Consumer(topic_name, **chosen) as consumer:
        for round_ in range(5):
            kafka.produce(topic_name, [b"%d" % round_])
            assert b"%d" % round_ == read_one(consumer)
            consumer.poll(0.8)


def test_with_a_ticket_and_javas_entry(kafka: Kafka, keys: KeyCentre, topic_name: str) -> None:
    """A client with a ticket (from kinit) logs in with it."""
    keytab = keys.add(topic_name)
    subprocess.run(["kinit", "-k", "-t", keytab, f"{topic_name}@{REALM}"], check=True)
    entry = f'{MODULE} required useTicketCache=true serviceName="kafka";'
    chosen = options(kafka, sasl_jaas_config=entry)
    del chosen["sasl_kerberos_service_name"]
    with Consumer(**chosen) as consumer:
        kafka.create_topic(topic_name)
        assert topic_name in consumer.list_topics()
    subprocess.run(["kdestroy"], check=True)


def test_a_wrong_service_name(kafka: Kafka, keys: KeyCentre, topic_name: str) -> None:
    """The key distribution centre does not have the service name. The error contains its message and what to check."""
    user = {"sasl_kerberos_principal": f"{topic_name}@{REALM}", "sasl_kerberos_keytab": keys.add(topic_name)}
    with (
        Consumer(**options(kafka, **user, sasl_kerberos_service_name="kafak")) as consumer,
        pytest.raises(AuthenticationError, match=r"not found in Kerberos database.*check sasl_kerberos_service_name"),
    ):
        consumer.list_topics()


@pytest.mark.parametrize("problem", ["no file", "old key"])
def test_a_keytab_of_no_use(kafka: Kafka, keys: KeyCentre, topic_name: str, tmp_path: Path, problem: str) -> None:
    """A missing keytab, or one whose key was changed since, raises an error."""
    keytab = keys.add(topic_name)
    if problem == "no file":
        keytab = str(tmp_path / "none")
    else:
        keys.new_key(topic_name)
    user = {"sasl_kerberos_principal": f"{topic_name}@{REALM}", "sasl_kerberos_keytab": keytab}
    with (
        Consumer(**options(kafka, **user)) as consumer,
        pytest.raises(AuthenticationError, match="check sasl_kerberos_service_name, the ticket"),
    ):
        consumer.list_topics()
