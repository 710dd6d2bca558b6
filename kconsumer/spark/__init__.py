"""A Kafka source for PySpark without a JAR: `register(spark)`, then the format `kconsumer`, in batches and streams.

    spark.read.format("kconsumer").option("kafka.bootstrap.servers", "…").option("subscribe", "orders").load()

Options, schema and meaning are those of Spark's own source `kafka`; docs/spark.md says what is more and what differs.
pyspark is imported here and below only; the parts that need none say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kconsumer.spark.lag import LagListener
    from kconsumer.spark.source import KConsumerDataSource

__all__ = ["KConsumerDataSource", "LagListener", "lag_listener", "register"]


def register(spark: Any, *, pushdown: bool = True) -> None:
    """Make the format `kconsumer` known to a session, and let it push filters down unless told not to.

    Push-down is a setting of the session (`spark.sql.python.filterPushdown.enabled`) for all Python data sources.
    """
    from kconsumer.spark.compat import PUSHDOWN_CONF, filter_hook, shared_environment
    from kconsumer.spark.source import KConsumerDataSource

    with shared_environment(spark):
        spark.dataSource.register(KConsumerDataSource)
    if pushdown and filter_hook(list) is not None:
        spark.conf.set(PUSHDOWN_CONF, "true")


def lag_listener(spark: Any, group_id: str | None = None, **options: Any) -> LagListener:
    """A `LagListener` that listens to the queries of a session already."""
    from kconsumer.spark.lag import LagListener

    listener = LagListener(group_id, **options)
    spark.streams.addListener(listener)
    return listener


def __getattr__(name: str) -> Any:
    if name == "KConsumerDataSource":
        from kconsumer.spark.source import KConsumerDataSource

        return KConsumerDataSource
    if name == "LagListener":
        from kconsumer.spark.lag import LagListener

        return LagListener
    raise AttributeError(name)
