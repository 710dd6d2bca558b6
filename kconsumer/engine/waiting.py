"""`Wait`, which operations yield, and `run`, which drives an operation on the calling thread.

An operation is a generator that does the work of one blocking call of the API. It changes state and calls managers.
Where it must wait, it yields a `Wait` instead of blocking. Its return value is the result of the call. A runner drives
the operation: `run` blocks the calling thread at each `Wait`, and the runner of `kconsumer.aio` awaits there.

The rules of an operation:

- It yields neither while it holds the lock nor inside a `Section`, because user code and other threads run during a
  wait.
- Any activity may end a wait early. The operation then checks its condition, and yields again if it must still wait.
- The operation checks its deadline, `wakeup()` and the errors of managers. The runner checks nothing.
- If an exception ends a wait, such as one raised by a signal handler, it is raised at the `yield`.
- It does not yield in a `finally` or `except` clause around another `yield`. An interrupted runner closes the operation
  (GeneratorExit), which must then end without another wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from kconsumer._internal.managers import Promise

T = TypeVar("T")

AT_ONCE = 0.0
"""The deadline of a wait that does not block. What has arrived is handled, and the managers are polled once."""


class Wait:
    """A wait of an operation: what ends it, and which work is allowed meanwhile. Any activity may end it early."""

    __slots__ = ("deadline", "fetching", "joining", "managers", "promise")

    def __init__(
        self,
        deadline: float,
        promise: Promise[Any] | None = None,
        joining: bool = False,
        fetching: bool = False,
        managers: bool = True,
    ) -> None:
        self.deadline = deadline  # the latest end of the wait; ms on the engine's clock
        self.promise = promise  # the wait ends when this promise is done
        self.joining = joining  # the member may join the group during the wait
        self.fetching = fetching  # fetches may be sent, and buffered data ends the wait
        self.managers = managers  # managers are polled; if False, the wait is only for requests in flight


Operation: TypeAlias = Generator[Wait, None, T]


def run(operation: Operation[T], wait: Callable[[Wait], object]) -> T:
    """Drive an operation to its end. Returns its result. Calls `wait` with each `Wait` that the operation yields.

    There is no call between the end of the operation and the return. After a call, a signal handler could raise an
    exception, and the records that the operation has taken from the buffer would be lost.
    """
    try:
        request = next(operation)
        while True:
            try:
                wait(request)
            except BaseException as error:
                request = operation.throw(error)
            else:
                request = next(operation)
    except StopIteration as end:
        result: T = end.value
        return result
    except BaseException:
        # Either the operation raised, and has ended, or an asynchronous exception hit this frame between two waits.
        operation.close()
        raise
