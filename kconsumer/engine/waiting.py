"""What an operation waits for, and the runner that drives an operation on the calling thread.

An operation is a generator that does what one blocking call of the API does. It changes state and asks managers, and
where it must wait it yields a `Wait` instead of blocking. Its return value is the result of the call. It does not know
who drives it: `run` blocks the calling thread in each wait, and a runner for asyncio would await there.

The rules of an operation:

- It does not yield while it holds the lock, and not inside a `Section`: user code and the other thread run meanwhile.
- A wait may end early, for any activity. The operation then checks what it waits for, and yields again.
- The operation checks its deadline, `wakeup()` and the errors of managers; the runner checks nothing.
- What a wait raises (a signal handler's exception, an error of a response) is raised at the `yield`.
- It does not yield in a `finally` or `except` clause around another `yield`: a runner that is interrupted itself closes
  the operation (GeneratorExit), and the operation must then end without another wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kconsumer.managers import Promise

T = TypeVar("T")

AT_ONCE = 0.0
"""The deadline of a wait that does not block: managers are polled, and the network is polled once."""


@dataclass(slots=True, eq=False)
class Wait:
    """What an operation waits for: its promise, or any activity. Joining and fetching happen inside poll() only."""

    deadline: float  # ms on the engine's clock; the wait ends then at the latest
    promise: Promise[Any] | None = None  # the wait ends when it is done
    joining: bool = False  # the membership may join the group meanwhile
    fetching: bool = False  # fetches may be sent, and buffered data ends the wait
    managers: bool = True  # whether managers are polled; False: only what is in flight is waited for


Operation: TypeAlias = Generator[Wait, None, T]


def run(operation: Operation[T], wait: Callable[[Wait], object]) -> T:
    """Drive an operation to its end, calling `wait` for each of its waits, and return its result.

    Between the end of the operation and the return there is no call. A signal handler could raise after one, and the
    records that the operation has taken from the buffer would be lost.
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
        # Either the operation raised, and has ended, or an exception hit this frame between two of its waits.
        operation.close()
        raise
