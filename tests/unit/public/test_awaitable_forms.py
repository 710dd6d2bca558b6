"""The awaitable forms of functions and classes have the parameters and docstrings of the blocking ones."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from kconsumer import aio, groups

FUNCTIONS = [(groups, aio.groups, name) for name in ("list", "describe", "offsets")]
CLASSES: list[tuple[type, type]] = [(groups.GroupClient, aio.groups.GroupClient)]
# Method of the blocking class -> method of the class for asyncio.
RENAMED = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


@pytest.mark.parametrize(("blocking", "awaitable", "name"), FUNCTIONS)
def test_functions(blocking: ModuleType, awaitable: ModuleType, name: str) -> None:
    """A function has the same parameters, result and docstring."""
    expected, found = getattr(blocking, name), getattr(awaitable, name)
    assert inspect.signature(expected) == inspect.signature(found)
    assert expected.__doc__ == found.__doc__
    assert inspect.iscoroutinefunction(found)


@pytest.mark.parametrize(("blocking", "awaitable"), CLASSES)
def test_methods(blocking: type, awaitable: type) -> None:
    """A class has the same public methods, with the same parameters, results and docstrings."""
    names = [name for name, value in vars(blocking).items() if inspect.isfunction(value) and is_public(name)]
    assert names
    for name in names:
        expected, found = getattr(blocking, name), getattr(awaitable, RENAMED.get(name, name))
        assert inspect.signature(expected) == inspect.signature(found), name
        assert expected.__doc__ == found.__doc__, name


def is_public(name: str) -> bool:
    """Returns True for a method that users call or that `with` calls."""
    return not name.startswith("_") or name in {"__init__", *RENAMED}


@pytest.mark.parametrize(("blocking", "awaitable"), CLASSES)
def test_no_other_methods(blocking: type, awaitable: type) -> None:
    """The class for asyncio has no public method that the blocking class does not have."""
    mine = {name for name, value in vars(awaitable).items() if inspect.isfunction(value) and is_public(name)}
    assert set() == mine - set(dir(blocking))


def test_modules_export_the_same_names() -> None:
    """The modules for asyncio export the names of the blocking modules."""
    assert groups.__all__ == aio.groups.__all__
