"""The settings of test sessions: quick to start, without a web server."""

from __future__ import annotations


def session_settings() -> dict[str, str]:
    """Returns the settings."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.python.authenticate.socketTimeout": "120s",  # on a busy machine; Spark's default is 15 s
        "spark.sql.session.timeZone": "UTC",
    }
