"""Kafka's error codes by number and by name, and the ones that tests of an error table need."""

from __future__ import annotations

from collections.abc import Iterable

from kconsumer._common.error_codes import CODES
from kconsumer.errors import error_class

COORDINATOR_ERRORS = {"COORDINATOR_NOT_AVAILABLE": "coordinator", "NOT_COORDINATOR": "coordinator"}
LOADING = {"COORDINATOR_LOAD_IN_PROGRESS": "retry"}

CODE = {row.name: code for code, row in CODES.items()}
NEVER_HEARD_OF = 4242


def name_of(code: int) -> str:
    """Returns the name of an error code, or the number as text if it has none."""
    return CODES[code].name if code in CODES else str(code)


def codes_for(names: Iterable[str]) -> list[int]:
    """Returns these codes, a retriable and a final one of each exception class of the others, and one that the library
    does not have. Codes without a row in a table differ in nothing else.
    """
    rows = {CODE[name] for name in names}
    others = {(error_class(code), row.retriable): code for code, row in CODES.items() if code not in rows}
    return sorted({*rows, *others.values(), NEVER_HEARD_OF})
