"""A Kafka source for PySpark that needs no JAR: the format `kconsumer`, for batch and streaming queries.

After `register(spark)`:

    spark.read.format("kconsumer").option("kafka.bootstrap.servers", "…").option("subscribe", "orders").load()

Options, schema and behaviour are those of Spark's own source `kafka`; docs/spark.md lists additions and differences.
No other package of kconsumer imports pyspark. The modules in here that do not need it state that in their docstrings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kconsumer.spark.lag import LagListener
    from kconsumer.spark.source import KConsumerDataSource

__all__ = ["KConsumerDataSource", "LagListener", "lag_listener", "register"]


def register(spark: Any, *, pushdown: bool = False) -> None:
    """Register the format `kconsumer` with a session, and enable filter push-down if `pushdown` is True.

    Push-down is enabled for all Python data sources of the session (`spark.sql.python.filterPushdown.enabled`). Spark
    (4.1 to 4.3) then keeps the filters of a query for later queries of the same DataFrame, which lack rows if they have
    other filters. So with push-down each query needs a DataFrame of its own, a new `load()`.
    """
    from pyspark.errors import AnalysisException

    from kconsumer.spark.compat import PUSHDOWN_CONF, filter_hook, shared_environment
    from kconsumer.spark.source import KConsumerDataSource

    with shared_environment(spark):
        try:
            spark.dataSource.register(KConsumerDataSource)
        except AnalysisException as error:  # Spark 4.0 does not replace a format that it found by itself
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
    if pushdown and filter_hook(list) is not None:
        spark.conf.set(PUSHDOWN_CONF, "true")


def lag_listener(spark: Any, group_id: str | None = None, **options: Any) -> LagListener:
    """Create a `LagListener` with these arguments and add it to the session. Returns the listener."""
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
