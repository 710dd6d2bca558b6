"""The access guard admits one thread at a time, nested calls of it, and no call after close or in a forked child."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable

import pytest

from kconsumer import Consumer
from kconsumer._core.lock import fork_count
from kconsumer.engine.access_guard import AccessGuard, guarded
from kconsumer.errors import ConcurrentAccessError, ForkedConsumerError, StateError
from support.harnesses.inside import guard_of
from support.harnesses.threads import elsewhere


class Guarded:
    """An object with guarded public methods."""

    def __init__(self) -> None:
        self._guard = AccessGuard()

    @guarded
    def run(self, action: Callable[[], object]) -> object:
        """Run an action inside the guard."""
        return action()

    @guarded
    def double(self, number: int, *, plus: int = 0) -> int:
        """Returns twice the value."""
        return 2 * number + plus


def test_public_method_is_itself() -> None:
    """The guard keeps arguments, result, name and docstring of a method."""
    assert 7 == Guarded().double(3, plus=1)
    assert ("double", "Returns twice the value.") == (Guarded.double.__name__, Guarded.double.__doc__)


def test_same_thread_may_enter_again() -> None:
    """Calls may be nested, and the end of the inner one does not release the guard."""
    guarded = Guarded()

    def nested() -> object:
        guarded.run(lambda: None)
        return elsewhere(lambda: guarded.double(1))

    assert isinstance(guarded.run(nested), ConcurrentAccessError)
    assert elsewhere(lambda: guarded.double(1)) is None


def test_second_thread_is_refused_with_advice() -> None:
    """A second thread gets an error with advice at once; afterwards either thread may use the object."""
    guarded = Guarded()
    error = guarded.run(lambda: elsewhere(lambda: guarded.double(1)))
    assert isinstance(error, ConcurrentAccessError)
    assert "one consumer per thread" in str(error)
    assert elsewhere(lambda: guarded.double(1)) is None
    assert 2 == guarded.double(1)


def test_refused_thread_changes_nothing() -> None:
    """After a refusal the first thread still holds the guard, and can leave and enter again."""
    guarded = Guarded()

    def refused_twice() -> list[type]:
        return [type(elsewhere(lambda: guarded.double(1))) for _ in range(2)]

    assert [ConcurrentAccessError] * 2 == guarded.run(refused_twice)
    assert 2 == guarded.double(1)


def test_error_inside_opens_the_guard() -> None:
    """A method that raises releases the guard."""
    guarded = Guarded()

    def fail() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        guarded.run(fail)
    assert elsewhere(lambda: guarded.double(1)) is None


def test_closed_object_refuses_all_threads() -> None:
    """After close calls of both threads raise StateError each time, and the guard is not left locked."""
    guarded = Guarded()
    guard_of(guarded).closed = True
    for _ in range(2):
        with pytest.raises(StateError, match="closed"):
            guarded.double(1)
        assert isinstance(elsewhere(lambda: guarded.double(1)), StateError)


def test_closing_inside_a_call_takes_effect_in_it() -> None:
    """After a callback closed the object, further calls of the thread are refused, and the outer call can return."""
    guarded = Guarded()

    def close_and_call() -> object:
        guard_of(guarded).closed = True
        with pytest.raises(StateError):
            guarded.double(1)
        return "left"

    assert "left" == guarded.run(close_and_call)
    assert isinstance(elsewhere(lambda: guarded.double(1)), StateError)


def test_forked_child_is_refused() -> None:
    """In a forked child every call raises ForkedConsumerError, closed or not; a new object works there."""
    guarded, forks = Guarded(), fork_count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest may have threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            guarded.double(1)
        except ForkedConsumerError:
            code = 0 if guard_of(guarded).forked and fork_count() == forks + 1 and Guarded().double(1) == 2 else 2
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (forks, False, 2) == (fork_count(), guard_of(guarded).forked, guarded.double(1))


def test_a_constructor_that_raises_leaves_nothing_to_close(recwarn: pytest.WarningsRecorder) -> None:
    """A consumer whose constructor raises need not be closed."""
    with pytest.raises(StateError, match="group_id"):
        Consumer("t", bootstrap_servers="127.0.0.1:1")
    gc.collect()
    assert [] == [str(warning.message) for warning in recwarn]
