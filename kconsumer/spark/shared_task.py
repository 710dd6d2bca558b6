"""Reads the ranges of a task together: one request to a broker is for all of its partitions.

To read ranges one after the other costs several requests for each of them. With thousands of partitions, a micro-batch
consists of thousands of small ranges. What needs the details of a range is left to `executor.Scan`, which reads one
range: records that are lost, corrupt or decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from kconsumer.errors import BatchTooLargeError, CorruptRecordError, OffsetOutOfRangeError
from kconsumer.ranges import RangeClient
from kconsumer.ranges.limits import Limits
from kconsumer.ranges.topic_steps import RangesInTurn
from kconsumer.spark.columns import BadTimestampError, Converter
from kconsumer.spark.offsets import EARLIEST, LATEST
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.schema import Projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_together"]

log = logging.getLogger(__name__)


def read_together(
    config: SourceConfig, projection: Projection, ranges: Sequence[OffsetRange], client: RangeClient
) -> Generator[pa.RecordBatch, None, list[OffsetRange]]:
    """Yield the records of the ranges as Arrow batches, in the order in which brokers return them.

    Returns the ranges, or the remaining parts of ranges, that must be read one by one.
    """
    converter = Converter(projection)
    if converter.can_fail or not _can_share(config, ranges):
        return list(ranges)
    client.end_range()
    whole, others = _within_logs(client, ranges)
    limits = Limits(projection.record_columns, "spark", config["batchRows"], config["batchBytes"])
    reading = RangesInTurn(client, {item.topic_partition: (item.start, item.end) for item in whole}, limits)
    try:
        left = dict(reading.left)
        while left:
            batch, _ = client.consumer._run(reading.read())
            if batch is not None:
                yield converter.convert(batch.to_pyarrow())[0]
            left = dict(reading.left)
    except (BadTimestampError, BatchTooLargeError, CorruptRecordError, OffsetOutOfRangeError) as error:
        log.info("the rest of the ranges is read one by one: %s", error)
    finally:
        client.end_range()
    return [*(item._replace(start=left[tp]) for item in whole if (tp := item.topic_partition) in left), *others]


def _can_share(config: SourceConfig, ranges: Sequence[OffsetRange]) -> bool:
    """Returns whether the ranges can be read together.

    The file of dead letters of a range is named by its bounds, so ranges with such files are read whole. A consumer has
    one position in a partition, so no two ranges may be of the same one.
    """
    partitions = {item.topic_partition for item in ranges}
    return 1 < len(ranges) == len(partitions) and config["deadLetterPath"] is None


def _within_logs(client: RangeClient, ranges: Sequence[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Request the bounds of the logs. Returns the ranges within these bounds with offsets in place of EARLIEST and
    LATEST, and the other ranges unchanged.
    """
    partitions = [item.topic_partition for item in ranges]
    first, last = client.beginning_offsets(partitions), client.end_offsets(partitions)
    whole, others = [], []
    for item in ranges:
        low, high = first[item.topic_partition], last[item.topic_partition]
        bound = item._replace(
            start=low if item.start == EARLIEST else item.start, end=high if item.end == LATEST else item.end
        )
        if low <= bound.start <= bound.end <= high:
            whole.append(bound)
        else:
            others.append(item)
    return whole, others
