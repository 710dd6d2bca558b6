"""Executors in processes of their own read Kafka with a kconsumer that was shipped to them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.kafka import Kafka
from support.spark_jars import pyspark_folder

ROOT = Path(__file__).parents[2]


def pack(folder: Path) -> Path:
    """What the wheel has, unpacked in `folder`, and as an archive beside it."""
    for package in ("kconsumer", "pyspark_kconsumer", "assignors/kconsumer_assignors"):
        ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.pyx")
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=ignored)
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as out:
        for path in folder.rglob("*"):
            out.write(path, path.relative_to(folder))
    return archive


@pytest.mark.timeout(400)
def test_archive_on_executors(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A compiled package travels in an archive; two executors read all records, each once."""
    kafka.create_topic(topic_name, 4)
    kafka.produce(topic_name, [b"x" * 10] * 2000, config={"partitioner": "random", "linger.ms": 0})
    archive = pack(tmp_path / "kc")
    work = pyspark_folder() / "work"  # where a local cluster keeps its executors' folders, whatever one sets
    had_work = work.exists()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "kc"), "PYSPARK_PYTHON": sys.executable}
    script = ROOT / "tests" / "support" / "spark_cluster.py"
    try:
        done = subprocess.run(
            [sys.executable, str(script), str(archive), kafka.bootstrap_servers, topic_name],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
    finally:
        if not had_work:
            shutil.rmtree(work, ignore_errors=True)
    assert 0 == done.returncode, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert [2000, 2000, 20_000] == found["rows"]
    assert found["places"]
    assert all("/kc/kconsumer/" in place and str(tmp_path / "kc") not in place for place in found["places"])
