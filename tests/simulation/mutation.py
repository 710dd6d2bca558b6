"""Mutation: a defect that is put into the library on purpose, to show that the simulation finds it.

A mutation replaces text in the source of one function. The changed module is compiled, and the function gets the code
of its changed version, so that every reference to it has the defect. Applying a mutation raises an error if its text is
not in the source exactly once, so that a mutation cannot become void when the library changes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """A defect. `old` is the text of the function `where` that `new` replaces."""

    name: str
    description: str
    module: str  # without the prefix "kconsumer."
    where: str  # the qualified name of a function
    old: str
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Gives the library this defect until the context ends."""
        function = self._function()
        before = function.__code__
        self.apply()
        try:
            yield
        finally:
            function.__code__ = before

    def apply(self) -> None:
        """Give the library this defect for good."""
        self._function().__code__ = self._code()

    def _function(self) -> FunctionType:
        found: Any = importlib.import_module(f"kconsumer.{self.module}")
        for part in self.where.split("."):
            found = inspect.getattr_static(found, part)
        function = found.fget if isinstance(found, property) else found
        if not isinstance(function, FunctionType):
            raise TypeError(f"{self.name}: {self.where} is no function")
        return function

    def _code(self) -> CodeType:
        """Returns the code of the changed function."""
        module = importlib.import_module(f"kconsumer.{self.module}")
        lines = inspect.getsource(module).splitlines(keepends=True)
        block, number = inspect.getsourcelines(self._function())
        text = "".join(block)
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.where} contains {self.old!r} {text.count(self.old)} times, not once")
        first, last = number - 1, number - 1 + len(block)
        changed = "".join([*lines[:first], text.replace(self.old, self.new), *lines[last:]])
        codes = _codes(compile(changed, module.__file__ or "", "exec"))
        return next(code for code in codes if code.co_qualname == self.where)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
