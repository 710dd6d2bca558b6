"""Makes the format `kconsumer` available in Spark without `register`.

Spark imports every module named `pyspark_…` and searches it for a class `DefaultSource`, even if its format is not
used. If one such module raises, the search ends and none of the formats is found. So this module imports almost nothing
and never raises. Errors are raised when the format is used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def _base() -> Any:
    try:
        from pyspark.sql.datasource import DataSource
    except Exception:  # pyspark is missing, or older than 4.0, which does not search for sources
        return object
    return DataSource


class DefaultSource(_base()):  # type: ignore[misc]  # known at run time only
    """Delegates to `kconsumer.spark.KConsumerDataSource`, which is imported when a method is called."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kconsumer"

    def _source(self) -> Any:
        from kconsumer.spark.source import KConsumerDataSource

        return KConsumerDataSource(self.options)

    def schema(self) -> Any:
        """Return the columns of a query without `.schema(...)`, as DDL."""
        return self._source().schema()

    def reader(self, schema: Any) -> Any:
        """Create the reader of a batch query."""
        return self._source().reader(schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  Spark's name
        """Create the reader of a streaming query."""
        return self._source().streamReader(schema)
