"""A query, and a stream, whose tasks run in executors of their own; prints what the test compares.

For spark-submit, which says where the cluster is and what it is sent: spark_cluster.py SERVERS TOPIC [FOLDER]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.spark.spark_parity import OURS, Stream


def whereabouts(_rows: Iterator[Any]) -> Iterator[str]:
    """Yield the path from which an executor imported kconsumer."""
    import kconsumer

    yield str(kconsumer.__file__)


def main() -> None:
    """Count a topic on the executors, then stream it into files if a folder is given for them."""
    servers, topic, *folders = sys.argv[1:]
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format(OURS).options(**options).load()
    rows = frame.selectExpr("count(*)", "count(distinct partition, offset)", "sum(length(value))").first()
    places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(whereabouts).collect()
    found = {"rows": list(rows), "places": sorted(set(places))}
    for folder in folders:
        stream = Stream(spark, OURS, {**options, "maxOffsetsPerTrigger": "1500"}, Path(folder)).run().outcome()
        found["streamed"] = [len(stream.rows), len({row[:2] for row in stream.rows}), len(stream.batches)]
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
