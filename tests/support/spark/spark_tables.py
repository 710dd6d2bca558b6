"""A pipeline into a Delta or Iceberg table in a session of its own, which has the format's package.

    python spark_tables.py JARS DOCUMENT    # both JSON: paths, and {"pipeline": …, "spark": …, "read": SQL, "more": …}

Runs the pipeline to the end, forgets that the last micro-batch was done, as if the driver had died before it noted it,
executes the statements of `meanwhile`, runs the pipeline again, then once more with other records (`more`: topic and
values) and another schema (`changed`: the schema, and statements to run `before`), and prints what `read` finds after
each run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
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


def produce(servers: str, topic: str, values: list[str]) -> None:
    """Write records to a topic."""
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert 0 == producer.flush(30)


def main() -> None:
    """Run the pipeline, undo its last micro-batch, run it again, and then with more records and another schema."""
    jars, document = (json.loads(text) for text in sys.argv[1:])
    spark = session(jars, document["spark"])
    config = parse(document["pipeline"])
    found = []
    try:
        for number in range(3):
            rows = run(config, spark).rows
            tables = {name: list(map(list, spark.sql(query).collect())) for name, query in document["read"].items()}
            found.append({"rows": rows, **tables})
            if number == 0:
                forget_last(Path(config.run.checkpoint))
                for statement in document.get("meanwhile", ()):
                    spark.sql(statement)
            if number == 1:
                produce(config.source["kafka.bootstrap.servers"], **document["more"])
                for statement in document["changed"]["before"]:
                    spark.sql(statement)
                document["pipeline"]["decode"]["schema"] = document["changed"]["schema"]
                config = parse(document["pipeline"])
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
