"""What the installed version of pyspark can do, compared with the table of the documentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.brokers import processes
from support.spark.python_path import python_path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "spark-versions.json"


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_this_version_does_what_the_table_says(tmp_path: Path) -> None:
    """Each feature works or does not work as docs/spark-versions.json says, from which docs/spark.md is made."""
    import pyspark

    version = ".".join(pyspark.__version__.split(".")[:2])
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ, "PYTHONPATH": python_path()}
    script = ROOT / "tests" / "support" / "spark" / "features.py"
    command = [sys.executable, str(script), str(tmp_path)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=900)
    finally:
        processes.kill(processes.of_session(process.pid))
    assert 0 == process.returncode, errors[-4000:]
    found = json.loads(output.splitlines()[-1])
    assert json.loads(TABLE.read_text())[version] == found, errors[-6000:]
