"""Calls kconsumer.aio as if it blocked, so that a test of the blocking functions tests the awaitable ones, too."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, Self

import pytest

from kconsumer import aio
from kconsumer.aio.groups import GroupClient
from kconsumer.aio.ranges import RangeClient, RangeReader, TopicReader

# The names of blocking functions and classes in modules of tests, and their awaitable forms.
FORMS: dict[str, Callable[..., Any]] = {
    "read_range": aio.read_range,
    "read_topic": aio.read_topic,
    "RangeClient": RangeClient,
    "GroupClient": GroupClient,
}


class EventLoop:
    """Runs coroutines in one event loop, and blocks until they have ended. A context manager."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.close()

    def replace_names(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the blocking functions and classes in a module of tests. At least one of them must be there."""
        names = vars(module).keys() & FORMS.keys()
        assert names, f"{module.__name__} uses none of {', '.join(FORMS)}"
        for name in names:
            monkeypatch.setattr(module, name, self.blocking(FORMS[name]))

    def blocking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that calls `function` inside the event loop, and waits for the result.

        Readers are opened. They and clients are returned as objects whose methods block.
        """

        async def run(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            if inspect.isawaitable(result):
                result = await result
            return result

        def call(*arguments: Any, **options: Any) -> Any:
            result = self._runner.run(run(*arguments, **options))
            is_of_aio = isinstance(result, RangeReader | TopicReader | RangeClient | GroupClient)
            return Blocking(self, result) if is_of_aio else result

        return call


class Blocking:
    """An object of kconsumer.aio whose methods block."""

    def __init__(self, loop: EventLoop, target: Any) -> None:
        self._loop = loop
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return self._loop.blocking(value) if callable(value) else value

    def __enter__(self) -> Self:
        self._loop.blocking(self._target.__aenter__)()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.blocking(self._target.__aexit__)(kind, error, trace)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        found = self._loop.blocking(anext)(self._target, None)
        if found is None:
            raise StopIteration
        return found
