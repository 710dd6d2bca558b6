"""AsyncReader: what RangeReader and TopicReader of `kconsumer.aio` share: how a reader is opened, used and closed.

Decides that only one task at a time may use a reader.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Generator
from typing import Any, Self

from kconsumer._common.closing import AsyncClosing
from kconsumer.arrow import RecordBatch
from kconsumer.errors import StateError


class AsyncReader(AsyncClosing):
    """An async iterator over Arrow batches, which `async with`, `await` or the first step opens."""

    reading = False  # a task is inside a step

    @abstractmethod
    async def _open(self) -> object:
        """Look up what to read, unless that was done."""

    @abstractmethod
    async def close(self) -> None:
        """End reading. May be called repeatedly."""

    @abstractmethod
    async def __anext__(self) -> RecordBatch:
        """Returns the next batch."""

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        """Open the reader. If that fails, or is cancelled, closes the reader."""
        self._enter()
        try:
            await self._open()
        except (Exception, asyncio.CancelledError):
            await self.close()
            raise
        finally:
            self.reading = False
        return self

    def __aiter__(self) -> Self:
        return self

    def _enter(self) -> None:
        """Begin a step, at whose end the caller sets `reading` to False. Raises StateError if another one runs."""
        if self.reading:
            raise StateError(f"another task is reading {self!r}: read it in one task, and pass the batches on")
        self.reading = True
