"""The engines of a Consumer as options, and the exception with which tests interrupt its calls."""

from __future__ import annotations

from typing import Any

#: The group protocol "consumer" has an engine of its own.
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}


class Stop(BaseException):
    """The exception of a signal handler, or of user code, like Ctrl-C."""
