"""Every error code of Kafka, by number and by name, and an unknown one, for tests of the error tables."""

from __future__ import annotations

from kconsumer._common.error_codes import CODES

COORDINATOR_ERRORS = {"COORDINATOR_NOT_AVAILABLE": "coordinator", "NOT_COORDINATOR": "coordinator"}
LOADING = {"COORDINATOR_LOAD_IN_PROGRESS": "retry"}

CODE = {row.name: code for code, row in CODES.items()}
NEVER_HEARD_OF = 4242
ALL = [*CODES, NEVER_HEARD_OF]


def name_of(code: int) -> str:
    """Returns the name of an error code, or the number as text if it has none."""
    return CODES[code].name if code in CODES else str(code)
