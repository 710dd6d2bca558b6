"""The limit of a Python loop: a loop over existing objects with existing values.

No consumer that returns records to a Python loop can take less time than this.
"""

from __future__ import annotations

import platform
from itertools import chain, repeat

from meter import Meter

POLL = 500


class Record:
    """The cheapest object with an attribute."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value


def main() -> None:
    """Loop over as many records as the topic has."""
    meter = Meter()
    polled = [Record(b"v" * 100) for _ in range(POLL)]
    meter.add(1, 0)  # starts the clock
    for records_polled in chain(repeat(polled, (meter.total - 1) // POLL), [polled[: (meter.total - 1) % POLL]]):
        records = size = 0
        for record in records_polled:
            records += 1
            size += len(record.value)
        meter.add(records, size)
    meter.report(f"Python {platform.python_version()}")


main()
