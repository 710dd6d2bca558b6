"""Calls the interceptors of the option `interceptors` (Java `ConsumerInterceptors`).

Interceptors are user objects. They receive every batch before poll() returns it, and the offsets of every successful
commit. They run on the calling thread. Their exceptions are logged and not raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kconsumer._common.deferred_calls import get_logger
from kconsumer.metrics.plugins import NO_RESULT, notify_plugin
from kconsumer.records import ConsumerRecords
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)


class Interceptors:
    """The interceptors in the configured order. Each may have the methods `on_consume`, `on_commit` and `close`."""

    def __init__(self, chain: Iterable[object]) -> None:
        self._chain = tuple(chain)
        self._consumers = tuple(one for one in self._chain if hasattr(one, "on_consume"))

    def consumed(self, records: ConsumerRecords) -> ConsumerRecords:
        """Pass records through all interceptors. Returns the records that poll() must return.

        Each interceptor receives the result of the previous one. If an interceptor raises, or returns anything but
        ConsumerRecords, its result is ignored.
        """
        taken = records
        for interceptor in self._consumers:
            result = notify_plugin(interceptor, "on_consume", records)
            if isinstance(result, ConsumerRecords):
                records = result
            elif result is not NO_RESULT:
                log.warning("%r: on_consume returned %s, not ConsumerRecords; ignored", interceptor, type(result))
        if records and records is not taken:
            records._taken = taken._runs
        return records

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Notify the interceptors of a successful commit."""
        for interceptor in self._chain:
            notify_plugin(interceptor, "on_commit", offsets)

    def close(self) -> None:
        """Notify the interceptors that the consumer is closed."""
        for interceptor in self._chain:
            notify_plugin(interceptor, "close")
