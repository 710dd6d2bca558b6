"""Tries an installed kconsumer as a user would, away from its source tree: every compiled module is imported, the
assignor plugins are loaded, and a consumer reads records in every compression from a cluster in this process.
"""

from __future__ import annotations

import importlib
import platform
import sysconfig
from importlib.metadata import version
from pathlib import Path

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
RECORDS = 100


def import_compiled_modules() -> int:
    """Import every compiled module of the package. Returns their number."""
    import kconsumer._core

    folder = Path(kconsumer._core.__file__).parent
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    names = sorted(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}"))
    for name in names:
        importlib.import_module(f"kconsumer._core.{name}")
    return len(names)


def decode() -> None:
    """Decode a batch of each compression."""
    from kconsumer import decode_batches
    from kconsumer.testing.batches import build_batch

    for codec in CODECS:
        values = [b"%d of %s" % (number, codec.encode()) for number in range(RECORDS)]
        records = decode_batches(build_batch(values, codec=codec))
        assert values == [record.value for record in records], codec


def consume() -> None:
    """Read what a cluster in this process stores, with a group."""
    from kconsumer import Consumer
    from kconsumer.testing import FakeCluster

    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        for number in range(RECORDS):
            cluster.produce("orders", b"%d" % number, partition=number % 3)
        with Consumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="trial", auto_offset_reset="earliest"
        ) as consumer:
            values = {record.value for _, record in zip(range(RECORDS), consumer, strict=False)}
    assert {b"%d" % number for number in range(RECORDS)} == values


def main() -> None:
    """Try the installed package, and print what was tried."""
    import kconsumer
    from kconsumer import assignors

    modules = import_compiled_modules()
    assert modules >= 8, f"only {modules} compiled modules are installed"
    assert kconsumer.__version__ == version("kconsumer")
    for name in ASSIGNORS:
        assignors.load(name)
    decode()
    consume()
    where = f"{platform.python_implementation()} {platform.python_version()}, {sysconfig.get_platform()}"
    print(f"kconsumer {kconsumer.__version__} works: {modules} compiled modules, {where}")


if __name__ == "__main__":
    main()
