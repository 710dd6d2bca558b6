"""The table of tests that run every night names tests that exist, and each test keeps an engine in `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.nightly import NIGHTLY, ONE_ENGINE, WITH_ASYNCIO, is_engine_nightly, is_nightly

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("row", NIGHTLY)
def test_rows_name_tests(row: str) -> None:
    """The module of a row exists and has a test with this beginning of its name."""
    module, _, test = row.partition("::")
    assert f"def {test.partition('[')[0] or 'test_'}" in (TESTS / module).read_text()


def test_tests_of_a_row() -> None:
    """A row is a module, or the begin of a test's name or of its parameters."""
    assert is_nightly("tests/integration/test_chaos.py::test_x[1]")
    assert is_nightly("tests/integration/test_mixed_groups.py::test_classic_group[range-java-leads]")
    assert not is_nightly("tests/integration/test_mixed_groups.py::test_classic_group[cooperative-sticky-java-leads]")


def test_each_test_keeps_an_engine() -> None:
    """A test runs with one engine or with both, and an AsyncConsumer where its module is named."""
    assert all((TESTS / "integration" / module).exists() for module in ONE_ENGINE | WITH_ASYNCIO)
    engines = ["classic", "consumer", "asyncio"]
    kept = {
        module: [name for name in engines if not is_engine_nightly(module, "test_x", name, engines)]
        for module in ("test_api_commits.py", "test_api_callbacks.py", "test_api_records.py")
    }
    assert engines[:2] == kept["test_api_commits.py"]
    assert engines == kept["test_api_callbacks.py"]
    assert 1 == len(kept["test_api_records.py"])
    chosen = {
        name for n in range(9) for name in engines if not is_engine_nightly("test_arrow.py", f"{n}", name, engines)
    }
    assert {"classic", "consumer"} == chosen
