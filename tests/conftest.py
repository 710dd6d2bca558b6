"""Setup of every test session: the report header, and the run folder of the test brokers."""

from __future__ import annotations

import gc
import os
import platform
import signal
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.brokers.kafka_run import Run
from support.nightly import is_nightly

RUN_FOLDER = pytest.StashKey[Path]()
RUN = pytest.StashKey[Run]()

# How long (s) a thread runs before another one may run. Extreme values show races that the default of 5 ms hides (see
# tests/threads.py).
SWITCH_INTERVAL = "KCONSUMER_SWITCH_INTERVAL"

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class WithoutWheels:
    """Skips the tests, and the modules of tests, that import a package which has no wheels for this Python yet."""

    PACKAGES = {"aiokafka", "confluent_kafka"}
    if FREE_THREADED:
        # greenlet and fastavro have some, but turn the GIL on.
        PACKAGES |= {"cryptography", "duckdb", "fastavro", "greenlet", "msgspec", "polars", "snappy", "uvloop"}

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        """Called when no other finder has found the package."""
        if name in cls.PACKAGES:
            pytest.skip(f"{name} is not installed", allow_module_level=True)


if sys.version_info >= (3, 15) or FREE_THREADED:
    sys.meta_path.append(WithoutWheels)

# The deadline of Hypothesis is off: the speed of a machine that generates examples does not depend on the code.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of tests/integration that picks the brokers."""
    parser.addoption(
        "--cluster",
        choices=("kafka", "fake", "kafka-where-needed"),
        default="kafka",
        help="run tests/integration on Apache Kafka, or on the model of kconsumer.testing.FakeCluster those that it "
        "covers, or on Apache Kafka those that the model does not cover and the twins of real_broker_twins.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the run folder in the controlling process; a worker gets its path from there."""
    if SWITCH_INTERVAL in os.environ:
        sys.setswitchinterval(float(os.environ[SWITCH_INTERVAL]))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell without job control starts commands in the background with SIGINT ignored. Tests that press Ctrl-C
        # would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    handed_over = getattr(config, "workerinput", None)
    if handed_over is not None:
        config.stash[RUN_FOLDER] = Path(handed_over["run_folder"])
        return
    config.stash[RUN] = Run()
    config.stash[RUN_FOLDER] = config.stash[RUN].folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves to the night."""
    for item in items:
        if is_nightly(item.nodeid):
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Leave what exists now, such as thousands of test items, out of the collections of garbage that tests make: each
    takes a tenth of the time.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the run folder's path to each worker of pytest-xdist."""
    node.workerinput["run_folder"] = str(node.config.stash[RUN_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the brokers of this run."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.close()


def pytest_report_header(config: pytest.Config) -> str:
    """Returns the header line that says which build is tested."""
    try:
        import kconsumer
    except ImportError as error:
        return f"kconsumer: cannot be imported ({error})"
    where = f"{Path(str(kconsumer.__file__)).parent} on {platform.python_implementation()}"
    return f"kconsumer: {where}, threads switch after {sys.getswitchinterval():g} s"


@pytest.fixture(scope="session")
def run_folder(request: pytest.FixtureRequest) -> Path:
    """The folder of this test run, which all workers share and which is removed at the end."""
    return request.config.stash[RUN_FOLDER]
