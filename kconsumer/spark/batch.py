"""The reader of a batch query. Spark creates one per query on the driver and pickles it to the tasks.

`batch_plan.py` decides which ranges the tasks read.
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
    """The input of one task: the ranges of offsets that it reads, in order."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(tuple(map(tuple, ranges)))


def ranges_of(partition: InputPartition) -> list[OffsetRange]:
    """Returns the ranges of the task with this input.

    If a query has no tasks, Spark starts one task all the same, with an input that contains no ranges. For this input,
    returns an empty list.
    """
    return [OffsetRange(*values) for values in partition.value or ()]


class BatchReader(DataSourceReader):
    """Reads the records that `config` selects, narrowed by the filters that Spark pushes down."""

    def __init__(self, config: SourceConfig, projection: Projection, parallelism: int | None = None) -> None:
        self._config, self._projection, self._parallelism = config, projection, parallelism
        self._constraints = Constraints()
        self._run = uuid.uuid4().hex[:12]  # names the query in the paths of dead letters; the same in all tasks
        hook = filter_hook(self._push)
        if hook is not None:
            self.pushFilters = hook

    def _push(self, pushed: list[Any]) -> Iterator[Any]:
        self._constraints, rest = filters.push(pushed)
        return iter(rest)

    def partitions(self) -> list[RangePartition]:
        """Plan the tasks of the query. Returns their inputs. Spark calls this on the driver."""
        with Admin(self._config) as admin:
            tasks = plan_batch(self._config, admin, self._constraints, self._parallelism)
        return [RangePartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task as Arrow batches. Spark calls this in the worker process of the task."""
        return read(self._config, self._projection, ranges_of(partition), ("batch", self._run))
