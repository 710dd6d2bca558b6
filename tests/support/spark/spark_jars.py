"""The jars with which pyspark runs Spark's own Kafka source, to compare with; they play no part in ours.

The connector is on Maven Central up to Spark 4.2.0, a companion of it is not: SparkKafkaStandIn.scala stands in for
that one. It is compiled with the Scala compiler that pyspark brings. Everything is cached as the broker's jars are.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

from support.brokers.kafka_jars import Artifact, cache_root, locked, program, resolve

SPARK_VERSION = "4.2.0"
NOTHING_ELSE = (("*", "*"),)  # what these need besides is in pyspark
CONNECTOR = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION, NOTHING_ELSE),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1", NOTHING_ELSE),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1", NOTHING_ELSE),
)
POSTGRES_DRIVER = Artifact("org.postgresql", "postgresql", "42.7.7", NOTHING_ELSE)
STAND_IN = Path(__file__).with_name("SparkKafkaStandIn.scala")


def pyspark_folder() -> Path:
    """Returns pyspark's folder. Raises RuntimeError if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("these tests need pyspark: pip install --group dev")
    return Path(spec.origin).parent


def has_own_source() -> bool:
    """Returns whether the installed pyspark is the one for which `spark_kafka_jars` are."""
    return version("pyspark") == SPARK_VERSION


def spark_kafka_jars() -> list[Path]:
    """Returns the jars for `spark.jars`. The first use makes them. Raises RuntimeError with another pyspark."""
    if not has_own_source():
        raise RuntimeError(f"Spark's own source needs pyspark=={SPARK_VERSION}: pip install --group spark-parity")
    return [*resolve(f"spark-kafka-{SPARK_VERSION}", *CONNECTOR), stand_in()]


def postgres_driver() -> list[Path]:
    """Returns the jar of PostgreSQL's JDBC driver."""
    return resolve("postgres-driver", POSTGRES_DRIVER)


def stand_in() -> Path:
    """Returns the compiled stand-in."""
    jar = cache_root() / f"spark-kafka-stand-in-{SPARK_VERSION}.jar"
    with locked(jar.with_suffix(".lock")):
        if not jar.exists():
            compile_stand_in(jar)
    return jar


def compile_stand_in(jar: Path) -> None:
    """Compile, pack, and rename into place."""
    with tempfile.TemporaryDirectory(dir=jar.parent) as part:
        classes = Path(part) / "classes"
        classes.mkdir()
        compiler = [program("java"), "-cp", f"{pyspark_folder() / 'jars'}/*", "scala.tools.nsc.Main"]
        run([*compiler, "-usejavacp", "-d", str(classes), str(STAND_IN)])
        run([program("jar"), "cf", str(Path(part) / "made.jar"), "-C", str(classes), "."])
        (Path(part) / "made.jar").rename(jar)


def run(command: list[str]) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-4000:]}")


if __name__ == "__main__":
    for path in spark_kafka_jars():
        print(path)
