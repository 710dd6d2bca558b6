"""Flows: the steps of a run, which wait for a Consumer by blocking the thread, or for an AsyncConsumer by awaiting.

A flow is a generator. It yields each call that may wait, as a callable without arguments, and receives the result of
the call, or its exception. `run_flow` makes the calls on the calling thread. `await_flow` awaits what they return.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Flow: TypeAlias = Generator[Callable[[], Any], Any, T]


def run_flow(flow: Flow[T]) -> T:
    """Make the calls of a flow on the calling thread. Returns the result of the flow."""
    try:
        call = next(flow)
        while True:
            try:
                result = call()
            except BaseException as error:  # the flow decides, whatever it is
                call = flow.throw(error)
            else:
                call = flow.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


async def await_flow(flow: Flow[T]) -> T:
    """Make the calls of a flow in the calling task, and await their results. Returns the result of the flow."""
    try:
        call = next(flow)
        while True:
            try:
                result = call()
                if isinstance(result, Awaitable):
                    result = await result
            except BaseException as error:  # the flow decides; also CancelledError
                call = flow.throw(error)
            else:
                call = flow.send(result)
    except StopIteration as end:
        found: T = end.value
        return found
