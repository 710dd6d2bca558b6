"""What is done about records that may be lost: fail the query, or warn and go on.

Decides words and reactions; finding a loss out is the task of `admin.py` (on the driver) and `executor.py`.
"""

from __future__ import annotations

import logging

from kconsumer.errors import KafkaError

__all__ = ["DataLossError", "LossPolicy"]

log = logging.getLogger(__name__)

ADVICE = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by"
    " Kafka or the topic may have been deleted before all the data in the topic was processed."
    " If you don't want your query to fail on such cases, set the source option failOnDataLoss to false."
)

# Spark's subclasses of its error class KAFKA_DATA_LOSS, and when each happens.
CASES = {
    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO": "a new partition begins later than at offset 0",
    "COULD_NOT_READ_OFFSET_RANGE": "a task did not find what was planned",
    "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS": "a new partition is gone again",
    "PARTITIONS_DELETED": "partitions that were read are gone",
    "PARTITION_OFFSET_CHANGED": "a partition ends before what was read",
}


class DataLossError(KafkaError):
    """Records were deleted before they were read, or partitions are gone."""


class LossPolicy:
    """Raises DataLossError, or logs and counts."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.incidents: list[str] = []

    def report(self, case: str, what: str) -> None:
        """One of CASES has happened; `what` says to which partitions."""
        assert case in CASES
        text = f"[KAFKA_DATA_LOSS.{case}] {what}."
        if self.fails:
            raise DataLossError(f"{text} {ADVICE}")
        self.incidents.append(text)
        log.warning("%s Some data may have been missed", text)
