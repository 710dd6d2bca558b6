"""A Spark driver in a process of its own with a stream that runs until it is killed.

spark_steady.py SERVERS TOPIC CHECKPOINT: a micro-batch every half second, into nowhere.
"""

from __future__ import annotations

import sys

from support.spark.spark_parity import OURS


def main() -> None:
    """Run the stream."""
    servers, topic, checkpoint = sys.argv[1:]
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format(OURS).options(**options, commitGroupId=topic).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(processingTime="500 milliseconds").start().awaitTermination()


if __name__ == "__main__":
    main()
