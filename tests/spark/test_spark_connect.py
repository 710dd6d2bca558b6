"""The source through a Spark Connect server: the session of the application is a client without a JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.brokers.kafka import Kafka
from support.spark import spark_connect
from support.spark.spark_connect_server import connect_server, start

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.mark.timeout(400)
def test_batches_streams_and_lag(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A client of a server reads a topic with push-down, streams it, and commits its offsets by a listener."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, [b"value"] * 10, partition=partition)
    with connect_server(tmp_path, "local[2]", SETTINGS) as remote:
        arguments = [remote, kafka.bootstrap_servers, topic_name, str(tmp_path)]
        with start([sys.executable, str(spark_connect.__file__), *arguments], tmp_path) as application:
            output, _ = application.communicate(timeout=200)
    logs = (tmp_path / name for name in ("application.log", "server.log"))
    assert 0 == application.returncode, [log.read_text()[-3000:] for log in logs]
    found = json.loads(output.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert (20, [5, 6, 7, 8, 9], 20) == (found["count"], found["filtered"], found["streamed"])
    assert [[topic_name, 0, 10], [topic_name, 1, 10]] == found["committed"]
    assert [{topic_name: {"0": 10, "1": 10}}] == [
        json.loads(ends) if isinstance(ends, str) else ends for ends in found["progress"]
    ]
    assert "a pipeline needs a classic Spark session" in found["pipeline"]
