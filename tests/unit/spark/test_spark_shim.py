"""The module by which Spark finds the source loads little and does not affect other sources."""

from __future__ import annotations

import json
import subprocess
import sys

BLOCKED = """
import builtins, json, sys
real = builtins.__import__
def refuse(name, *rest):
    if name.split(".")[0] == "pyspark":
        raise {error}
    return real(name, *rest)
builtins.__import__ = refuse
import pyspark_kconsumer
print(json.dumps([pyspark_kconsumer.DefaultSource.name(), sorted(m for m in sys.modules if m.startswith("kconsumer"))]))
"""


def test_import_never_raises_and_loads_nothing_of_ours() -> None:
    """Without pyspark, or with one that cannot be imported, the module can be imported and loads nothing else."""
    for error in ("ImportError(name)", "RuntimeError('broken')"):
        done = subprocess.run(
            [sys.executable, "-c", BLOCKED.format(error=error)], capture_output=True, text=True, check=False
        )
        assert "" == done.stderr
        assert ["kconsumer", []] == json.loads(done.stdout)


def test_the_library_without_pyspark() -> None:
    """`import kconsumer.spark` and its pure parts need no pyspark."""
    code = BLOCKED.format(error="ImportError(name)").partition("import pyspark_kconsumer")[0]
    code += "import kconsumer.spark, kconsumer.spark.options, kconsumer.spark.executor, kconsumer.spark.stream_offsets"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "" == done.stderr
