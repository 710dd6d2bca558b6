"""The lists of integration tests that do not run on the model of a cluster, or run on real brokers as well."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from support.brokers.fake_kafka_tests import NEED_REAL_BROKERS, needs_real_broker
from support.brokers.needed_versions import NEEDED_VERSIONS, missing_in
from support.brokers.real_broker_twins import REAL_BROKER_TWINS, has_real_broker_twin

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
MARKS = PROJECT["tool"]["pytest"]["ini_options"]["markers"]
TESTS = Path(__file__).parents[2]
FOLDER = TESTS / "integration"
SUPPORT = [path for path in TESTS.glob("support/*/*.py") if path.parent.name != "brokers"]  # where the entries are
SHARED = "".join(path.read_text() for path in [FOLDER / "conftest.py", *SUPPORT])


@pytest.mark.parametrize("entry", [*NEED_REAL_BROKERS, *REAL_BROKER_TWINS, *NEEDED_VERSIONS])
def test_each_entry_exists(entry: str) -> None:
    """The module of an entry exists, and so does its test, and its sources have each word of the parameters. An entry
    without a module is a mark.
    """
    module, _, test = entry.partition("::")
    if not module.endswith(".py"):
        assert any(mark.startswith(f"{module}:") for mark in MARKS)
        return
    text = (FOLDER / module).read_text()
    functions = {node.name for node in ast.parse(text).body if hasattr(node, "name")}
    name, _, parameters = test.partition("[")
    assert not test or name in functions
    assert [] == [word for word in re.findall(r"[^]-]+", parameters) if word not in text + SHARED]


def test_matches() -> None:
    """An entry matches the tests of its module, or one test with all its parameters, or one test with given ones."""
    assert needs_real_broker("tests/integration/test_tls.py::test_x[a]")
    assert needs_real_broker("tests/integration/test_transactions.py::test_dump_shows_what_is_in_a_segment[a]")
    assert not needs_real_broker("tests/integration/test_spark_tasks.py::test_early_end_and_next_task")
    assert needs_real_broker("tests/integration/test_docs.py::test_shell[README.md:97]")
    assert not needs_real_broker("tests/integration/test_docs.py::test_python[README.md:20]")


@pytest.mark.parametrize("entry", REAL_BROKER_TWINS)
def test_a_twin_runs_on_the_model(entry: str) -> None:
    """No twin is among the tests that do not run on the model."""
    assert has_real_broker_twin(f"tests/integration/{entry}")
    assert not needs_real_broker(f"tests/integration/{entry}")


def test_what_old_brokers_lack() -> None:
    """A mark, a module or a test is left out below its release, with what is missing."""
    node = "tests/integration/test_share_mixed.py::test_x[a]"
    assert "share groups" in (missing_in("4.0.2", node, []) or "")
    assert missing_in("4.2.2", node, []) is None
    assert "KIP-848" in (missing_in("3.9.1", "tests/integration/test_x.py::test_y", ["consumer_protocol"]) or "")
    assert missing_in("2.1.1", "tests/integration/test_x.py::test_y", ["timeout"]) is None
    assert missing_in("3.9.1", "tests/integration/test_docs.py::test_shell[docs/groups.md:9]", []) is not None
