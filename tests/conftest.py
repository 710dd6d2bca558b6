"""What every test session has: the report header, and the run folder that test brokers live in."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.brokers.kafka_run import Run

RUN_FOLDER = pytest.StashKey[Path]()
RUN = pytest.StashKey[Run]()

# How long (s) a thread runs before another one may: the extremes show what the usual 5 ms hide (tests/threads.py).
SWITCH_INTERVAL = "KCONSUMER_SWITCH_INTERVAL"

# How fast a machine makes examples says nothing of the code.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    """Make the run folder in the controlling process; learn it from there in a worker."""
    if SWITCH_INTERVAL in os.environ:
        sys.setswitchinterval(float(os.environ[SWITCH_INTERVAL]))
    handed_over = getattr(config, "workerinput", None)
    if handed_over is not None:
        config.stash[RUN_FOLDER] = Path(handed_over["run_folder"])
        return
    config.stash[RUN] = Run()
    config.stash[RUN_FOLDER] = config.stash[RUN].folder


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell each worker of pytest-xdist where the run folder is."""
    node.workerinput["run_folder"] = str(node.config.stash[RUN_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the brokers of this run."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.close()


def pytest_report_header(config: pytest.Config) -> str:
    """Say which build is under test, so that a green run tells what it ran."""
    try:
        import kconsumer
    except ImportError as error:
        return f"kconsumer: cannot be imported ({error})"
    where = f"{Path(str(kconsumer.__file__)).parent} on {platform.python_implementation()}"
    return f"kconsumer: {where}, threads switch after {sys.getswitchinterval():g} s"


@pytest.fixture(scope="session")
def run_folder(request: pytest.FixtureRequest) -> Path:
    """The folder of this test run, common to all workers and removed at its end."""
    return request.config.stash[RUN_FOLDER]
