"""The data source `kconsumer` as Spark finds it: options and schema in, readers out."""

from __future__ import annotations

import re
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.spark.batch import BatchReader
from kconsumer.spark.compat import DataSource
from kconsumer.spark.options import Mode, parse
from kconsumer.spark.schema import Projection, default_projection, project
from kconsumer.spark.stream import StreamReader

__all__ = ["KConsumerDataSource"]

NEVER_NULL = re.compile(r'"(nullable|containsNull|valueContainsNull)":false')


class KConsumerDataSource(DataSource):
    """`spark.read.format("kconsumer")` and `spark.readStream.format("kconsumer")`."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "kconsumer"

    def schema(self) -> str:
        """The columns when the user gives no schema. Raises ConfigError for options that are wrong in any case."""
        return default_projection(parse(self.options, "any")).ddl

    def reader(self, schema: Any) -> BatchReader:
        """For a batch."""
        config, projection = self._checked("batch", schema)
        return BatchReader(config, projection, _parallelism())

    def streamReader(self, schema: Any) -> StreamReader:  # noqa: N802  Spark's name
        """For a stream."""
        config, projection = self._checked("stream", schema)
        return StreamReader(config, projection, _parallelism())

    def _checked(self, mode: Mode, schema: Any) -> tuple[Any, Projection]:
        config = parse(self.options, mode)
        for column in schema.fields:
            if not column.nullable or NEVER_NULL.search(column.dataType.json()):
                raise ConfigError(f"the column {column.name} is nullable in this source; leave NOT NULL out")
        return config, project(config, [(column.name, column.dataType.simpleString()) for column in schema.fields])


def _parallelism() -> int | None:
    """How many tasks run at once, where that can be told: not in the processes that Spark plans Python sources in."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return None if context is None else int(context.defaultParallelism)
