"""The source over mutual TLS: options reach the clients of driver and tasks, and secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.certificates import Authority, broker_properties
from support.brokers.kafka import KafkaCluster
from support.harnesses.polling import numbered
from support.spark.spark_parity import OURS, failure
from support.spark.spark_progress import plan_of, run_stream

PASSWORD = "sesame-4711"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Returns options for a topic of two partitions with 30 and 20 records, on this module's own broker, which requires
    certificates.
    """
    folder, authority = tmp_path_factory.mktemp("tls"), Authority()
    properties = broker_properties(folder, authority, authority.issue(), ("MTLS",), asking=("MTLS",))
    client = authority.issue("reader", hosts=())
    with KafkaCluster(properties=properties, listeners={"MTLS": "SSL"}) as kafka:
        kafka.create_topic("secured", 2)
        for partition, count in enumerate((30, 20)):
            kafka.produce("secured", numbered(count), partition=partition)
        yield {
            "kafka.bootstrap.servers": kafka.servers("MTLS"),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": authority.certificate,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": client.chain,
            "kafka.ssl.keystore.key": client.encrypted(PASSWORD),
            "kafka.ssl.key.password": PASSWORD,
            "subscribe": "secured",
        }


def secrets(options: dict[str, str]) -> list[str]:
    """Returns the secrets: the password, and lines of the key."""
    return [PASSWORD, *options["kafka.ssl.keystore.key"].splitlines()[1:3]]


def test_a_batch(spark: Any, options: dict[str, str]) -> None:
    """A batch reads every record, and neither the plan nor the query's description contains a secret."""
    frame = spark.read.format(OURS).options(**options).load()
    assert 50 == frame.count()
    text = plan_of(frame)
    assert "kconsumer" in text
    assert [] == [secret for secret in secrets(options) if secret in text]


def test_a_stream(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    """A stream reads every record, and its progress contains no secret."""
    frame = spark.readStream.format(OURS).options(**options, startingOffsets="earliest").load()
    text = run_stream(frame, "secured", tmp_path / "checkpoint")
    assert 50 == spark.sql("select count(*) from secured").first()[0]
    assert [] == [secret for secret in secrets(options) if secret in text]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kafka.ssl.key.password": "file:/no/such/file"}, "ssl_key_password: file /no/such/file cannot be read"),
        ({"kafka.ssl.key.password": "hunter2-4711"}, "ssl_key_password does not open the key"),
        ({"kafka.ssl.truststore.certificates": Authority().certificate}, "no trusted certificate vouches"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "speaks TLS; set security_protocol to SSL"),
    ],
)
def test_failures(spark: Any, options: dict[str, str], changes: dict[str, str], reason: str) -> None:
    """A failed handshake raises an error at once that says what to change and contains no secret."""
    text = failure(lambda: spark.read.format(OURS).options(**{**options, **changes}).load().collect())
    assert reason in text
    assert [] == [secret for secret in [*secrets(options), "hunter2"] if secret in text]
