"""Every error code that Kafka has, by number and by name, and one that it does not have: for tables of reactions."""

from __future__ import annotations

from kconsumer.error_codes import CODES

COORDINATOR_ERRORS = {"COORDINATOR_NOT_AVAILABLE": "coordinator", "NOT_COORDINATOR": "coordinator"}
LOADING = {"COORDINATOR_LOAD_IN_PROGRESS": "retry"}

CODE = {row.name: code for code, row in CODES.items()}
NEVER_HEARD_OF = 4242
ALL = [*CODES, NEVER_HEARD_OF]


def name_of(code: int) -> str:
    """Returns the name of an error code, or the number as text if it has none."""
    return CODES[code].name if code in CODES else str(code)
