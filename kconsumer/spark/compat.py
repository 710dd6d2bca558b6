"""What differs between versions of pyspark, and the one trick played on it. Everything else here is plain API.

Floors: 4.0 reads batches, 4.1 pushes filters down, 4.2 lets a stream limit its micro-batches and end with AvailableNow.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    ADMISSION_CONTROL = True
except ImportError:  # before 4.2
    ADMISSION_CONTROL = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the mixin."""

    ReadAllAvailable = ReadMaxRows = None

__all__ = [
    "ADMISSION_CONTROL",
    "PUSHDOWN_CONF",
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "filter_hook",
]

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


class _FilterHook:
    """Calls a function, and looks to Spark like the base class's own `pushFilters`.

    Spark fails every read of a reader that overrides the method while push-down is off, which is the default. It finds
    out by comparing `pushFilters.__func__` with the base class's; with push-down on it calls what is there.
    """

    def __init__(self, push: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._push = push
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._push(filters)

    def __reduce__(self) -> tuple[Any, ...]:
        return _FilterHook, (self._push,)


def filter_hook(push: Callable[[list[Any]], Iterable[Any]]) -> Any:
    """What to set as a reader's attribute `pushFilters`; None where there is no push-down."""
    if not isinstance(getattr(DataSourceReader, "pushFilters", None), types.FunctionType):
        return None
    return _FilterHook(push)
