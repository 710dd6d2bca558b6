"""The awaitable forms of functions and classes have the parameters and docstrings of the blocking ones."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer, aio, groups, ranges

MODULES: list[tuple[ModuleType, ModuleType]] = [(groups, aio.groups), (ranges, aio.ranges)]
FUNCTIONS = [
    *((groups, aio.groups, name) for name in ("list", "describe", "offsets", "alter_offsets", "delete")),
    *((groups, aio.groups, name) for name in ("alter_share_offsets", "delete_share_offsets")),
    *((groups, aio.groups, name) for name in ("delete_offsets", "remove_members", "configs", "alter_configs")),
    *((ranges, aio.ranges, name) for name in ("read_range", "read_topic", "scan_topic")),
]
CLASSES: list[tuple[type, type]] = [
    (Consumer, aio.AsyncConsumer),
    (ShareConsumer, aio.AsyncShareConsumer),
    (groups.GroupClient, aio.groups.GroupClient),
    (ranges.RangeClient, aio.RangeClient),
    (ranges.RangeReader, aio.ranges.RangeReader),
    (ranges.TopicReader, aio.ranges.TopicReader),
]
# Method of the blocking class -> method of the class for asyncio.
RENAMED = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__", "__next__": "__anext__"}
# What only the blocking forms have, with the reason.
ONLY_BLOCKING = {
    "threads",  # a topic is read by one consumer and its network thread
    "idle_close_s",  # connections are not closed after an idle time
    "borrow",  # there is no pool of clients, because a client belongs to one event loop
    "open_range",  # internal: the readers of asyncio are opened by themselves
    "end_range",  # internal, the same
    "in_use",  # internal: tasks of one event loop never run at the same time
    "start_idle_timer",  # internal: see idle_close_s
    "take_if_idle",  # internal: see idle_close_s
}
# What only the classes for asyncio have, with the reason.
ONLY_AWAITABLE = {
    "batches",  # an async generator is simpler than a task around a loop of polls
    "begin_range",  # internal: a reader opens its range after it was created
    "run",  # internal: the client discards a consumer that an operation has left inconsistent
}
# Parameters with another default: a task decodes less at once, because other tasks do not run meanwhile.
OTHER_DEFAULTS = {("read_topic", "max_bytes"), ("read_topic", "max_rows")}
# Docstrings that explain how to open a reader, or what one event loop means, instead of threads.
OWN_SUMMARY = {"read_range", "scan_topic", "close"}
OWN_CONSTRUCTORS = {"TopicReader"}  # users do not call it


def parameters(function: Any, name: str) -> list[tuple[object, ...]]:
    """Returns the parameters of a function that both forms must have."""
    return [
        (found.name, found.kind, found.annotation, None if (name, found.name) in OTHER_DEFAULTS else found.default)
        for found in inspect.signature(function).parameters.values()
        if found.name not in ONLY_BLOCKING
    ]


def paragraphs(function: Any, name: str) -> list[str]:
    """Returns the paragraphs of a docstring that both forms must have."""
    text = inspect.getdoc(function) or ""
    found = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    found = [re.sub(r" `threads` is the number of threads[^.]*\.", "", paragraph) for paragraph in found]
    return found[1:] if name in OWN_SUMMARY else found


@pytest.mark.parametrize(("blocking", "awaitable", "name"), FUNCTIONS)
def test_functions(blocking: ModuleType, awaitable: ModuleType, name: str) -> None:
    """A function has the same parameters, and the paragraphs of the same docstring."""
    expected, found = getattr(blocking, name), getattr(awaitable, name)
    assert parameters(expected, name) == parameters(found, name)
    if name != "scan_topic":  # its second paragraph names close() and `with`
        assert set() == set(paragraphs(expected, name)) - set(paragraphs(found, name))


def public_methods(cls: type) -> dict[str, Any]:
    """Returns the methods of a class that users call, or that `with` and `for` call."""
    found = {name: value for base in reversed(cls.__mro__[:-1]) for name, value in vars(base).items()}
    special = {"__init__", *RENAMED, *RENAMED.values()}
    return {
        name: getattr(cls, name)
        for name, value in found.items()
        if (inspect.isfunction(value) or isinstance(value, classmethod))
        and (not name.startswith("_") or name in special)
        and name not in ONLY_BLOCKING | ONLY_AWAITABLE
    }


@pytest.mark.parametrize(("blocking", "awaitable"), CLASSES)
def test_methods(blocking: type, awaitable: type) -> None:
    """A class has the same public methods, with the same parameters and docstrings."""
    expected, found = public_methods(blocking), public_methods(awaitable)
    assert {RENAMED.get(name, name) for name in expected} | (set(found) & {"__aenter__"}) == set(found)
    for name, method in expected.items():
        if name == "__init__" and blocking.__name__ in OWN_CONSTRUCTORS:
            continue
        other = found[RENAMED.get(name, name)]
        assert with_type_names(parameters(method, name)) == with_type_names(parameters(other, name)), name
        if not name.startswith("__"):
            results = [inspect.signature(form).return_annotation for form in (method, other)]
            assert str(results[0]) == str(results[1]), name
            assert set() == set(paragraphs(method, name)) - set(in_blocking(paragraphs(other, name))), name


def with_type_names(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Returns parameters with the names of their types, which are the same in both forms."""
    return [(name, kind, str(annotation), default) for name, kind, annotation, default in found]


def in_blocking(texts: list[str]) -> list[str]:
    """Returns paragraphs with the names of the blocking functions."""
    return [text.replace("`kconsumer.aio.read_range`", "`kconsumer.read_range`") for text in texts]


@pytest.mark.parametrize(("blocking", "awaitable"), MODULES)
def test_modules_export_the_same_names(blocking: ModuleType, awaitable: ModuleType) -> None:
    """The modules for asyncio export the names of the blocking modules."""
    assert set(awaitable.__all__) == set(blocking.__all__) - ONLY_BLOCKING


def test_exceptions_are_needed() -> None:
    """Every name in ONLY_BLOCKING and ONLY_AWAITABLE is one of a form, and of no other."""

    def names(form: int) -> set[str]:
        """Returns the names of parameters, functions and methods of one form."""
        found = {name for pair in MODULES for name in pair[form].__all__}
        for pair in CLASSES:
            found |= set(dir(pair[form])) | set(inspect.signature(pair[form]).parameters)
        return found.union(*(inspect.signature(getattr(f[form], f[2])).parameters for f in FUNCTIONS))

    assert set() == ONLY_BLOCKING & names(1)
    assert set() == ONLY_BLOCKING - names(0)
    assert set() == ONLY_AWAITABLE & names(0)
    assert set() == ONLY_AWAITABLE - names(1)
