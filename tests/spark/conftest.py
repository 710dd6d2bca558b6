"""A Spark session and a broker for all tests here; the session has our source and, if there is one for this version of
Spark, Spark's own.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import CHOSEN_VERSION, Kafka
from support.brokers.kafka_shared import shared_kafka
from support.harnesses.ordering import longest_first
from support.spark.python_path import python_path
from support.spark.recorded_source import Parity
from support.spark.spark_jars import SPARK_VERSION, has_own_source, postgres_driver, spark_kafka_jars
from support.spark.spark_settings import session_settings
from support.spark.table_formats import FORMATS, jars, placed

LONGEST = (
    "test_spark_parity_stream.py",
    "test_pipeline.py",
    "test_spark_parity_failures.py",
    "test_pipeline_kill.py",
    "test_spark_cluster.py",
    "test_spark_connect.py",
    "test_spark_executors.py",
    "test_pipeline_jdbc.py",
    "test_spark_extremes.py",
    "test_spark_docs.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test here more time, since it may wait for a JVM, and ignore warnings of pyspark about its own
    code.
    """
    here = Path(__file__).parent
    longest_first(items, LONGEST)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.broker)
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that reads with Spark's own source, and of which nothing is recorded, if there is no such source."""
    if item.get_closest_marker("parity") and item.get_closest_marker("long") and not has_own_source():
        pytest.fail(
            f"this test compares with Spark's own source, and needs pyspark {SPARK_VERSION}: tox -e spark-parity"
        )


def session(settings: dict[str, str], packages: list[Any]) -> Iterator[Any]:
    """Yield a session with two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = python_path()  # of the processes that plan, and of tasks
    from pyspark.sql import SparkSession

    import kconsumer.spark

    builder = SparkSession.builder.master("local[2]").appName("kconsumer tests")
    for key, value in {**session_settings(), **settings, "spark.jars": ",".join(map(str, packages))}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    kconsumer.spark.register(made)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session of all tests here that can share one."""
    yield from session({}, [*postgres_driver(), *(spark_kafka_jars() if has_own_source() else [])])


@pytest.fixture(scope="session")
def tables_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the packages of Delta and Iceberg. A process has this session or `spark`."""
    folder, settings = tmp_path_factory.mktemp("tables"), dict[str, str]()
    for about in FORMATS.values():
        settings |= placed(about["spark"], folder)
    settings["spark.sql.extensions"] = ",".join(about["spark"]["spark.sql.extensions"] for about in FORMATS.values())
    yield from session(settings, [jar for form in FORMATS for jar in jars(form)])


@pytest.fixture(scope="session")
def kafka(run_folder: Path) -> Kafka:
    """The broker that all tests of the run share."""
    return shared_kafka(run_folder, CHOSEN_VERSION)


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """The comparison of our source with Spark's own, or with what is recorded of it."""
    return Parity(request.node.name)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:8]}"
