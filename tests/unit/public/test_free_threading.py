"""On a free-threaded Python, no module of the library turns the GIL on. Dependencies that do are imported when used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent

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
import asyncio, contextlib, io, sys, warnings
warnings.simplefilter("ignore")
from kconsumer import AsyncConsumer, Consumer, ShareConsumer, decode_batches, read_topic
from kconsumer.testing import FakeCluster
from kconsumer.testing.batches import build_batch
with FakeCluster() as cluster:
    servers = cluster.bootstrap_servers
    options = {"bootstrap_servers": servers, "group_id": "g", "auto_offset_reset": "earliest"}
    cluster.create_topic("t", partitions=2)
    cluster.produce("t", [b'{"a": 1}'] * 100)
%s
assert not sys._is_gil_enabled()
"""
READ = """
with Consumer("t", **options) as consumer:
    assert next(iter(consumer)).value
    assert consumer.poll_arrow(0.1).num_rows >= 0
    consumer.commit()
    assert consumer.metrics() and consumer.status() and consumer.health()
"""
ASYNC = """
async def main():
    async with AsyncConsumer("t", **options) as consumer:
        assert await consumer.poll(60.0)
        await consumer.commit()
asyncio.run(main())
"""
COMPRESSED = """
cluster.produce("t", [b"x" * 100] * 100, partition=0, compression={0!r})
with Consumer("t", **options) as consumer:
    while not any(record.value == b"x" * 100 for record in consumer.poll()):
        pass
assert decode_batches(build_batch([b"x"] * 10, codec={0!r})).to_arrow().num_rows == 10
"""
PARALLEL = """
from kconsumer.parallel import process
with Consumer("t", enable_auto_commit=False, consumer_timeout_ms=3000, **options) as consumer:
    process(consumer, lambda record: record.value, workers=4)
"""
TABLE = """
from kconsumer import TopicTable
cluster.create_topic("empty")
with TopicTable("empty", bootstrap_servers=servers) as table:
    assert not table
"""
FILTERS = """
from kconsumer import KeyFilter
with Consumer("t", record_filter=KeyFilter("k"), **options) as consumer:
    assert not consumer.poll(0.5)
"""
ADMINISTRATION = """
import kconsumer.cluster, kconsumer.groups
with Consumer("t", **options) as consumer:
    consumer.poll(60.0)
    assert ["g"] == [group.group_id for group in kconsumer.groups.list(servers)]
assert kconsumer.groups.describe("g", servers).group_id == "g"
assert kconsumer.cluster.describe(servers).brokers
"""
REPORTER = (
    """
from {0} import {1} as Reporter
options["metrics_reporters"] = [Reporter()]
"""
    + READ
)
COMMAND = """
from kconsumer.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["topics", "list", "--bootstrap-servers", servers])
"""
FEATURES = {
    "classic engine": ([], READ),
    "threaded engine": ([], "options['engine'] = 'threaded'\n" + READ),
    "consumer protocol": ([], "options['group_protocol'] = 'consumer'\n" + READ),
    "asyncio": ([], ASYNC),
    "gzip": ([], COMPRESSED.format("gzip")),
    "lz4": (["lz4"], COMPRESSED.format("lz4")),
    "snappy": (["snappy"], COMPRESSED.format("snappy")),
    "zstd": (["zstandard"], COMPRESSED.format("zstd")),
    "share groups": (
        [],
        "del options['auto_offset_reset']\nwith ShareConsumer('t', **options) as consumer:\n    consumer.poll(0.5)\n",
    ),
    "parallel": ([], PARALLEL),
    "tables": ([], "assert read_topic('t', bootstrap_servers=servers).num_rows == 100\n"),
    "table of keys": ([], TABLE),
    "filters": ([], FILTERS),
    "administration": ([], ADMINISTRATION),
    "prometheus": (["prometheus_client"], REPORTER.format("kconsumer.prometheus", "PrometheusReporter")),
    "opentelemetry": (["opentelemetry"], REPORTER.format("kconsumer.opentelemetry", "OpenTelemetryReporter")),
    "json": ([], "options['value_deserializer'] = 'json'\n" + READ),
    "pyarrow": (["pyarrow"], "assert len(read_topic('t', bootstrap_servers=servers).to_pyarrow()) == 100\n"),
    "pandas": (["pyarrow", "pandas"], "assert len(read_topic('t', bootstrap_servers=servers).to_pandas()) == 100\n"),
    "command": ([], COMMAND),
}
"""Public features: the libraries that each needs, and what a program does with it."""

EXTRAS = {"avro", "cli", "opentelemetry", "prometheus", "protobuf", "spark", "gssapi", "registry", "formats"}
"""Folders and names of modules that import a library of an extra, which may not be installed for this Python."""

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has the GIL"
)


def run(code: str, folder: Path) -> str:
    """Run a program without any setting of the GIL. Returns its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"} | {
        "PYTHONPATH": os.pathsep.join([FOLDER, os.path.join(FOLDER, "assignors")])
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def test_no_module_turns_the_gil_on(tmp_path: Path) -> None:
    """The GIL is off after the import of each module that can be imported here."""
    missing = json.loads(run(IMPORTS, tmp_path))
    assert [] == [name for name in missing if not EXTRAS & set(name.split("."))]


@pytest.mark.parametrize("feature", FEATURES)
def test_no_feature_turns_the_gil_on(feature: str, tmp_path: Path) -> None:
    """The GIL is off after a program has used a public feature."""
    libraries, code = FEATURES[feature]
    if missing := [library for library in libraries if find_spec(library) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    run(USE % indent(code, "    "), tmp_path)
