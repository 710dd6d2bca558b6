"""The `interceptors` option: the user's objects that see every batch before the caller does, and every commit after it
succeeded (Java `ConsumerInterceptors`). They run on the caller's thread. What they raise is logged and goes no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kconsumer.deferred_calls import get_logger
from kconsumer.metrics.plugins import NO_RESULT, notify_plugin
from kconsumer.records import ConsumerRecords
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)


class Interceptors:
    """A chain of interceptors in the order configured; each may have any of `on_consume`, `on_commit`, `close`."""

    def __init__(self, chain: Iterable[object]) -> None:
        self._chain = tuple(chain)
        self._consumers = tuple(one for one in self._chain if hasattr(one, "on_consume"))

    def consumed(self, records: ConsumerRecords) -> ConsumerRecords:
        """What the caller gets in place of `records`: each interceptor sees what the one before it returned. One that
        fails, or returns something else than ConsumerRecords, is passed over."""
        for interceptor in self._consumers:
            result = notify_plugin(interceptor, "on_consume", records)
            if isinstance(result, ConsumerRecords):
                records = result
            elif result is not NO_RESULT:
                log.warning("%r: on_consume returned %s, not ConsumerRecords; passed over", interceptor, type(result))
        return records

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit succeeded."""
        for interceptor in self._chain:
            notify_plugin(interceptor, "on_commit", offsets)

    def close(self) -> None:
        """The consumer is closed."""
        for interceptor in self._chain:
            notify_plugin(interceptor, "close")
