"""Checks whether an existing topic has a partition.

Metadata without the partition may be outdated: partitions may be added to a topic at any time, and some brokers learn
of them late. So a call that needs the partition requests metadata again, and fails only if the response does not
contain the partition either. A `poll` that waits for records does not fail but continues to wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import Promise
from kconsumer.errors import KafkaError, error_for
from kconsumer.metadata.topic_errors import TopicErrors
from kconsumer.types import TopicPartition


class Metadata(Protocol):
    """The part of MetadataManager that the check needs."""

    topic_errors: TopicErrors

    def refresh(self) -> Promise[None]:
        """Request metadata of all wanted topics. Returns a promise that completes with the response."""
        ...


class ExistenceCheck:
    """Checks partitions for one blocking call."""

    __slots__ = ("_metadata", "_refreshed")

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._refreshed: Promise[None] | None = None

    @property
    def refreshing(self) -> bool:
        """True while the metadata that `error` requested has not arrived."""
        return self._refreshed is not None and not self._refreshed.done

    def error(self, partitions: Iterable[TopicPartition]) -> KafkaError | None:
        """Returns the error to raise if one of these partitions does not exist, else None.

        The first call that finds a missing partition requests metadata and returns None. An error is returned only
        after that metadata has arrived.
        """
        missing = next(filter(None, map(self._metadata.topic_errors.missing_partition, partitions)), None)
        if missing is None:
            return None
        if self._refreshed is None:
            self._refreshed = self._metadata.refresh()
        return error_for(Errors.UNKNOWN_TOPIC_OR_PARTITION, missing) if self._refreshed.done else None
