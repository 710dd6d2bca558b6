"""A stream stops at a value that it cannot decode, and continues after the option for such values is set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.brokers.kafka import Kafka
from support.spark.spark_parity import OURS, Stream, failure, has_words


def test_a_stream_that_stopped_continues(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """With the option for dead letters, the failed micro-batch is run again from the checkpoint, and the next invalid
    value is skipped.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"0", b"1", b"\xff", b"3"])
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic_name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "2",
        "valueFormat": "string",
    }
    stream = Stream(spark, OURS, options, tmp_path)
    assert has_words(failure(stream.run), f"value at offset 2 of {topic_name}-0 is not UTF-8")
    assert ["0", "1"] == [row[3][1] for row in stream.outcome().rows]
    stream.options |= {"onCorrupt": "deadletter", "deadLetterPath": str(tmp_path / "dead")}
    stream.run()
    kafka.produce(topic_name, [b"\xfe", b"5"])
    stream.options |= {"onCorrupt": "skip"}
    stream.run()
    assert ["0", "1", "3", "5"] == [row[3][1] for row in stream.outcome().rows]
    (file,) = (tmp_path / "dead").rglob("*.jsonl")
    assert "1" == file.parent.name, "the folder of the micro-batch"
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert ("undecodable", 2, 3) == (letter["kind"], letter["start"], letter["end"])
