"""Hides the differences between versions of pyspark, and works around two of its defects.

Batch queries need pyspark 4.0, filter push-down needs 4.1, and limits of micro-batches and AvailableNow need 4.2.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    ADMISSION_CONTROL = True
except ImportError:  # before 4.2
    ADMISSION_CONTROL = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """An empty replacement for pyspark's mixin, which this version of pyspark does not have."""

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
    "shared_environment",
]

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"

# Variables that Spark's runners (StreamingPythonRunner, PythonPlannerRunner, BasePythonRunner) put into the environment
# of a Python worker. A runner overwrites a value that exists already.
RUNNER_VARIABLES = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_JOB_ARTIFACT_UUID": "default",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}


class _FilterHook:
    """Replaces the method `pushFilters` of a reader, so that Spark does not detect that the reader overrides it.

    While push-down is off, which is the default, Spark fails every read of a reader that overrides `pushFilters`. To
    detect an override, Spark compares `pushFilters.__func__` with the method of the base class. So `__func__` is the
    method of the base class here. While push-down is on, Spark calls this object, which calls `push`.
    """

    def __init__(self, push: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._push = push
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._push(filters)

    def __reduce__(self) -> tuple[Any, ...]:
        return _FilterHook, (self._push,)


def filter_hook(push: Callable[[list[Any]], Iterable[Any]]) -> Any:
    """Returns a callable for the attribute `pushFilters` of a reader, or None if this pyspark has no push-down.

    Spark calls the callable with the filters of a query. The callable passes them to `push`, and returns the result of
    `push`: the filters that Spark must still apply.
    """
    if not isinstance(getattr(DataSourceReader, "pushFilters", None), types.FunctionType):
        return None
    return _FilterHook(push)


@contextmanager
def shared_environment(spark: Any) -> Iterator[None]:
    """Add RUNNER_VARIABLES to the session's environment during the block. Register a data source in this block.

    All queries of a session share the environment of a registered data source, a `java.util.HashMap`. Each
    StreamingPythonRunner puts its variables into this map without a lock. If two streams start at the same time, the
    map can be left with a wrong size. From then on every task of the source fails with an OptionalDataException. If the
    keys exist already, a put only replaces a value and does not change the structure of the map.
    """
    environment = getattr(getattr(spark, "_sc", None), "environment", None)
    if environment is None:  # Spark Connect: the server creates the map
        yield
        return
    added = [name for name in RUNNER_VARIABLES if name not in environment]
    environment.update({name: RUNNER_VARIABLES[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            environment.pop(name, None)
