"""`Wait`, which operations yield, and `run`, which drives an operation on the calling thread.

The rules of operations and runners are in docs/design/engines-and-threads.md, "Blocking calls".
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
