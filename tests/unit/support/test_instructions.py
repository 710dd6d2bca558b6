"""What benchmarks/micro/instructions.py allows: figures that exceed the stored ones by little."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks" / "micro"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns the module, loaded by path because benchmarks is not an installed package."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("instructions", FOLDER / "instructions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("case", "allowed", "refused"),
    [("loop", 1029, 1031), ("fetch cycle, classic", 1049, 1051), ("heartbeat, threaded", 1149, 1151)],
)
def test_figures_that_exceed_the_stored_ones(tool: ModuleType, case: str, allowed: float, refused: float) -> None:
    """Each kind of case has a tolerance. A case without a stored figure is accepted."""
    kept = {"setting": tool.setting(), "cases": {case: 1000.0}}
    assert [] == tool.exceeding(kept, {case: allowed, "scan": 1e9})
    assert [case] == tool.exceeding(kept, {case: refused, "scan": 1e9})


def test_figures_of_another_setting(tool: ModuleType) -> None:
    """Figures of another Python or compiler differ more."""
    kept = {"setting": {**tool.setting(), "compiler": "another"}, "cases": {"loop": 1000.0}}
    assert [] == tool.exceeding(kept, {"loop": 1249.0})
    assert ["loop"] == tool.exceeding(kept, {"loop": 1251.0})


def test_each_case_has_a_stored_figure(tool: ModuleType) -> None:
    """The nightly check leaves out nothing."""
    assert set(json.loads(tool.KEPT.read_text())["cases"]) == {*tool.CASES, *tool.OPERATION_CASES}
