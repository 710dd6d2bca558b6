"""One Spark session and one broker for all tests here; both of Spark's Kafka sources can be used in it."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import DEFAULT_VERSION, Kafka
from support.brokers.kafka_shared import shared_kafka
from support.harnesses.ordering import longest_first
from support.spark.spark_jars import spark_kafka_jars

LONGEST = (
    "test_pipeline_kill.py",
    "test_spark_parity_stream.py",
    "test_pipeline.py",
    "test_spark_recovery.py",
    "test_spark_cluster.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here waits for a JVM now and then, and pyspark warns of things that are not ours."""
    here = Path(__file__).parent
    longest_first(items, LONGEST)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.broker)
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


def session_settings() -> dict[str, str]:
    """What sessions of tests are made with: quick to start, no web server."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.session.timeZone": "UTC",
    }


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session of two cores that knows both sources."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import kconsumer.spark

    builder = SparkSession.builder.master("local[2]").appName("kconsumer tests")
    jars = ",".join(str(jar) for jar in spark_kafka_jars())
    for key, value in {**session_settings(), "spark.jars": jars}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    kconsumer.spark.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(run_folder: Path) -> Kafka:
    """The run's shared broker."""
    return shared_kafka(run_folder, os.environ.get("KAFKA_VERSION", DEFAULT_VERSION))


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:8]}"
