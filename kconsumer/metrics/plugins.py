"""Tells the user's objects what happens, as interceptors and metrics reporters: they may have a method for it or not,
and what it raises is logged and goes no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kconsumer.deferred_calls import get_logger

log = get_logger(__name__)

NO_RESULT = object()


def notify_plugin(plugin: object, method: str, *arguments: object) -> Any:
    """Call a method of it; what that returns. NO_ANSWER if it has no such method, or raised an Exception."""
    run: Callable[..., object] | None = getattr(plugin, method, None)
    if run is None:
        return NO_RESULT
    try:
        return run(*arguments)
    except Exception:  # by contract it cannot break the consumer
        log.warning("%r: %s failed", plugin, method, exc_info=True)
        return NO_RESULT
