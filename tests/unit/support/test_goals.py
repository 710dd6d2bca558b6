"""What benchmarks/rates.py and benchmarks/small.py conclude from readings: CPU time by rate, and goals."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def module(monkeypatch: pytest.MonkeyPatch, path: Path) -> ModuleType:
    """Returns a module, loaded by path because benchmarks is not an installed package.

    The modules extend `sys.path`, which is restored after the test.
    """
    monkeypatch.setattr(sys, "path", [*sys.path, str(BENCHMARKS.parent), str(path.parent)])
    spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The producer that keeps a rate."""
    return module(monkeypatch, BENCHMARKS / "compare" / "clients" / "rate_producer.py")


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark of rates."""
    return module(monkeypatch, BENCHMARKS / "rates.py")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The table of goals."""
    return module(monkeypatch, BENCHMARKS / "small.py")


def reading(cpu: float, records: int, seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    """Returns the output of one client."""
    return {"cpu_seconds": cpu, "records": records, "seconds": seconds, "peak_rss_mb": 30.0, "version": "1", **more}


# --- rates ------------------------------------------------------------------------------------------------------------


def test_a_client_keeps_up_with_the_rate(rates: ModuleType) -> None:
    """It may miss 5 %, or ten records; a backlog counts as well."""
    assert rates.kept_up(reading(1, 9500), 10_000)
    assert not rates.kept_up(reading(1, 9499), 10_000)
    assert not rates.kept_up(reading(1, 10_501), 10_000)
    assert rates.kept_up(reading(1, 90), 100)
    assert not rates.kept_up(reading(1, 89), 100)


def test_the_best_reading_is_one_that_kept_up(rates: ModuleType) -> None:
    """The least CPU time per record counts only among those."""
    cheap, dear, behind = reading(0.1, 100), reading(0.2, 100), reading(0.001, 50)
    assert rates.best([behind, dear, cheap], 100) is cheap
    assert rates.best([behind], 100) is behind


# --- goals ------------------------------------------------------------------------------------------------------------


def test_latency_is_compared_with_confluent_and_with_the_bare_socket(small: ModuleType) -> None:
    """Of several rounds, the best one of each client counts. p50 has two limits."""

    def rounds(*values: int, cpu: float) -> list[dict[str, Any]]:
        return [reading(cpu, 0, us=[value] * 99 + [10 * value]) for value in values]

    readings = {
        "bare socket": rounds(100, cpu=0.0),
        "kconsumer": rounds(300, 110, cpu=0.01),
        "kconsumer, threaded": rounds(111, cpu=0.03),
        "kconsumer, consumer protocol": rounds(105, cpu=0.01),
        "confluent": rounds(120, cpu=0.02),
        "confluent, consumer protocol": rounds(104, cpu=0.02),
    }
    reached = {row.goal: row.reached for row in small.latency_rows(readings)}
    assert reached == {
        "CPU per record at 200/s, kconsumer": True,
        "p50, kconsumer": True,
        "p99, kconsumer": True,
        "CPU per record at 200/s, kconsumer, threaded": False,
        "p50, kconsumer, threaded": False,  # below confluent, but not near the bare socket
        "p99, kconsumer, threaded": True,
        "CPU per record at 200/s, kconsumer, consumer protocol": True,
        "p50, kconsumer, consumer protocol": False,
        "p99, kconsumer, consumer protocol": False,
    }


def test_each_rate_is_compared_with_the_best_peer_that_keeps_up(small: ModuleType) -> None:
    """A peer that drops behind does not count, and our client does not reach the goal if it does."""
    cell = small.rates.Cell(
        1,
        100,
        {
            "kconsumer": [reading(0.02, 100)],
            "kconsumer, threaded": [reading(0.04, 100)],
            "kconsumer, asyncio": [reading(0.001, 10)],
            "confluent": [reading(0.03, 100)],
            "aiokafka": [reading(0.001, 10)],
        },
    )
    rows = small.rate_rows([cell])
    assert [True, False, False] == [row.reached for row in rows]
    assert {"< 300 us (confluent)"} == {row.target for row in rows}
