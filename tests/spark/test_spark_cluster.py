"""Executors that are processes read Kafka with a kconsumer package that was sent to them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.spark.spark_jars import pyspark_folder
from support.spark.spark_standalone import standalone

ROOT = Path(__file__).parents[2]
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executorEnv.PYTHONPATH": "kc",
    "spark.sql.shuffle.partitions": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors have started before the first task
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.log.level": "ERROR",
}


def pack(folder: Path) -> Path:
    """Unpack the wheel into `folder`, and make an archive of it next to the folder."""
    for package in ("kconsumer", "pyspark_kconsumer", "assignors/kconsumer_assignors"):
        ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.pyx")
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=ignored)
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as out:
        for path in folder.rglob("*"):
            out.write(path, path.relative_to(folder))
    return archive


def submit(master: str, kafka: Kafka, topic: str, folder: Path, *more: str, **settings: str) -> dict[str, Any]:
    """Submit a program as docs/spark.md describes, with the arguments `more`. Returns its output."""
    archive = pack(folder / "kc")
    given = [word for pair in {**SETTINGS, **settings}.items() for word in ("--conf", "=".join(pair))]
    # The driver must not use this process's source tree, but the same package as the executors.
    path = os.pathsep.join([str(folder / "kc"), str(ROOT / "tests")])
    script = ROOT / "tests" / "support" / "spark" / "spark_cluster.py"
    program = str(pyspark_folder() / "bin" / "spark-submit")
    arguments = [kafka.bootstrap_servers, topic, *more]
    done = subprocess.run(
        [program, "--master", master, "--archives", f"{archive}#kc", *given, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any], folder: Path) -> None:
    """Check that the executors read all records once, with the kconsumer that was sent to them."""
    assert [2000, 2000, 20_000] == found["rows"]
    assert 2 == len(found["places"])
    assert all("/kc/kconsumer/" in place and str(folder / "kc") not in place for place in found["places"])


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic of four partitions with 2000 records."""
    kafka.create_topic(topic_name, 4)
    for partition in range(4):
        kafka.produce(topic_name, [b"x" * 10] * 500, partition=partition)
    return topic_name


@pytest.mark.timeout(400)
def test_archive_on_executors(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    """A compiled package is sent as an archive; two executors of a local cluster read all records, each once."""
    work = pyspark_folder() / "work"  # where a local cluster always keeps its executors' folders
    had_work = work.exists()
    try:
        found = submit("local-cluster[2,1,1024]", kafka, topic, tmp_path)
    finally:
        if not had_work:
            shutil.rmtree(work, ignore_errors=True)
    check(found, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_standalone_cluster(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    """The same holds for a batch and a stream on a master with two workers, each of which unpacks the archive."""
    with standalone(tmp_path, 2) as cluster:
        found = submit(
            cluster.url, kafka, topic, tmp_path, str(tmp_path / "stream"), **{"spark.executor.memory": "512m"}
        )
    check(found, tmp_path)
    assert [2000, 2000, 2] == found["streamed"]
    homes = [Path(place).relative_to(tmp_path).parts[0] for place in found["places"]]
    assert ["worker-0", "worker-1"] == sorted(homes)
