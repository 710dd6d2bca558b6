"""The number of Python function calls of one fetch cycle is bounded, so that the steady state of a consumer stays fast.

The number is the same in each run, and does not depend on other work on the machine.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[3] / "benchmarks" / "micro" / "calls.py"
ENGINES = ("classic", "threaded", "consumer protocol")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Returns the module, loaded by path because benchmarks is not an installed package."""
    spec = importlib.util.spec_from_file_location("calls", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_engine_has_a_bound(tool: ModuleType) -> None:
    """The tests below leave out no engine."""
    assert set(ENGINES) == set(tool.ENGINES) == set(tool.BOUNDS)


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_of_a_fetch_cycle(tool: ModuleType, engine: str) -> None:
    """One record needs no more calls than the bound. The message of a failure shows where the calls are."""
    calls = tool.count(engine)
    functions = {call.function for call in calls}
    assert any(function.endswith(":Consumer.poll") for function in functions), "the tool has not seen the poll"
    if len(calls) > tool.BOUNDS[engine]:
        pytest.fail(
            f"{len(calls)} calls, and {tool.BOUNDS[engine]} are allowed. In order: python {TOOL} --trace '{engine}'\n"
            f"  {tool.by_folder(calls)}\n{tool.by_function(calls)}"
        )


def test_calls_are_split_into_cycles(tool: ModuleType) -> None:
    """A call belongs to the cycle that had begun; calls before the first cycle count for none."""
    calls = [tool.Call(ns, "t", 0, name) for ns, name in ((30, "c"), (5, "early"), (10, "a"), (19, "b"))]
    assert [["a", "b"], ["c"], []] == [[call.function for call in cycle] for cycle in tool.split(calls, [10, 20, 40])]


def test_the_most_frequent_cycle(tool: ModuleType) -> None:
    """A cycle with a heartbeat counts for nothing, and the order of calls on two threads does not matter."""
    plain, swapped, longer = (
        [tool.Call(0, "t", 0, name) for name in names] for names in (("a", "b"), ("b", "a"), ("a", "b", "heartbeat"))
    )
    assert plain == tool.most_frequent([longer, plain, longer, swapped, plain])


def test_the_trace_shows_depth_and_thread(tool: ModuleType) -> None:
    """The outermost call of each thread is not indented."""
    calls = [tool.Call(0, "main", 3, "poll"), tool.Call(1, "main", 4, "collect"), tool.Call(2, "network", 1, "run")]
    assert ["  0 poll", "  0   collect", "  1 run"] == tool.trace(calls).splitlines()
