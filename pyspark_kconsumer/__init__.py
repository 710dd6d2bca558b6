"""Lets Spark find the format `kconsumer` by itself: it looks into modules named `pyspark_…` for a `DefaultSource`.

Spark imports this in every session, used or not, and one such module that raises spoils the search for all of them. So
it loads next to nothing and never raises; what is wrong is said when the format is used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def _base() -> Any:
    try:
        from pyspark.sql.datasource import DataSource
    except Exception:  # no pyspark, or one before 4.0: then nobody looks for a source
        return object
    return DataSource


class DefaultSource(_base()):  # type: ignore[misc]  # known at run time only
    """Stands for `kconsumer.spark.KConsumerDataSource`, which is imported when it is first needed."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "kconsumer"

    def _source(self) -> Any:
        from kconsumer.spark.source import KConsumerDataSource

        return KConsumerDataSource(self.options)

    def schema(self) -> Any:
        """The columns."""
        return self._source().schema()

    def reader(self, schema: Any) -> Any:
        """For a batch."""
        return self._source().reader(schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  Spark's name
        """For a stream."""
        return self._source().streamReader(schema)
