"""The ways in which programs start an event loop: asyncio, uvloop, and anyio with its asyncio backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import anyio
import uvloop

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


def run_in_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a loop of uvloop. Returns its result. `uvloop.run` would call `asyncio.run`, which tests
    replace by this function.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def run_in_anyio(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine with `anyio.run`. Returns its result."""

    async def awaited() -> Any:
        return await main

    return anyio.run(awaited, backend="asyncio")


EVENT_LOOPS: dict[str, Run] = {"asyncio": asyncio.run, "uvloop": run_in_uvloop, "anyio": run_in_anyio}
