"""The consumers for asyncio, `AsyncConsumer` and `AsyncShareConsumer`; awaitable forms of tables, ranges and groups."""

from typing import TYPE_CHECKING

from kconsumer.aio import groups, ranges
from kconsumer.aio.consumer import AsyncConsumer
from kconsumer.aio.ranges import RangeClient, read_range, read_topic, scan_topic

if TYPE_CHECKING:
    from kconsumer.aio.share_consumer import AsyncShareConsumer
    from kconsumer.aio.table import AsyncTopicTable

__all__ = [
    "AsyncConsumer",
    "AsyncShareConsumer",
    "AsyncTopicTable",
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
    if name == "AsyncTopicTable":
        from kconsumer.aio.table import AsyncTopicTable

        return AsyncTopicTable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
