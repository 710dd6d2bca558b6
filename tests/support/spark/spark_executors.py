"""Streams a topic into files on executors that a test kills, until a file `stop` is there; prints the rows as JSON.

spark_executors.py REMOTE SERVERS TOPIC FOLDER       # REMOTE: sc://host:port; "": a session of spark-submit
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import kconsumer.spark


def main() -> None:
    """Run the query while the test writes records, let it read the rest, and print what it has written."""
    remote, servers, topic, folder = sys.argv[1:]
    builder = SparkSession.builder.remote(remote) if remote else SparkSession.builder
    spark = builder.getOrCreate()
    kconsumer.spark.register(spark)
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "200",
        "valueFormat": "json",
        "valueSchema": "id long",
        "onCorrupt": "deadletter",
        "deadLetterPath": f"{folder}/dead",
    }
    frame = spark.readStream.format("kconsumer").options(**options).load()
    writer = frame.select("partition", "offset", "value.id").writeStream.format("parquet")
    places = writer.option("path", f"{folder}/rows").option("checkpointLocation", f"{folder}/checkpoint")
    query = places.trigger(processingTime="100 milliseconds").start()
    while not Path(folder, "stop").exists():
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
    rows = [list(row) for row in spark.read.parquet(f"{folder}/rows").collect()]
    spark.stop()
    print(json.dumps({"session": type(spark).__module__, "rows": rows}))


if __name__ == "__main__":
    main()
