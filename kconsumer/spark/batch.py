"""A batch as Spark reads it. Spark makes one reader a query, on the driver, and pickles it to tasks.

What its tasks are is decided in `batch_plan.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kconsumer.spark import filters
from kconsumer.spark.admin import Admin
from kconsumer.spark.batch_plan import plan_batch
from kconsumer.spark.compat import DataSourceReader, InputPartition, filter_hook
from kconsumer.spark.executor import read
from kconsumer.spark.filters import Constraints
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.schema import Projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader", "RangePartition", "ranges_of"]


class RangePartition(InputPartition):
    """A task of the source: the ranges it reads, one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(tuple(map(tuple, ranges)))


def ranges_of(partition: InputPartition) -> list[OffsetRange]:
    """What a task is to read; nothing for the one task that Spark makes up where a source has none."""
    return [OffsetRange(*values) for values in partition.value or ()]


class BatchReader(DataSourceReader):
    """Reads what `config` says, narrowed by the filters that Spark pushes."""

    def __init__(self, config: SourceConfig, projection: Projection, parallelism: int | None = None) -> None:
        self._config, self._projection, self._parallelism = config, projection, parallelism
        self._constraints = Constraints()
        self._run = uuid.uuid4().hex[:12]  # the same in all tasks, for dead letters
        hook = filter_hook(self._push)
        if hook is not None:
            self.pushFilters = hook

    def _push(self, pushed: list[Any]) -> Iterator[Any]:
        self._constraints, rest = filters.push(pushed)
        return iter(rest)

    def partitions(self) -> list[RangePartition]:
        """The tasks."""
        with Admin(self._config) as admin:
            tasks = plan_batch(self._config, admin, self._constraints, self._parallelism)
        return [RangePartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, in its worker process."""
        return read(self._config, self._projection, ranges_of(partition), ("batch", self._run))
