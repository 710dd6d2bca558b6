"""The blocking consumers and those for asyncio have the same methods, parameters, annotations and docstrings.

Tables name the differences. The same holds for the classes that close them.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer._client.blocking_client import BlockingClient
from kconsumer._client.client_base import ClientBase
from kconsumer._client.consumer_base import ConsumerBase
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
from kconsumer.aio.awaitable_client import AwaitableClient
from kconsumer.share.consumer_base import ShareConsumerBase

# Method of the blocking class -> method of the other class that does the same.
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
    "client_instance_id",
    "close",
    "__enter__",
    "__exit__",
}
"""The methods that wait. Those for asyncio are coroutine functions, and no others are."""
ANNOTATIONS = {"__iter__": ("Iterator", "AsyncIterator")}  # what differs in the text of annotations


class Pair(NamedTuple):
    """A blocking class, the class for asyncio, and the bases of both."""

    blocking: type
    awaitable: type
    bases: tuple[type, ...]
    awaitable_bases: tuple[type, ...]
    only_async: frozenset[str] = frozenset()


PAIRS = [
    Pair(
        Consumer,
        AsyncConsumer,
        (ConsumerBase, BlockingClient),
        (ConsumerBase, AwaitableClient),
        frozenset(ONLY_ASYNC),
    ),
    Pair(
        ShareConsumer,
        AsyncShareConsumer,
        (ShareConsumerBase, BlockingClient),
        (ShareConsumerBase, AwaitableClient),
    ),
    Pair(BlockingClient, AwaitableClient, (ClientBase,), (ClientBase,)),
]
SHARED = [ClientBase, ConsumerBase, ShareConsumerBase]


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in {"__init__", *RENAMED, *RENAMED.values()}


def methods(kind: type) -> set[str]:
    """Returns the names of the methods that a class defines itself."""
    return {name for name, value in vars(kind).items() if inspect.isfunction(value) and is_public(name)}


@pytest.mark.parametrize(
    ("pair", "name"),
    [(pair, name) for pair in PAIRS for name in sorted(methods(pair.blocking))],
    ids=lambda value: value if isinstance(value, str) else value.blocking.__name__,
)
def test_methods(pair: Pair, name: str) -> None:
    """A method has the same parameters with the same defaults and annotations, and the same docstring."""
    blocking, awaitable = vars(pair.blocking)[name], vars(pair.awaitable)[RENAMED.get(name, name)]
    expected, found = inspect.signature(blocking), inspect.signature(awaitable)
    old, new = ANNOTATIONS.get(name, ("", ""))
    assert expected.parameters == found.parameters
    assert expected.return_annotation.replace(old, new) == found.return_annotation
    assert blocking.__doc__ == awaitable.__doc__
    assert blocking.__doc__ or name in {"__init__", "__enter__"}
    assert inspect.iscoroutinefunction(awaitable) is (name in WAITING)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.blocking.__name__)
def test_no_other_methods(pair: Pair) -> None:
    """Each class defines the same methods itself, and inherits the others from the same base."""
    own = methods(pair.blocking)
    assert {RENAMED.get(name, name) for name in own} | pair.only_async == methods(pair.awaitable)
    assert all(inspect.getdoc(getattr(pair.awaitable, name)) for name in pair.only_async)
    assert (pair.bases, pair.awaitable_bases) == (pair.blocking.__bases__, pair.awaitable.__bases__)


@pytest.mark.parametrize("base", SHARED, ids=lambda base: base.__name__)
def test_bases_do_not_wait(base: type) -> None:
    """What both kinds inherit from a base is not a coroutine function, and neither of them replaces it."""
    assert not {name for name in methods(base) if inspect.iscoroutinefunction(vars(base)[name])}
    assert not {
        name
        for pair in PAIRS
        for kind in (pair.blocking, pair.awaitable)
        if issubclass(kind, base)
        for name in methods(kind) & methods(base)
    }


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.blocking.__name__)
def test_attributes(pair: Pair) -> None:
    """All public names are the same."""
    blocking = {name for name in dir(pair.blocking) if not name.startswith("_")}
    awaitable = {name for name in dir(pair.awaitable) if not name.startswith("_")}
    assert blocking | pair.only_async == awaitable
