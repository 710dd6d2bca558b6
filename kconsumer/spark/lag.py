"""A listener that stores the lag of streams after each micro-batch, and commits the streams' offsets for a group.

Spark calls `commit` of a source only when it builds the next micro-batch, so the last micro-batch would never be
committed. A listener receives a report of every micro-batch. Errors are logged and never fail a query.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kconsumer.errors import KafkaError
from kconsumer.ranges import RangeClient
from kconsumer.spark.stream_lag import StreamLag, lag_of, together
from kconsumer.types import TopicPartition

__all__ = ["LagListener", "StreamLag", "lag_of"]

log = logging.getLogger(__name__)
COMMIT_TIMEOUT_S = 10.0  # all listeners of the session wait during a commit


class LagListener(StreamingQueryListener):
    """Stores the lag of each query, and commits the queries' offsets for a group if `group_id` is given.

        spark.streams.addListener(LagListener(bootstrap_servers="…", group_id="…"))

    Spark may send the report of a micro-batch after `awaitTermination` has returned. Before the process ends, wait for
    the termination event of the query, or for a moment, so that the last offsets are committed.
    """

    def __init__(self, group_id: str | None = None, **options: Any) -> None:
        self.lags: dict[str, StreamLag] = {}  # query -> the newest lag of all its sources
        self.committed: dict[TopicPartition, int] = {}  # the offsets that were committed last
        self._group_id = group_id
        self._client = RangeClient(**options) if group_id is not None else None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name, as those below
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Store the lag of a query after a micro-batch, and commit the offsets."""
        sources = lag_of(json.loads(event.progress.json))
        if sources:
            lag = self.lags[sources[0].query] = together(sources)
            self._commit(lag)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Do nothing: there are no new offsets."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Close the connection. A commit for another query opens it again."""
        if self._client is not None:
            self._client.close()

    def _commit(self, lag: StreamLag) -> None:
        if self._client is None or self._group_id is None:
            return
        try:
            self._client.commit(self._group_id, lag.read, timeout=COMMIT_TIMEOUT_S)
            self.committed |= lag.read
        except KafkaError as error:
            log.warning("offsets of %s were not committed to group %s: %s", lag.query, self._group_id, error)
