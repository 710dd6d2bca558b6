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


class DataLossError(KafkaError):
    """Records were deleted before they were read, or partitions were deleted."""


class LossPolicy:
    """The reaction to lost records: an error, or a warning in the log."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails  # True: raise DataLossError; False: log a warning

    def report(self, case: str, what: str) -> None:
        """Raise DataLossError if `fails` is True, else log a warning.

        `case` is a subclass of Spark's error class KAFKA_DATA_LOSS. `what` names the partitions, for the user.
        """
        text = f"[KAFKA_DATA_LOSS.{case}] {what}."
        if self.fails:
            raise DataLossError(f"{text} {ADVICE}")
        log.warning("%s Some data may have been missed", text)
