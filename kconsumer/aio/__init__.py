"""The consumers for asyncio: `AsyncConsumer`, `AsyncShareConsumer`, and awaitable forms of ranges and group queries."""

from typing import TYPE_CHECKING

from kconsumer.aio import groups, ranges
from kconsumer.aio.consumer import AsyncConsumer
from kconsumer.aio.ranges import RangeClient, read_range, read_topic, scan_topic

if TYPE_CHECKING:
    from kconsumer.aio.share_consumer import AsyncShareConsumer

__all__ = [
    "AsyncConsumer",
    "AsyncShareConsumer",
    "RangeClient",
    "groups",
    "ranges",
    "read_range",
    "read_topic",
    "scan_topic",
]


def __getattr__(name: str) -> object:
    if name == "AsyncShareConsumer":  # imported when used
        from kconsumer.aio.share_consumer import AsyncShareConsumer

        return AsyncShareConsumer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
