"""Handles records that may have been lost: fails the query, or logs a warning and continues.

Creates the messages and applies the option onDataLoss. `stream_offsets.py` (on the driver) and `executor.py` detect
the loss.
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

# Subclasses of Spark's error class KAFKA_DATA_LOSS, and when each one occurs.
CASES = {
    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO": "a new partition begins after offset 0",
    "COULD_NOT_READ_OFFSET_RANGE": "offsets that were planned for a task are not in the log",
    "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS": "a new partition was deleted again",
    "PARTITIONS_DELETED": "partitions that were read were deleted",
    "PARTITION_OFFSET_CHANGED": "a partition ends before an offset that was read",
}


class DataLossError(KafkaError):
    """Records were deleted before they were read, or partitions were deleted."""


class LossPolicy:
    """The reaction to lost records: an error, or a warning in the log."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails  # True: raise DataLossError; False: log a warning

    def report(self, case: str, what: str) -> None:
        """Raise DataLossError if `fails` is True, else log a warning.

        `case` is a key of CASES. `what` is the text for the user, which names the partitions.
        """
        assert case in CASES
        text = f"[KAFKA_DATA_LOSS.{case}] {what}."
        if self.fails:
            raise DataLossError(f"{text} {ADVICE}")
        log.warning("%s Some data may have been missed", text)
