"""The numbers of Python function calls of a fetch cycle, an empty poll, a commit and a share fetch cycle are bounded.

They do not depend on other work on the machine. So a change that makes the steady state slower is seen at once. Those
of a heartbeat do depend on it, because pauses separate heartbeats: `tox -e instructions` checks heartbeats at night.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[3] / "benchmarks" / "micro" / "calls.py"
OPERATIONS = ("fetch cycle", "empty poll", "commit")
ENGINES = ("classic", "threaded", "consumer protocol")
CASES = [*((operation, engine) for operation in OPERATIONS for engine in ENGINES), ("share fetch cycle", "share")]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Returns the module, loaded by path because benchmarks is not an installed package."""
    spec = importlib.util.spec_from_file_location("calls", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_operation_of_each_engine_has_a_bound(tool: ModuleType) -> None:
    """The tests below leave out no engine and no operation."""
    bounded = {(operation, engine) for operation, bounds in tool.BOUNDS.items() for engine in bounds}
    assert {*CASES, *((tool.HEARTBEAT, engine) for engine in ENGINES)} == bounded
    assert set(ENGINES) == set(tool.ENGINES)
    assert set(tool.operations.OPERATIONS) == {operation for operation, engine in bounded if engine in ENGINES}


@pytest.mark.parametrize(("operation", "engine"), CASES)
def test_calls_of_an_operation(tool: ModuleType, operation: str, engine: str) -> None:
    """An operation needs no more calls than its bound. The message of a failure shows where the calls are."""
    calls, bound = tool.count(operation, engine), tool.BOUNDS[operation][engine]
    assert any(":" in call.function for call in calls), "the tool has seen no function of the library"
    if len(calls) > bound:
        pytest.fail(
            f"{len(calls)} calls, and {bound} are allowed. In order:"
            f" python {TOOL} --trace --operation '{operation}' --engine '{engine}'\n"
            f"  {tool.by_folder(calls)}\n{tool.by_function(calls)}"
        )


def test_calls_are_split_into_repetitions(tool: ModuleType) -> None:
    """A call belongs to the repetition that had begun; calls before the first one count for none."""
    calls = [tool.Call(ns, "t", 0, name) for ns, name in ((5, "early"), (10, "a"), (19, "b"), (30, "c"))]
    assert [["a", "b"], ["c"], []] == [[call.function for call in part] for part in tool.split(calls, [10, 20, 40])]


def test_calls_are_split_at_pauses(tool: ModuleType) -> None:
    """A pause between two calls separates repetitions, and not the time since the first call of a repetition."""
    pause = tool.PAUSE_NS
    calls = [tool.Call(ns, "t", 0, name) for ns, name in ((0, "a"), (pause - 1, "b"), (2 * pause - 2, "c"))]
    calls.append(tool.Call(3 * pause, "t", 0, "d"))
    assert [["a", "b", "c"], ["d"]] == [[call.function for call in part] for part in tool.split_at_pauses(calls)]


def test_the_most_frequent_repetition(tool: ModuleType) -> None:
    """A repetition with a heartbeat counts for nothing, and the order of calls on two threads does not matter."""
    plain, swapped, longer = (
        [tool.Call(0, "t", 0, name) for name in names] for names in (("a", "b"), ("b", "a"), ("a", "b", "heartbeat"))
    )
    assert (plain, 0.6) == tool.most_frequent([longer, plain, longer, swapped, plain])


def test_the_trace_shows_depth_and_thread(tool: ModuleType) -> None:
    """The outermost call of each thread is not indented."""
    calls = [tool.Call(0, "main", 3, "poll"), tool.Call(1, "main", 4, "collect"), tool.Call(2, "network", 1, "run")]
    assert ["  0 poll", "  0   collect", "  1 run"] == tool.trace(calls).splitlines()
