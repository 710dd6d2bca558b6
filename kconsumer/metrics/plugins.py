"""Calls methods of the application's objects, such as interceptors and metrics reporters.

An object may lack the method. An exception that it raises is logged and not raised to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kconsumer._common.deferred_calls import get_logger

log = get_logger(__name__)

NO_RESULT = object()


def notify_plugin(plugin: object, method: str, *arguments: object) -> Any:
    """Call a method of an object. Returns its result.

    Returns NO_RESULT if the object has no such method, or if the method raises an Exception.
    """
    run: Callable[..., object] | None = getattr(plugin, method, None)
    if run is None:
        return NO_RESULT
    try:
        return run(*arguments)
    except Exception:  # an error of a plugin must not end a call of the consumer
        log.warning("%r: %s failed", plugin, method, exc_info=True)
        return NO_RESULT
