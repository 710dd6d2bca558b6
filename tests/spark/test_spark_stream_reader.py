"""The source's side of a stream, called as a Spark before 4.2 calls it: without the stream's start offsets."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.spark.options import parse
from kconsumer.spark.schema import default_projection
from kconsumer.spark.stream import StreamReader
from kconsumer.types import TopicPartition

TP = TopicPartition("t", 0)


class Progress:
    """A topic of a thousand records, of which a micro-batch takes two hundred unless Spark requests all."""

    def initial(self) -> dict[TopicPartition, int]:
        """Returns the offsets at which new streams begin."""
        return {TP: 0}

    def latest(
        self, start: Mapping[TopicPartition, int], now: float, *, everything: bool = False
    ) -> dict[TopicPartition, int]:
        """Returns the offsets at which a micro-batch ends."""
        return {TP: 1000 if everything else start[TP] + 200}


def test_the_first_micro_batch_of_a_start_takes_everything() -> None:
    """The stream may start far behind the offsets of new streams. An end before its start would make it read records
    again, so the first micro-batch has no limit.
    """
    config = parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}, "stream")
    reader = StreamReader(config, default_projection(config))
    reader._connected = (None, Progress())
    assert {"t": {"0": 1000}} == reader.latestOffset()
    assert {"t": {"0": 1200}} == reader.latestOffset()
