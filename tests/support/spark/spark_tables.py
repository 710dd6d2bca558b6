"""A pipeline into a Delta or Iceberg table in a session of its own, which has the format's package.

    python spark_tables.py JARS DOCUMENT        # both JSON: paths, and {"pipeline": …, "spark": …, "read": SQL}

Runs the pipeline to the end, forgets that the last micro-batch was done, as if the driver had died before it noted it,
runs the pipeline again, and prints what `read` finds after each run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import kconsumer.spark
from kconsumer.spark.pipeline import parse, run


def session(jars: list[str], settings: dict[str, str]) -> Any:
    """Returns a Spark session with these jars."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    kconsumer.spark.register(spark)
    return spark


def forget_last(checkpoint: Path) -> None:
    """Undo the last micro-batch of each query, so that it runs again."""
    for commits in checkpoint.glob("*/commits"):
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        for path in (commits / str(newest), commits / f".{newest}.crc"):
            path.unlink()


def main() -> None:
    """Run the pipeline, undo its last micro-batch, and run it again."""
    jars, document = (json.loads(text) for text in sys.argv[1:])
    spark = session(jars, document["spark"])
    config = parse(document["pipeline"])
    found = []
    try:
        for _ in range(2):
            rows = run(config, spark).rows
            table = [row.asDict() for row in spark.sql(document["read"]).collect()]
            found.append({"rows": rows, "table": table})
            forget_last(Path(config.run.checkpoint))
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
