"""The consumer for asyncio: `AsyncConsumer`, and awaitable forms of ranges and group queries."""

from kconsumer.aio import groups, ranges
from kconsumer.aio.consumer import AsyncConsumer
from kconsumer.aio.ranges import RangeClient, read_range, read_topic, scan_topic

__all__ = ["AsyncConsumer", "RangeClient", "groups", "ranges", "read_range", "read_topic", "scan_topic"]
