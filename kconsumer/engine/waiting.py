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

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from kconsumer._core.cycle import Wait, run

__all__ = ["AT_ONCE", "Operation", "Wait", "run"]

T = TypeVar("T")

AT_ONCE = 0.0
"""The deadline of a wait that does not block. What has arrived is handled, and the managers are polled once."""


Operation: TypeAlias = Generator[Wait, None, T]
