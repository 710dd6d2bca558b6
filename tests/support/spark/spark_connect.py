"""Reads a topic through a Spark Connect server, as an application on a managed platform does.

    python spark_connect.py REMOTE SERVERS TOPIC FOLDER        # REMOTE: sc://host:port

Prints what it found as JSON. This process has no JVM; the server and its Python workers are other processes.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

from pyspark.sql import SparkSession

import kconsumer.spark
from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import parse, run

LISTENER_TIMEOUT_S = 30


def stream(source: Any, folder: str) -> Any:
    """Write what the topic has to Parquet files. Returns the query when it has ended."""
    writer = source.writeStream.queryName("connect").format("parquet").option("path", f"{folder}/rows")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def pipeline_error(spark: Any, options: dict[str, str], folder: str) -> str:
    """Returns the error of a pipeline that is started with this session."""
    document = {
        "source": options,
        "decode": {"format": "raw", "on_invalid": "drop"},
        "sink": {"path": f"{folder}/out"},
        "run": {"checkpoint": f"{folder}/pipeline"},
    }
    try:
        run(parse(document), spark)
    except ConfigError as error:
        return str(error)
    return ""


def main() -> None:
    """Read, stream, and report the lag."""
    remote, servers, topic, folder = sys.argv[1:]
    warnings.simplefilter("ignore")
    spark = SparkSession.builder.remote(remote).getOrCreate()
    kconsumer.spark.register(spark, pushdown=True)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    lag = kconsumer.spark.lag_listener(spark, "connect-lag", bootstrap_servers=servers)
    batch = spark.read.format("kconsumer").options(**options).load()
    found: dict[str, Any] = {
        "session": type(spark).__module__,
        "count": batch.count(),
        "filtered": sorted(row.offset for row in batch.where("partition = 1 AND offset >= 5").collect()),
        "plan": batch.where("offset >= 5")._explain_string(),
    }
    query = stream(spark.readStream.format("kconsumer").options(**options).load(), folder)
    found["streamed"] = spark.read.parquet(f"{folder}/rows").count()
    until = time.monotonic() + LISTENER_TIMEOUT_S
    while not lag.committed and time.monotonic() < until:
        time.sleep(0.05)
    found["committed"] = sorted([*tp, offset] for tp, offset in lag.committed.items())
    found["progress"] = [source["endOffset"] for source in json.loads(query.lastProgress.json)["sources"]]
    found["pipeline"] = pipeline_error(spark, options, folder)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
