"""Base classes for the tables that map error codes of brokers to the actions of a manager.

Most tables are in the `error_actions.py` next to the managers. docs/design/state-machines.md shows all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from kconsumer._common.error_codes import is_retriable


class ErrorAction(enum.Enum):
    """The action of a manager after an error code. The value describes the action. Subclasses define the members."""


A = TypeVar("A", bound=ErrorAction)


class ErrorTable(dict[int, A]):
    """Maps the error codes of one kind of response to actions. Codes without a row have a default action."""

    __slots__ = ("_default", "_default_retriable")

    def __init__(self, rows: Mapping[int, A], *, default: A, default_retriable: A | None = None) -> None:
        """Create a table with the actions of `rows`. For codes without a row, the action is `default`.

        If `default_retriable` is given, it is the action for retriable codes without a row.
        """
        super().__init__(rows)
        self._default = default
        self._default_retriable = default if default_retriable is None else default_retriable

    def __missing__(self, code: int) -> A:
        return self._default_retriable if is_retriable(code) else self._default
