"""A Spark driver in a process of its own, for tests that kill it: a stream from Kafka into Parquet files.

spark_driver.py SERVERS TOPIC FOLDER: small micro-batches until everything is read; each is in FOLDER's commit log.
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.spark.spark_parity import OURS, Stream

CAP = "300"


def options(servers: str, topic: str) -> dict[str, str]:
    """Returns the options of the stream, which the test uses as well to run it to its end."""
    return {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": CAP,
    }


def main() -> None:
    """Run the stream."""
    servers, topic, folder = sys.argv[1:]
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    Stream(spark, OURS, options(servers, topic), Path(folder)).run()


if __name__ == "__main__":
    main()
