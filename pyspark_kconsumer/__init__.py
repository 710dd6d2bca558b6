"""Lets Spark find the format `kconsumer` by itself: it searches modules `pyspark_…` for a `DefaultSource`.

Spark imports this module in every session, even if the format is not used, and one such module that raises ends the
search for all of them. So it imports almost nothing and never raises. Errors are raised when the format is used.
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
    """Delegates to `kconsumer.spark.KConsumerDataSource`, which is imported when a method needs it."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kconsumer"

    def _source(self) -> Any:
        from kconsumer.spark.source import KConsumerDataSource

        return KConsumerDataSource(self.options)

    def schema(self) -> Any:
        """Return the columns of a query without a user's schema, as DDL."""
        return self._source().schema()

    def reader(self, schema: Any) -> Any:
        """Create the reader of a batch query."""
        return self._source().reader(schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  Spark's name
        """Create the reader of a streaming query."""
        return self._source().streamReader(schema)
