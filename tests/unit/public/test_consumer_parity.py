"""`Consumer` and `AsyncConsumer` have the same methods, parameters, annotations and docstrings, but for a table."""

from __future__ import annotations

import inspect

import pytest

from kconsumer import Consumer
from kconsumer.aio import AsyncConsumer
from kconsumer.consumer_base import ConsumerBase

# Method of Consumer -> method of AsyncConsumer that does the same.
RENAMED = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__"}
ONLY_ASYNC = {
    "batches": "a `for` loop over poll() is written with `while`, which `async for` replaces where tasks are cancelled",
}
WAITING = {
    "unsubscribe",
    "poll",
    "poll_arrow",
    "commit",
    "committed",
    "position",
    "beginning_offsets",
    "end_offsets",
    "offsets_for_times",
    "partitions_for",
    "list_topics",
    "close",
    "__enter__",
    "__exit__",
}
"""The methods that wait. Those of AsyncConsumer are coroutine functions, and no others are."""
ANNOTATIONS = {"__iter__": ("Iterator", "AsyncIterator")}  # what differs in the text of annotations


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in {"__init__", *RENAMED}


def methods(kind: type) -> set[str]:
    """Returns the names of the methods that a class defines itself."""
    return {name for name, value in vars(kind).items() if inspect.isfunction(value) and is_public(name)}


OWN = sorted(methods(Consumer))


@pytest.mark.parametrize("name", OWN)
def test_methods(name: str) -> None:
    """A method has the same parameters with the same defaults and annotations, and the same docstring."""
    blocking, awaitable = vars(Consumer)[name], vars(AsyncConsumer)[RENAMED.get(name, name)]
    expected, found = inspect.signature(blocking), inspect.signature(awaitable)
    old, new = ANNOTATIONS.get(name, ("", ""))
    assert expected.parameters == found.parameters
    assert expected.return_annotation.replace(old, new) == found.return_annotation
    assert blocking.__doc__ == awaitable.__doc__
    assert blocking.__doc__ or name in {"__init__", "__enter__"}
    assert inspect.iscoroutinefunction(awaitable) is (name in WAITING)


def test_no_other_methods() -> None:
    """Each class defines the same methods itself, and inherits the others from ConsumerBase."""
    renamed = {RENAMED.get(name, name) for name in OWN}
    mine = methods(AsyncConsumer) | {name for name in RENAMED.values() if name in vars(AsyncConsumer)}
    assert renamed | ONLY_ASYNC.keys() == mine
    assert all(inspect.getdoc(getattr(AsyncConsumer, name)) for name in ONLY_ASYNC)
    assert (ConsumerBase,) == Consumer.__bases__ == AsyncConsumer.__bases__
    assert not methods(ConsumerBase) & (set(OWN) | mine)
    assert not {name for name in methods(ConsumerBase) if inspect.iscoroutinefunction(vars(ConsumerBase)[name])}


def test_attributes() -> None:
    """All public names are the same."""
    blocking = {name for name in dir(Consumer) if not name.startswith("_")}
    awaitable = {name for name in dir(AsyncConsumer) if not name.startswith("_")}
    assert blocking | ONLY_ASYNC.keys() == awaitable
