"""The consumer for asyncio: `AsyncConsumer`, and awaitable forms of ranges and group queries."""

from kconsumer.aio import groups
from kconsumer.aio.consumer import AsyncConsumer

__all__ = ["AsyncConsumer", "groups"]
