"""What managers do about error codes: the base of their actions, and the kind of table that maps codes to actions.

Decides nothing by itself. The tables are in the `error_actions.py` next to the managers that act on them, and
docs/design/state-machines.md shows them all.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from kconsumer.error_codes import is_retriable


class ErrorAction(enum.Enum):
    """What a manager does about an error code; the value describes it. The members are in subclasses."""


A = TypeVar("A", bound=ErrorAction)


class ErrorTable(dict[int, A]):
    """Maps the error codes of one response to actions, with a default for codes that have no row."""

    __slots__ = ("_default", "_default_retriable")

    def __init__(self, rows: Mapping[int, A], *, default: A, default_retriable: A | None = None) -> None:
        """`default` is the action of codes without a row; `default_retriable`, if given, that of the retriable ones
        among them."""
        super().__init__(rows)
        self._default = default
        self._default_retriable = default if default_retriable is None else default_retriable

    def __missing__(self, code: int) -> A:
        return self._default_retriable if is_retriable(code) else self._default
