"""A driver of a cluster of two executors that get kconsumer as an archive; prints what the test compares.

spark_cluster.py ARCHIVE SERVERS TOPIC
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any


def whereabouts(_rows: Iterator[Any]) -> Iterator[str]:
    """Where an executor has kconsumer from."""
    import kconsumer

    yield str(kconsumer.__file__)


def main() -> None:
    """Count a topic on the executors."""
    archive, servers, topic = sys.argv[1:]
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.archives": f"{archive}#kc",
        "spark.executorEnv.PYTHONPATH": "kc",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    frame = spark.read.format("kconsumer").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    rows = frame.selectExpr("count(*)", "count(distinct partition, offset)", "sum(length(value))").first()
    places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(whereabouts).collect()
    print(json.dumps({"rows": list(rows), "places": sorted(set(places))}))
    spark.stop()


if __name__ == "__main__":
    main()
