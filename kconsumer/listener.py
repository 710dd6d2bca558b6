"""Rebalance callbacks: the listener class, and the three callables that may be given instead of a listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kconsumer.consumer import Consumer
    from kconsumer.types import TopicPartition

    Callback = Callable[[Consumer, tuple[TopicPartition, ...]], Any]


class RebalanceListener:
    """Base class of listeners. Override any method; it runs on the thread that calls `poll`, `unsubscribe` or `close`.

    `partitions` is sorted by topic and partition. A callback may call `commit`, `seek`, `position` and `pause` (Java
    `ConsumerRebalanceListener`).
    """

    def on_partitions_assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Handle added partitions, after a rebalance. With the eager protocol, these are all assigned partitions."""

    def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Handle partitions that will be revoked, for example commit the offsets of processed records."""

    def on_partitions_lost(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Handle lost partitions, for which commits fail. Calls `on_partitions_revoked` unless overridden."""
        self.on_partitions_revoked(consumer, partitions)


class CallableListener(RebalanceListener):
    """A listener that calls the `on_assign`, `on_revoke` and `on_lost` callables given to `subscribe`."""

    def __init__(self, on_assign: Callback | None, on_revoke: Callback | None, on_lost: Callback | None) -> None:
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost

    def on_partitions_assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Call `on_assign` if given."""
        if self._on_assign is not None:
            self._on_assign(consumer, partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Call `on_revoke` if given."""
        if self._on_revoke is not None:
            self._on_revoke(consumer, partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Call `on_lost` if given, otherwise `on_revoke`."""
        if self._on_lost is not None:
            self._on_lost(consumer, partitions)
        else:
            self.on_partitions_revoked(consumer, partitions)
