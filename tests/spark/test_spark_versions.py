"""What the installed version of pyspark can do, compared with the table of the documentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "spark-versions.json"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_this_version_does_what_the_table_says(tmp_path: Path) -> None:
    """Each feature works or does not work as docs/spark-versions.json says, from which docs/spark.md is made."""
    import pyspark

    version = ".".join(pyspark.__version__.split(".")[:2])
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "assignors")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    script = ROOT / "tests" / "support" / "spark" / "features.py"
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert 0 == done.returncode, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(TABLE.read_text())[version] == found, done.stderr[-6000:]
