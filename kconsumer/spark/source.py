"""The data source `kconsumer` that Spark instantiates: takes options and a schema, and creates readers."""

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
    """The class that Spark uses for `spark.read.format("kconsumer")` and `spark.readStream.format("kconsumer")`."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "kconsumer"

    def schema(self) -> str:
        """Returns the columns of a query without `.schema(...)`, as DDL. Raises ConfigError for wrong options."""
        return default_projection(parse(self.options, "any")).ddl

    def reader(self, schema: Any) -> BatchReader:
        """Create the reader of a batch query. Raises ConfigError for wrong options or columns."""
        config, projection = self._check("batch", schema)
        return BatchReader(config, projection, _parallelism())

    def streamReader(self, schema: Any) -> StreamReader:  # noqa: N802  Spark's name
        """Create the reader of a streaming query. Raises ConfigError for wrong options or columns."""
        config, projection = self._check("stream", schema)
        return StreamReader(config, projection, _parallelism())

    def _check(self, mode: Mode, schema: Any) -> tuple[Any, Projection]:
        config = parse(self.options, mode)
        for column in schema.fields:
            if not column.nullable or NEVER_NULL.search(column.dataType.json()):
                raise ConfigError(f"the column {column.name} is nullable in this source; omit NOT NULL")
        return config, project(config, [(column.name, column.dataType.simpleString()) for column in schema.fields])


def _parallelism() -> int | None:
    """Returns how many tasks Spark runs at a time. Returns None in a process without a SparkContext."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return None if context is None else int(context.defaultParallelism)
