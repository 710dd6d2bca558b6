"""Checks the records of a produced batch: compacted topics need keys, and timestamps have limits.

The fields of the batch's header are checked before, by `produce`.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.releases import is_at_least
from kconsumer.testing.cluster.stored_batch import NO_TIMESTAMP, StoredBatch
from kconsumer.testing.cluster.topic import Partition

FIRST_WITHOUT_FUTURE = "4.0"  # by default
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


def wrong_record(partition: Partition, batch: StoredBatch, release: str, wall_ms: int) -> tuple[int, int, str] | None:
    """Returns error code, index and error message of the first record that the broker refuses.

    Returns None if the broker accepts all records.
    """
    configs = partition.topic.configs
    compacted = "compact" in configs["cleanup.policy"]
    by_producer = configs["message.timestamp.type"] == "CreateTime"
    limited = is_at_least(release, FIRST_WITHOUT_FUTURE) or AFTER in partition.topic.explicit_configs
    earliest = wall_ms - int(configs[BEFORE]) if by_producer else NO_TIMESTAMP
    latest = wall_ms + int(configs[AFTER]) if by_producer and limited else None
    if not compacted and earliest < 0 and (latest is None or batch.max_timestamp <= latest):
        return None
    for index, record in enumerate(batch.records()):
        if compacted and record.key is None:
            return Errors.INVALID_RECORD, index, "A compacted topic needs records with keys."
        too_late = latest is not None and record.timestamp > latest
        if too_late or NO_TIMESTAMP < record.timestamp < earliest:
            return (
                Errors.INVALID_TIMESTAMP,
                index,
                f"The timestamp {record.timestamp} is out of range.",
            )
    return None
