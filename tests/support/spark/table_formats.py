"""The formats of tables whose packages a session needs: their jars, and the settings of a pipeline and its session.

The packages are those for Spark 4.1, the newest version for which both exist. `{folder}` in a text is the folder of the
test. `widening` has the statements without which the type of a column of the rows cannot become wider.
"""

from __future__ import annotations

from typing import Any

from support.brokers.kafka_jars import Artifact, resolve
from support.spark.spark_jars import NOTHING_ELSE

__all__ = ["FORMATS", "jars", "placed"]

FORMATS: dict[str, dict[str, Any]] = {
    "delta": {
        "artifacts": tuple(
            Artifact("io.delta", name, "4.4.0", NOTHING_ELSE)
            for name in ("delta-spark_4.1_2.13", "delta-storage", "delta-kernel-api", "delta-kernel-defaults")
        ),
        "sink": {"path": "{folder}/rows"},
        "windows": {"path": "{folder}/windows"},
        "tables": {"rows": "delta.`{folder}/rows`", "windows": "delta.`{folder}/windows`"},
        "widening": ("ALTER TABLE delta.`{folder}/rows` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",),
        "spark": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    },
    "iceberg": {
        "artifacts": (Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", NOTHING_ELSE),),
        "sink": {"table": "lake.shop.rows"},
        "windows": {"table": "lake.shop.windows"},
        "tables": {"rows": "lake.shop.rows", "windows": "lake.shop.windows"},
        "widening": (),
        "spark": {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.cache-enabled": "false",  # else a session sees what another wrote 30 s later
            "spark.sql.catalog.lake.warehouse": "{folder}/lake",
        },
    },
}


def jars(form: str) -> list[str]:
    """Returns the paths of the jars of a format. The first use downloads them."""
    artifacts = FORMATS[form]["artifacts"]
    return [str(jar) for jar in resolve(f"spark-{form}-{artifacts[0].version}", *artifacts)]


def placed(texts: dict[str, str], folder: object) -> dict[str, str]:
    """Returns the texts with `{folder}` replaced."""
    return {key: value.format(folder=folder) for key, value in texts.items()}
