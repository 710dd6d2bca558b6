"""Tries the start of a pipeline again if it fails for a reason that may pass: a broker that cannot be reached."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from kconsumer.spark.pipeline.reporting import first_line

__all__ = ["until_started"]

T = TypeVar("T")

# In errors of a start that may succeed later: of this package, of Java, and of Spark.
MAY_PASS = re.compile(
    r"cannot be reached|[Cc]onnection refused|TimeoutError|[Tt]imed out|UnknownHostException|NotAvailableError"
    r"|Python worker failed to connect back"
)
MAX_WAIT_S = 15  # between two attempts


def until_started(
    attempt: Callable[[], T],
    has_begun: Callable[[], bool],
    timeout_s: int,
    now: Callable[[], float],
    wait: Callable[[float], bool],
    report: Callable[[str], object],
) -> T | None:
    """Call `attempt`, and again while it fails for a reason that may pass. Returns its result.

    Its error is raised if it is of another kind, `timeout_s` after the first one, or if `has_begun` returns True.
    `now` returns the time in ms. `wait` sleeps for a number of seconds. It returns True if the pipeline must stop: then
    the result is None.
    """
    until, wait_s = None, 1
    while True:
        try:
            return attempt()
        except Exception as error:  # of Spark, of Java, or of this package
            until = now() + timeout_s * 1000 if until is None else until
            if has_begun() or now() >= until or not MAY_PASS.search(str(error)):
                raise
            report(f"the start is tried again in {wait_s} s: {first_line(error)}\n")
        if wait(wait_s):
            return None
        wait_s = min(2 * wait_s, MAX_WAIT_S)
