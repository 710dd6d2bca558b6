"""On a free-threaded Python, no module of the library turns the GIL on. Dependencies that do are imported when used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import kconsumer

FOLDER = str(Path(str(kconsumer.__file__)).parents[1])
IMPORTS = """
import importlib, json, pkgutil, sys, warnings
warnings.simplefilter("ignore")
import kconsumer
assert not sys._is_gil_enabled(), "import kconsumer"
missing = []
for module in pkgutil.walk_packages(kconsumer.__path__, "kconsumer."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        missing.append(module.name)
    assert not sys._is_gil_enabled(), module.name
print(json.dumps(missing))
"""
USE = """
import sys
from kconsumer import Consumer, decode_batches
from kconsumer.parallel import process
from kconsumer.testing import FakeCluster
from kconsumer.testing.batches import build_batch
with FakeCluster() as cluster:
    cluster.create_topic("t", partitions=2)
    cluster.produce("t", [b"x"] * 100, compression="gzip")
    options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    for number, engine in enumerate(({}, {"engine": "threaded"}, {"group_protocol": "consumer"})):
        options["group_id"] = f"g{number}"
        with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, **options, **engine) as consumer:
            assert b"x" == next(iter(consumer)).value
            consumer.commit()
            consumer.metrics()
    options["group_id"] = "parallel"
    with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, consumer_timeout_ms=500, **options) as consumer:
        process(consumer, lambda record: record.value, workers=4)
decode_batches(build_batch([b"x"])).to_arrow()
assert not sys._is_gil_enabled()
print("[]")
"""

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has the GIL"
)


@pytest.mark.parametrize("code", [IMPORTS, USE], ids=["imports", "use"])
def test_the_gil_stays_off(code: str, tmp_path: Path) -> None:
    """The GIL is off after the import of each module that can be imported here, and after a consumer was used."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"} | {
        "PYTHONPATH": os.pathsep.join([FOLDER, os.path.join(FOLDER, "assignors")])
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    # These import a library of an extra, which may not be installed for this Python.
    extras = (
        "avro",
        "cli",
        "opentelemetry",
        "prometheus",
        "protobuf",
        "schema",
        "spark",
        "gssapi",
        "registry",
        "formats",
    )
    assert [] == [name for name in json.loads(done.stdout) if not any(extra in name for extra in extras)]
