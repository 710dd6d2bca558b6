"""Pipelines into tables of Delta and Iceberg, with their own packages in the session.

The packages are those for Spark 4.1, the newest version for which both exist: `tox -e spark-tables`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.brokers.kafka_jars import Artifact, resolve
from support.spark.spark_jars import NOTHING_ELSE

ROOT = Path(__file__).parents[2]
RECORDS = 500
SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
FORMATS: dict[str, dict[str, Any]] = {
    "delta": {
        "artifacts": tuple(
            Artifact("io.delta", name, "4.2.0", NOTHING_ELSE)
            for name in ("delta-spark_4.1_2.13", "delta-storage", "delta-kernel-api", "delta-kernel-defaults")
        ),
        "sink": {"path": "{folder}/rows"},
        "read": "SELECT id, date FROM delta.`{folder}/rows`",
        "spark": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    },
    "iceberg": {
        "artifacts": (Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", NOTHING_ELSE),),
        "sink": {"table": "lake.shop.rows"},
        "read": "SELECT id, date FROM lake.shop.rows",
        "spark": {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": "{folder}/lake",
        },
    },
}


@pytest.mark.long
@pytest.mark.tables
@pytest.mark.timeout(400)
@pytest.mark.parametrize("form", FORMATS)
def test_rows_are_in_the_table_once(kafka: Kafka, topic_name: str, tmp_path: Path, form: str) -> None:
    """The rows of a micro-batch that is run again, because the driver died before it recorded the end of it, are in the
    table once.
    """
    kafka.create_topic(topic_name, 2)
    values: list[bytes | None] = [b'{"id": %d}' % number for number in range(RECORDS)]
    for partition in range(2):
        kafka.produce(topic_name, values[partition::2], partition=partition)
    about = FORMATS[form]
    document = {
        "pipeline": {
            "source": {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "subscribe": topic_name,
                "startingOffsets": "earliest",
            },
            "decode": {"schema": "id long"},
            "dead_letters": {"path": str(tmp_path / "dead")},
            "sink": {"format": form, "partition_by": ["date"], **placed(about["sink"], tmp_path)},
            "run": {"name": topic_name, "checkpoint": str(tmp_path / "checkpoint")},
        },
        "spark": {**SMALL, **placed(about["spark"], tmp_path)},
        "read": about["read"].format(folder=tmp_path),
    }
    jars = [str(jar) for jar in resolve(f"spark-{form}", *about["artifacts"])]
    first, again = run(jars, document)
    assert (RECORDS, RECORDS) == (first["rows"], again["rows"])
    for found in (first["table"], again["table"]):
        assert list(range(RECORDS)) == sorted(row["id"] for row in found)
        assert None not in {row["date"] for row in found}


def placed(texts: dict[str, str], folder: Path) -> dict[str, str]:
    """Returns the texts with `{folder}` replaced."""
    return {key: value.format(folder=folder) for key, value in texts.items()}


def run(jars: list[str], document: dict[str, Any]) -> Any:
    """Run the script. Returns the results that it printed."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "assignors")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    script = ROOT / "tests" / "support" / "spark" / "spark_tables.py"
    command = [sys.executable, str(script), json.dumps(jars), json.dumps(document)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == done.returncode, done.stderr[:3000] + done.stderr[-1000:]
    return json.loads(done.stdout.splitlines()[-1])
