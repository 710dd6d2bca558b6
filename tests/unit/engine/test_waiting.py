"""The runner of operations, and the rules that all operations follow."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from kconsumer.aio import callbacks as async_callbacks
from kconsumer.aio import driver as async_driver
from kconsumer.aio import engine as async_engine
from kconsumer.engine import base, callbacks, close_sequence, operations
from kconsumer.engine.waiting import AT_ONCE, Operation, Wait, run
from kconsumer.groups import client_base as group_client_base
from kconsumer.groups import queries
from kconsumer.ranges import client_base as range_client_base
from kconsumer.ranges import offset_bounds, reader_base, topic_steps

MODULES = [
    base,
    operations,
    close_sequence,
    callbacks,
    async_callbacks,
    async_driver,
    async_engine,
    queries,
    group_client_base,
    range_client_base,
    reader_base,
    topic_steps,
    offset_bounds,
]


class Interruption(BaseException):
    """The exception that a wait raises."""


def no_wait(_: Wait) -> None:
    """A wait that returns at once."""


def two_waits(seen: list[str]) -> Operation[str]:
    """An operation that waits twice and records how it ended."""
    try:
        yield Wait(AT_ONCE)
        yield Wait(AT_ONCE)
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    finally:
        seen.append("ended")
    return "result"


def test_result_is_returned_after_all_waits() -> None:
    """Each wait is passed to the driver, and the return value of the operation is that of the runner."""
    waits: list[Wait] = []
    seen: list[str] = []
    assert "result" == run(two_waits(seen), waits.append)
    assert 2 == len(waits)
    assert ["ended"] == seen


def test_what_a_wait_raises_is_raised_inside_the_operation() -> None:
    """An error of a wait is raised inside the operation, which can clean up, and then to the caller."""
    seen: list[str] = []
    error = Interruption()

    def wait(_: Wait) -> None:
        raise error

    with pytest.raises(Interruption) as caught:
        run(two_waits(seen), wait)
    assert caught.value is error
    assert ["Interruption", "ended"] == seen


def test_an_operation_may_continue_after_an_error() -> None:
    """An operation that catches the error of a wait, as close() does, runs to its end."""
    errors = iter([ValueError("first")])

    def wait(_: Wait) -> None:
        for error in errors:
            raise error

    def tolerant() -> Operation[list[str]]:
        notes: list[str] = []
        for _ in range(3):
            try:
                yield Wait(AT_ONCE)
            except ValueError as error:
                notes.append(str(error))
        return notes

    assert ["first"] == run(tolerant(), wait)


def test_a_runner_that_is_interrupted_itself_closes_the_operation() -> None:
    """An asynchronous exception between two waits closes the operation at once, not when its traceback is freed."""
    seen: list[str] = []

    class Interrupting:
        """An operation whose runner is interrupted right after it received the first wait."""

        def __init__(self) -> None:
            self.inner = two_waits(seen)
            self.close, self.throw = self.inner.close, self.inner.throw

        def __next__(self) -> Wait:
            next(self.inner)
            raise Interruption

    operation: Any = Interrupting()
    with pytest.raises(Interruption):
        run(operation, no_wait)
    assert ["GeneratorExit", "ended"] == seen


def test_a_stop_iteration_of_a_wait_is_not_a_result() -> None:
    """A signal handler that raises StopIteration leads to a RuntimeError and not to a return value of None."""
    seen: list[str] = []

    def wait(_: Wait) -> None:
        raise StopIteration

    with pytest.raises(RuntimeError):
        run(two_waits(seen), wait)
    assert ["StopIteration", "ended"] == seen


def yields_in(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Returns the yields in these statements, without those of nested functions."""
    pending: list[ast.AST] = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_operation_waits_under_the_lock(module: ModuleType) -> None:
    """No `yield` is inside a `with` block, for example a section that holds the lock."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.With):
            assert [] == [f"{module.__name__}:{found.lineno}" for found in yields_in(node.body)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_operation_waits_again_while_it_is_closed(module: ModuleType) -> None:
    """If the body of a `try` statement waits, its handlers and `finally` do not, because GeneratorExit has to end the
    operation.
    """
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Try) and any(yields_in(node.body)):
            after = [*node.finalbody, *(line for clause in node.handlers for line in clause.body)]
            assert [] == [f"{module.__name__}:{found.lineno}" for found in yields_in(after)]
