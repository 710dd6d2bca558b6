"""Rebalance callbacks: the listener class, and the three callables that may be given instead of a listener.

Callbacks of a `Consumer` are plain functions. Those of an `AsyncConsumer` may also be coroutine functions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from kconsumer.types import TopicPartition

CO_COROUTINE = 0x80  # the flag of code objects of `async def` functions, from the reference of `inspect`

C = TypeVar("C")
Callback: TypeAlias = "Callable[[C, tuple[TopicPartition, ...]], Any]"


class RebalanceListener:
    """Base class of listeners. Override any method; it runs inside `poll`, `unsubscribe` or `close`.

    `consumer` is the consumer, and `partitions` is sorted by topic and partition. A callback may call `commit`, `seek`,
    `position` and `pause` (Java `ConsumerRebalanceListener`).
    """

    def on_partitions_assigned(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Handle added partitions, after a rebalance. With the eager protocol, these are all assigned partitions."""

    def on_partitions_revoked(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Handle partitions that will be revoked, for example commit the offsets of processed records."""

    def on_partitions_lost(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Handle lost partitions, for which commits fail. Calls `on_partitions_revoked` unless overridden."""
        return self.on_partitions_revoked(consumer, partitions)


class CallableListener(RebalanceListener):
    """A listener that calls the `on_assign`, `on_revoke` and `on_lost` callables given to `subscribe`."""

    def __init__(
        self, on_assign: Callback[Any] | None, on_revoke: Callback[Any] | None, on_lost: Callback[Any] | None
    ) -> None:
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost

    def callbacks(self) -> dict[str, Callback[Any] | None]:
        """Returns a dict of argument of `subscribe` -> its value."""
        return {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}

    def on_partitions_assigned(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Call `on_assign` if given."""
        return _call(self._on_assign, consumer, partitions)

    def on_partitions_revoked(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Call `on_revoke` if given."""
        return _call(self._on_revoke, consumer, partitions)

    def on_partitions_lost(self, consumer: Any, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Call `on_lost` if given, otherwise `on_revoke`."""
        return _call(self._on_lost or self._on_revoke, consumer, partitions)


def chosen_listener(
    listener: RebalanceListener | None,
    on_assign: Callback[Any] | None,
    on_revoke: Callback[Any] | None,
    on_lost: Callback[Any] | None,
) -> RebalanceListener | None:
    """Returns the listener for the arguments of `subscribe`, or None if it got none. Raises TypeError or ValueError."""
    callables = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
    given = {name: callback for name, callback in callables.items() if callback is not None}
    if listener is not None:
        if given:
            raise ValueError("give either listener= or on_assign=/on_revoke=/on_lost=, not both")
        if not callable(getattr(listener, "on_partitions_assigned", None)):
            raise TypeError(f"listener must be a RebalanceListener, not {listener!r}")
        return listener
    for name, callback in given.items():
        if not callable(callback):
            raise TypeError(f"{name} must be callable: {name}(consumer, partitions), not {callback!r}")
    return CallableListener(on_assign, on_revoke, on_lost) if given else None


def coroutine_function(listener: RebalanceListener) -> str | None:
    """Returns the name of a callback of this listener that is a coroutine function, or None if there is none."""
    if isinstance(listener, CallableListener):
        callbacks = listener.callbacks()
    else:
        names = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
        callbacks = {name: getattr(listener, name) for name in names}
    return next((name for name, callback in callbacks.items() if is_coroutine_function(callback)), None)


def is_coroutine_function(callback: object) -> bool:
    """Returns the same as `inspect.iscoroutinefunction`, without importing `inspect`, which takes milliseconds."""
    function = getattr(callback, "__func__", callback)
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & CO_COROUTINE)


def _call(
    callback: Callback[Any] | None, consumer: object, partitions: tuple[TopicPartition, ...]
) -> Awaitable[None] | None:
    if callback is None:
        return None
    result: Awaitable[None] | None = callback(consumer, partitions)
    return result
