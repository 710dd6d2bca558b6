"""Base classes of objects whose `with` or `async with` block ends with `close()`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """An object that a `with` block closes."""

    @abstractmethod
    def close(self) -> None:
        """Close the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClosing(ABC):
    """An object that an `async with` block closes."""

    @abstractmethod
    async def close(self) -> None:
        """Close the object."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
