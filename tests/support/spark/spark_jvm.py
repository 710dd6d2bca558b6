"""The options of the JVMs of test sessions, which start with classes from an archive that a first session has written.

    python -m support.spark.spark_jvm      # write the archive if there is none; with a path, in this process

Without the archive, half of the processor time of a session that starts and runs a query is spent on loading classes.
The archive belongs to an environment: it is valid for the paths of pyspark's jars, and for one JVM. A JVM that cannot
use it starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from support.brokers.kafka_jars import locked, program
from support.spark.python_path import python_path

__all__ = ["java_options"]

LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WRITE_S = 600


@cache
def java_options() -> str:
    """Returns the value of `spark.driver.extraJavaOptions`. The first use in an environment writes the archive."""
    import pyspark

    java = Path(program("java")).resolve()
    name = f"spark-classes-{pyspark.__version__}-{java.stat().st_mtime_ns}.jsa"
    archive = Path(sys.prefix) / name
    with locked(archive.with_suffix(".lock")):
        if not archive.exists():
            _write(archive)
    return f"{LIGHT} -XX:SharedArchiveFile={archive}" if archive.stat().st_size else LIGHT


def _write(archive: Path) -> None:
    """Write the archive in another process. The file is empty if this JVM writes none."""
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    command = [sys.executable, __file__, str(part)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=WRITE_S
    )
    if done.returncode:
        raise RuntimeError(f"the session that writes an archive of classes failed:\n{done.stderr[-4000:]}")
    part.touch()
    part.rename(archive)


def run_session(path: str) -> None:
    """Run a stream like that of a pipeline in a session whose JVM archives its classes in a file when it ends.

    The source is a folder. A Python source would need a process, which a busy machine may start too late for Spark.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812  as everyone writes it

    with tempfile.TemporaryDirectory(prefix="spark-classes-") as folder:
        Path(folder, "orders").mkdir()
        Path(folder, "orders", "1.json").write_text('{"id": 1, "at": 0}\n{"id": 2, "at": 100000}\n')
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1")
        builder = builder.config("spark.driver.extraJavaOptions", f"{LIGHT} -XX:ArchiveClassesAtExit={path}")
        spark = builder.getOrCreate()
        order = F.from_json("value", "id long, at long")
        rows = spark.readStream.text(f"{folder}/orders").select(order.alias("order"))
        rows = rows.selectExpr("order.id", "timestamp_millis(order.at) AS at").withWatermark("at", "1 second")
        windows = rows.groupBy(F.window("at", "1 minute")).count().withColumn("date", F.to_date("window.start"))

        def write(frame: Any, number: int) -> None:
            frame.persist().write.partitionBy("date").mode("append").parquet(f"{folder}/windows")
            frame.unpersist()

        writer = windows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        process = spark.sparkContext._gateway.proc
        spark.stop()
        process.stdin.close()  # ends the JVM, which then writes the archive
        process.wait(WRITE_S)


if __name__ == "__main__":
    if sys.argv[1:]:
        run_session(sys.argv[1])
    else:
        print(java_options())
