"""Importing the package and reading a first record loads no module that is not needed for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from kconsumer import Consumer

CLASSIC = 'kconsumer.Consumer(bootstrap_servers="localhost:1", group_id="g")'
EPOCHS = 'kconsumer.Consumer(bootstrap_servers="localhost:1", group_id="g", group_protocol="consumer")'

SLOW = {
    "asyncio",
    "datetime",
    "email",
    "importlib.metadata",
    "json",
    "pathlib",
    "platform",
    "ssl",
    "urllib.parse",
    "uuid",
    "zipfile",
}
COLUMNS = {"kconsumer.arrow", "kconsumer._core.arrow"}
HEALTH = {"kconsumer.groups", "kconsumer.groups.types", "kconsumer.groups.queries", "kconsumer.schema.admin"}
OTHER_TABLES = {"kconsumer.schema.sasl", "kconsumer.schema.share_group"}
OTHER_PROTOCOL = {
    "kconsumer.engine.threaded",
    "kconsumer.coordinator.consumer_protocol.manager",
    "kconsumer.coordinator.consumer_protocol.heartbeat",
    "kconsumer.schema.consumer_group",
    "kconsumer.coordinator.consumer_protocol.state",
}
LEADERS_WORK = {
    "kconsumer_assignors._partition_classes",
    "kconsumer_assignors._min_cost_flow",
    "kconsumer_assignors._cycle_cancelling",
}


def loaded(statement: str) -> set[str]:
    """Returns the modules that importing kconsumer and running this code adds to those of a new process."""
    # From Python 3.15 on, `logging` imports `pathlib`.
    begin = "import logging, sys\nbefore = set(sys.modules)"
    code = f"{begin}\nimport kconsumer\n{statement}\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_import_loads_neither_an_engine_nor_rarely_used_modules() -> None:
    """`import kconsumer` loads no wire format, no group health, no columns and no slow module of the
    standard library.
    """
    unwanted = SLOW | COLUMNS | HEALTH | {"kconsumer.engine.base", "kconsumer.net", "kconsumer.schema", "socket"}
    assert set() == loaded("") & unwanted


def test_a_group_consumer_loads_only_its_protocol() -> None:
    """A classic member does not search installed distributions and loads no module of the other protocol, group health
    or columns.
    """
    modules = loaded(CLASSIC)
    assert {"kconsumer.coordinator.classic_protocol.manager", "kconsumer_assignors.cooperative_sticky"} <= modules
    assert set() == modules & (SLOW | COLUMNS | HEALTH | OTHER_TABLES | OTHER_PROTOCOL | LEADERS_WORK)


def test_a_group_consumer_creates_only_public_dataclasses() -> None:
    """Of the classes that a classic member loads, only public values are dataclasses, which are slow to create."""
    code = f"""
import dataclasses, sys
import kconsumer
{CLASSIC}
for name, module in sys.modules.items():
    if name.startswith("kconsumer") and any(
        dataclasses.is_dataclass(value) and value.__module__ == name
        for value in vars(module).values()
        if isinstance(value, type)
    ):
        print(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {"kconsumer.assignors", "kconsumer.types"} == set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("kconsumer.groups.list", HEALTH - {"kconsumer.groups.queries", "kconsumer.schema.admin"}),
        ("kconsumer.decode_batches(b'').to_arrow()", COLUMNS),
        (
            "from kconsumer.schema import APIS",
            OTHER_TABLES | {"kconsumer.schema.admin", "kconsumer.schema.consumer_group"},
        ),
        (EPOCHS, OTHER_PROTOCOL),
    ],
)
def test_forbidden_modules_are_loaded_on_use(statement: str, wanted: set[str]) -> None:
    """The modules that the other tests forbid exist under these names and are loaded on use."""
    assert set() == wanted - loaded(statement)


def test_version() -> None:
    """`__version__` is the version of the package."""
    import kconsumer
    from kconsumer._version import VERSION

    assert VERSION == kconsumer.__version__


def test_the_constructor_connects_nothing_and_starts_nothing() -> None:
    """The constructor opens no descriptor and starts no thread, even if no process listens at the address."""
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    with Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g"):
        assert before == (len(os.listdir("/proc/self/fd")), threading.active_count())
