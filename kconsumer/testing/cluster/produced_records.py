"""Checks the records of a produced batch: compacted topics need keys, and timestamps must not be in the future.

The fields of the batch's header are checked before, by `produce`.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.releases import is_at_least
from kconsumer.testing.cluster.stored_batch import StoredBatch
from kconsumer.testing.cluster.topic import Partition

FIRST_WITHOUT_FUTURE = "4.0"
MAX_FUTURE_MS = 3_600_000  # the default of message.timestamp.after.max.ms since Kafka 4.0


def wrong_record(partition: Partition, batch: StoredBatch, release: str, wall_ms: int) -> tuple[int, int, str] | None:
    """Returns error code, index and error message of the first record that the broker refuses.

    Returns None if the broker accepts all records.
    """
    configs = partition.topic.configs
    compacted = "compact" in configs["cleanup.policy"]
    checked = is_at_least(release, FIRST_WITHOUT_FUTURE) and configs["message.timestamp.type"] == "CreateTime"
    latest = wall_ms + MAX_FUTURE_MS
    if not compacted and not (checked and batch.max_timestamp > latest):
        return None
    for index, record in enumerate(batch.records()):
        if compacted and record.key is None:
            return Errors.INVALID_RECORD, index, "A compacted topic needs records with keys."
        if checked and record.timestamp > latest:
            return Errors.INVALID_TIMESTAMP, index, f"The timestamp {record.timestamp} is in the future."
    return None
