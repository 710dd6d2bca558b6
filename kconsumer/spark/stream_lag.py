"""Computes the lag of streams from Spark's progress reports. Needs no pyspark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kconsumer.spark.offsets import from_document
from kconsumer.types import TopicPartition

__all__ = ["StreamLag", "lag_of", "together"]


@dataclass(frozen=True)
class StreamLag:
    """The progress of one source of a query, or of all of them together, after a micro-batch."""

    query: str
    batch_id: int
    description: str
    read: Mapping[TopicPartition, int]  # the offsets to read next
    behind: Mapping[TopicPartition, int] = field(default_factory=dict)  # the lag of each partition, in offsets

    @property
    def total(self) -> int | None:
        """The lag of all partitions together, in offsets. None if Spark has not reported where they end."""
        return sum(self.behind.values()) if self.behind or not self.read else None

    def by_topic(self) -> dict[str, int]:
        """Returns the lag of each topic, in offsets."""
        found: dict[str, int] = {}
        for tp, count in self.behind.items():
            found[tp.topic] = found.get(tp.topic, 0) + count
        return found


def together(lags: Sequence[StreamLag]) -> StreamLag:
    """Returns the progress of all sources of a query. Of a partition that several sources read, `read` is the least."""
    read: dict[TopicPartition, int] = {}
    behind: dict[TopicPartition, int] = {}
    for lag in lags:
        read.update({tp: min(offset, read.get(tp, offset)) for tp, offset in lag.read.items()})
        behind.update({tp: count + behind.get(tp, 0) for tp, count in lag.behind.items()})
    first = lags[0]
    known = all(lag.total is not None for lag in lags)
    return StreamLag(first.query, first.batch_id, first.description, read, behind if known else {})


def lag_of(progress: Mapping[str, Any]) -> list[StreamLag]:
    """Returns the lag of each kconsumer source in a progress report of Spark, which is given as parsed JSON."""
    found = []
    for source in progress.get("sources", ()):
        read = _offsets(source.get("endOffset"))
        latest = _offsets(source.get("latestOffset"))
        if read is None:
            continue
        behind = {tp: max(end - read.get(tp, 0), 0) for tp, end in (latest or {}).items()}
        name = progress.get("name") or progress.get("id") or ""
        found.append(
            StreamLag(str(name), int(progress.get("batchId", -1)), source.get("description", ""), read, behind)
        )
    return found


def _offsets(value: Any) -> dict[TopicPartition, int] | None:
    """Parse the offsets of one source in a progress report. Returns None if it is not a kconsumer source."""
    try:
        return from_document(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, AttributeError, TypeError):
        return None
