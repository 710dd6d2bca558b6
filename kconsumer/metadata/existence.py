"""Checks whether a partition exists in a topic that does.

A partition may be added to a topic at any time, and the broker that sent the metadata may be the last to receive it. So
one response is not enough: a call that needs the partition fails when metadata that was requested after the call began
does not contain it either. A `poll` that waits for records continues to wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kconsumer.error_codes import Errors
from kconsumer.errors import KafkaError, error_for
from kconsumer.managers import Promise
from kconsumer.types import TopicPartition


class Metadata(Protocol):
    """The part of MetadataManager that is needed here."""

    def missing_partition(self, tp: TopicPartition) -> str:
        """Returns how many partitions the topic has, if it does not have this one; else an empty text."""
        ...

    def refresh(self) -> Promise[None]:
        """Requests metadata of all wanted topics."""
        ...


class ExistenceCheck:
    """The check of one blocking call."""

    __slots__ = ("_metadata", "_refreshed")

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._refreshed: Promise[None] | None = None

    @property
    def refreshing(self) -> bool:
        """True while the metadata requested by `error` has not arrived."""
        return self._refreshed is not None and not self._refreshed.done

    def error(self, partitions: Iterable[TopicPartition]) -> KafkaError | None:
        """Returns the error to raise if one of these partitions does not exist. It requests metadata before the first
        error."""
        missing = next(filter(None, map(self._metadata.missing_partition, partitions)), None)
        if missing is None:
            return None
        if self._refreshed is None:
            self._refreshed = self._metadata.refresh()
        return error_for(Errors.UNKNOWN_TOPIC_OR_PARTITION, missing) if self._refreshed.done else None
