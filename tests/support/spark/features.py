"""Tries what kconsumer's source can do with the installed pyspark, on a FakeCluster.

    python features.py FOLDER

Prints a JSON object: feature -> whether it works. Errors are printed to stderr. docs/spark-versions.json has what each
version of pyspark can do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import kconsumer.spark
from kconsumer.spark.pipeline import parse, run
from kconsumer.testing import FakeCluster

RECORDS = 100
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
TIMEOUT_S = 60


class Features:
    """Each method is a feature. It returns True if the feature works; raising counts as False, too."""

    def __init__(self, spark: Any, options: Mapping[str, str], folder: Path) -> None:
        self._spark, self._options, self._folder = spark, options, folder

    def batch(self) -> bool:
        """A batch reads all records."""
        return bool(self._batch().count() == RECORDS)

    def push_down(self) -> bool:
        """A filter selects the partitions that tasks read."""
        found = self._batch().where("partition = 1")
        return bool(found.count() == RECORDS // 2 and found.rdd.getNumPartitions() == 1)

    def decoding(self) -> bool:
        """Values are decoded into columns."""
        rows = self._batch(valueFormat="json", valueSchema="n long").select("value.n").collect()
        return sorted(row.n for row in rows) == list(range(RECORDS))

    def stream(self) -> bool:
        """A stream reads all records, and a restart of it none."""
        return [sum(self._stream("stream")), sum(self._stream("stream"))] == [RECORDS, 0]

    def limits(self) -> bool:
        """A micro-batch has at most as many records as the option says."""
        return max(self._stream("limits", maxOffsetsPerTrigger="30")) <= 30

    def available_now(self) -> bool:
        """With AvailableNow and a limit, several micro-batches read everything, and then the query ends."""
        found = self._stream("now", maxOffsetsPerTrigger="30")
        return sum(found) == RECORDS and len(found) > 1

    def pipeline(self) -> bool:
        """A pipeline writes Parquet files."""
        document = {
            "source": dict(self._options),
            "decode": {"schema": "n long"},
            "dead_letters": {"path": str(self._folder / "dead")},
            "sink": {"path": str(self._folder / "rows")},
            "run": {"checkpoint": str(self._folder / "pipeline")},
        }
        return run(parse(document), self._spark).rows == RECORDS

    def connect(self) -> bool:
        """A session of Spark Connect reads a batch and a stream."""
        command = [
            sys.executable,
            __file__,
            "--connect",
            json.dumps(dict(self._options)),
            str(self._folder / "connect"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * TIMEOUT_S, check=False)
        if done.returncode:
            print(done.stderr[-3000:], file=sys.stderr)
        return done.returncode == 0

    def _batch(self, **more: str) -> Any:
        return self._spark.read.format("kconsumer").options(**self._options, **more).load()

    def _stream(self, name: str, **more: str) -> list[int]:
        """Returns the numbers of rows of the micro-batches of a stream."""
        query = streamed(self._spark, {**self._options, **more}, self._folder / name)
        return [rows for each in query.recentProgress if (rows := json.loads(each.json)["numInputRows"])]


def streamed(spark: Any, options: Mapping[str, str], folder: Path) -> Any:
    """Read a topic by a stream until its end. Returns the query."""
    frame = spark.readStream.format("kconsumer").options(**options).load()
    writer = frame.writeStream.format("parquet").option("path", f"{folder}/rows")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    return query


def connect(options: Mapping[str, str], folder: Path) -> None:
    """Read a batch and a stream by Spark Connect. Raises an error if that fails."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    kconsumer.spark.register(spark)
    assert spark.read.format("kconsumer").options(**options).load().count() == RECORDS
    streamed(spark, options, folder)
    assert spark.read.parquet(f"{folder}/rows").count() == RECORDS
    spark.stop()


def classic(folder: Path) -> dict[str, bool]:
    """Try all features. Returns feature -> whether it works."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    kconsumer.spark.register(spark, pushdown=True)
    with FakeCluster() as cluster:
        cluster.create_topic("numbers", partitions=2)
        for partition in range(2):
            values = [b'{"n": %d}' % number for number in range(partition, RECORDS, 2)]
            cluster.produce("numbers", values, partition=partition)
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": "numbers",
            "startingOffsets": "earliest",
        }
        features = Features(spark, options, folder)
        names = [name for name in vars(Features) if not name.startswith("_")]
        found = {name: works(getattr(features, name)) for name in names}
    spark.stop()
    return found


def works(feature: Callable[[], bool]) -> bool:
    """Try a feature."""
    try:
        return feature()
    except Exception:
        traceback.print_exc()
        return False


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if sys.argv[1] == "--connect":
        connect(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        print(json.dumps(classic(Path(sys.argv[1]))))
