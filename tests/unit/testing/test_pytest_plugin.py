"""The plugin of pytest, in a pytest process of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

TESTS = """
import pytest


def test_default(kafka_cluster):
    kafka_cluster.create_topic("t")
    assert kafka_cluster.bootstrap_servers.count(",") == 0


@pytest.mark.kafka_cluster(brokers=3)
def test_brokers(kafka_cluster):
    assert kafka_cluster.bootstrap_servers.count(",") == 2
"""


def test_the_fixture(tmp_path: Path) -> None:
    """The fixture is a running cluster; the marker sets its arguments."""
    (tmp_path / "test_it.py").write_text(TESTS)
    pytest = Path(sysconfig.get_path("scripts"), "pytest")
    options = ["-q", "-ppytest_kconsumer", "-pno:asyncio", "-pno:cacheprovider", "--strict-markers", "-Werror"]
    done = subprocess.run(
        [pytest, *options, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_import_is_light() -> None:
    """The plugin does not import kconsumer before a test uses the fixture."""
    code = "import sys, pytest_kconsumer; print([name for name in sys.modules if name.split('.')[0] == 'kconsumer'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "[]\n" == done.stdout
