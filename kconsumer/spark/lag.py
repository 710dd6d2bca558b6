"""How far streams are behind, and their offsets committed to a group, from what Spark tells listeners.

Spark commits a micro-batch to its source only when it builds the next one, so the last one never is; a listener hears
of every one. Decides what is committed and when; nothing here may fail a query.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kconsumer.errors import KafkaError
from kconsumer.ranges import RangeClient
from kconsumer.spark.offsets import from_document
from kconsumer.types import TopicPartition

__all__ = ["LagListener", "StreamLag", "lag_of"]

log = logging.getLogger(__name__)
COMMIT_S = 10.0  # what Spark's listeners wait for, at most


@dataclass(frozen=True)
class StreamLag:
    """What a source of a query had read and what there was, after a micro-batch."""

    query: str
    batch_id: int
    description: str
    read: Mapping[TopicPartition, int]
    behind: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Offsets still to be read."""
        return sum(self.behind.values())

    def by_topic(self) -> dict[str, int]:
        """The same, by topic."""
        found: dict[str, int] = {}
        for tp, count in self.behind.items():
            found[tp.topic] = found.get(tp.topic, 0) + count
        return found


def lag_of(progress: Mapping[str, Any]) -> list[StreamLag]:
    """The sources of ours in a progress report (the dict of its JSON)."""
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
    """Offsets as a progress report has them, None for another source's."""
    try:
        return from_document(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, AttributeError, TypeError):
        return None


class LagListener(StreamingQueryListener):
    """Keeps the newest `StreamLag` of each query in `lags`, and commits its offsets to `group_id` if there is one.

    `spark.streams.addListener(LagListener(bootstrap_servers="…", group_id="…"))`. Reports come after the micro-batch:
    wait for a query's termination event, or a moment after `awaitTermination`, before the process ends.
    """

    def __init__(self, group_id: str | None = None, **options: Any) -> None:
        self.lags: dict[str, StreamLag] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._group_id = group_id
        self._client = RangeClient(**options) if group_id is not None else None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name, as those below
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        """A micro-batch is done."""
        for lag in lag_of(json.loads(event.progress.json)):
            self.lags[lag.query] = lag
            self._commit(lag)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Nothing new."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        """The connection is of no more use to this query; another one makes it again."""
        if self._client is not None:
            self._client.close()

    def _commit(self, lag: StreamLag) -> None:
        if self._client is None or self._group_id is None:
            return
        try:
            self._client.commit(self._group_id, lag.read, timeout=COMMIT_S)
            self.committed |= lag.read
        except KafkaError as error:
            log.warning("offsets of %s were not committed to group %s: %s", lag.query, self._group_id, error)
