"""The source with a login: Java's options reach the clients of driver and tasks, and secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import KafkaCluster
from support.brokers.sasl import MODULES, sasl_properties, set_password, write_secret
from support.harnesses.polling import numbered
from support.spark.spark_parity import OURS, failure
from support.spark.spark_progress import plan_of, run_stream

PASSWORD = "sesame-4711"


def entry(password: str) -> str:
    """Returns Java's form of a user and a password."""
    return f'{MODULES}scram.ScramLoginModule required username="spark" password="{password}";'


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """Returns options for a topic of two partitions with 30 and 20 records, on this module's own broker, which requires
    a login.
    """
    properties = sasl_properties("SASL", ("SCRAM-SHA-256", "OAUTHBEARER"), {})
    with KafkaCluster(properties=properties, listeners={"SASL": "SASL_PLAINTEXT"}) as kafka:
        set_password(kafka, "spark", PASSWORD, ("SCRAM-SHA-256",))
        kafka.create_topic("secured", 2)
        for partition, count in enumerate((30, 20)):
            kafka.produce("secured", numbered(count), partition=partition)
        yield {
            "kafka.bootstrap.servers": kafka.servers("SASL"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": entry(PASSWORD),
            "subscribe": "secured",
        }


@pytest.mark.parametrize("by_reference", [False, True])
def test_a_batch(spark: Any, options: dict[str, str], tmp_path: Path, by_reference: bool) -> None:
    """A batch reads every record, and neither the plan nor the query's description contains the password. The JAAS
    entry may be in a file that executors read.
    """
    if by_reference:
        options = {**options, "kafka.sasl.jaas.config": write_secret(tmp_path / "jaas", entry(PASSWORD))}
    frame = spark.read.format(OURS).options(**options).load()
    assert 50 == frame.count()
    text = plan_of(frame)
    assert "kconsumer" in text
    assert PASSWORD not in text


def test_a_stream(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    """A stream reads every record; its progress and its checkpoint do not contain the password."""
    frame = spark.readStream.format(OURS).options(**options, startingOffsets="earliest").load()
    text = run_stream(frame, "logged_in", tmp_path / "checkpoint")
    assert 50 == spark.sql("select count(*) from logged_in").first()[0]
    assert PASSWORD not in text


def test_a_token_provider_by_its_name(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    """The processes that plan batches and streams, and their tasks, import the token provider that an option names."""
    given = {key: value for key, value in options.items() if "jaas" not in key}
    given |= {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauth.token.provider": "support.spark.spark_tokens:token",
        "startingOffsets": "earliest",
    }
    assert 50 == spark.read.format(OURS).options(**given).load().count()
    run_stream(spark.readStream.format(OURS).options(**given).load(), "by_token", tmp_path / "checkpoint")
    assert 50 == spark.sql("select count(*) from by_token").first()[0]
    wrong = {**given, "kafka.sasl.oauth.token.provider": "support.spark.spark_tokens:none"}
    assert "spark_tokens:none" in failure(lambda: spark.read.format(OURS).options(**wrong).load().count())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kafka.sasl.jaas.config": entry("hunter2")}, "refused the login by SCRAM-SHA-256"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "is for sasl_mechanism=SCRAM-SHA-256 or SCRAM-SHA-512, not PLAIN"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "a listener with SASL does so to a client that does not log in"),
    ],
)
def test_failures(spark: Any, options: dict[str, str], changes: dict[str, str], reason: str) -> None:
    """A failed login raises an error at once that says what to change and does not contain the password."""
    text = failure(lambda: spark.read.format(OURS).options(**{**options, **changes}).load().collect())
    assert reason in text
    assert [] == [secret for secret in (PASSWORD, "hunter2") if secret in text]
