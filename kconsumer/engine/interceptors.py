"""The `interceptors` option: the user's objects that see every batch before the caller does, and every commit after it
succeeded (Java `ConsumerInterceptors`). They run on the caller's thread. What they raise is logged and goes no further.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kconsumer.records import ConsumerRecords
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)


class Interceptors:
    """A chain of interceptors in the order configured; each may have any of `on_consume`, `on_commit`, `close`."""

    def __init__(self, chain: Iterable[object]) -> None:
        self._chain = tuple(chain)
        self._consumers = tuple(one for one in self._chain if hasattr(one, "on_consume"))

    def consumed(self, records: ConsumerRecords) -> ConsumerRecords:
        """What the caller gets in place of `records`: each interceptor sees what the one before it returned. One that
        fails, or returns something else than ConsumerRecords, is passed over."""
        for interceptor in self._consumers:
            result = _call(interceptor, "on_consume", records)
            if isinstance(result, ConsumerRecords):
                records = result
            elif result is not FAILED:
                log.warning("%r: on_consume returned %s, not ConsumerRecords; passed over", interceptor, type(result))
        return records

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit succeeded."""
        for interceptor in self._chain:
            _call(interceptor, "on_commit", offsets)

    def close(self) -> None:
        """The consumer is closed."""
        for interceptor in self._chain:
            _call(interceptor, "close")


FAILED = object()


def _call(interceptor: object, method: str, *arguments: object) -> Any:
    run: Callable[..., object] | None = getattr(interceptor, method, None)
    if run is None:
        return FAILED
    try:
        return run(*arguments)
    except Exception:  # by contract an interceptor cannot break the consumer
        log.warning("%r: %s failed", interceptor, method, exc_info=True)
        return FAILED
