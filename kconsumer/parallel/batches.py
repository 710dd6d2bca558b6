"""Batch: several records for one call of a handler, and the error by which a handler says which of them have failed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kconsumer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Batch:
    """The handler gets a list of up to `max_records` records.

    If a worker has nothing to do, and there are fewer records, it waits for more, `max_wait_s` at most. Raises
    ConfigError for a number that is out of range.
    """

    max_records: int = 100
    max_wait_s: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.max_records, int) or self.max_records < 1:
            raise ConfigError(f"Batch: max_records must be an integer of at least 1, not {self.max_records!r}")
        if not isinstance(self.max_wait_s, int | float) or not 0 <= self.max_wait_s < math.inf:
            raise ConfigError(f"Batch: max_wait_s must be a number of seconds of at least 0, not {self.max_wait_s!r}")


class PartialBatchError(Exception):
    """Raised by a handler of batches if only some of the records have failed. All others of the batch are finished.

    `failed` are the indices of these records in the list that the handler got, or a mapping of them to errors. Without
    an error, the record has failed with this one. If there are none, or an index is out of range, all have failed.
    """

    def __init__(self, failed: Mapping[int, BaseException] | Iterable[int], message: str = "") -> None:
        self.failed: dict[int, BaseException | None] = (
            dict(failed) if isinstance(failed, Mapping) else dict.fromkeys(failed)
        )
        super().__init__(message or f"{len(self.failed)} records of a batch have failed")

    def __reduce__(self) -> tuple[Any, ...]:
        return PartialBatchError, (self.failed, str(self)), self.__dict__

    def errors(self, count: int) -> list[BaseException | None] | None:
        """Returns the error of each record of a batch of `count`, None if it is finished; None if all have failed."""
        if not self.failed or not all(isinstance(at, int) and 0 <= at < count for at in self.failed):
            return None
        return [_error_or(self, self.failed[at]) if at in self.failed else None for at in range(count)]


def _error_or(whole: BaseException, error: object) -> BaseException:
    return error if isinstance(error, BaseException) else whole
