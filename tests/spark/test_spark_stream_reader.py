"""The source's side of a stream, asked as a Spark before 4.2 asks: without saying where the stream goes on."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.spark.options import parse
from kconsumer.spark.schema import default_projection
from kconsumer.spark.stream import StreamReader
from kconsumer.types import TopicPartition

TP = TopicPartition("t", 0)


class Progress:
    """A topic of a thousand records, of which a micro-batch takes two hundred unless it is to take everything."""

    def initial(self) -> dict[TopicPartition, int]:
        """Where new streams begin."""
        return {TP: 0}

    def latest(
        self, start: Mapping[TopicPartition, int], now: float, *, everything: bool = False
    ) -> dict[TopicPartition, int]:
        """Where a micro-batch ends."""
        return {TP: 1000 if everything else start[TP] + 200}


def test_the_first_micro_batch_of_a_start_takes_everything() -> None:
    """It may go on far behind where new streams begin: an end before its start would have records read again."""
    config = parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}, "stream")
    reader = StreamReader(config, default_projection(config))
    reader._connected = (None, Progress())  # type: ignore[assignment]
    assert {"t": {"0": 1000}} == reader.latestOffset()
    assert {"t": {"0": 1200}} == reader.latestOffset()
