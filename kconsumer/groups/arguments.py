"""The arguments of the methods for groups: their types, the names and times that have a meaning, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from kconsumer._client.offset_arguments import topic_partitions
from kconsumer.offsets.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kconsumer.types import OffsetAndMetadata, TopicPartition

STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
TYPES = ("classic", "consumer", "share", "streams")
#: The settings of a subscription for metrics of clients. One without any does not exist.
SUBSCRIPTION_SETTINGS = ("metrics", "interval.ms", "match")
#: The special times of `partition_offsets`, with their values in ListOffsets.
SPECIAL_TIMES: dict[str, int] = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}

Servers = str | Sequence[str]
NewOffsets = Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]
TopicOrPartition = str | TopicPartition | tuple[str, int]
Configs = Mapping[str, str | int | float | bool | None]
Time = str | int | datetime


def refuse_text(given: object, name: str) -> None:
    """Raise TypeError if a text was given in place of an iterable."""
    if isinstance(given, str):
        raise TypeError(f"{name} must be an iterable, not the text {given!r}")


def topics_and_partitions(given: Iterable[TopicOrPartition]) -> tuple[set[str], list[TopicPartition]]:
    """Returns the topics and the partitions among these. Raises TypeError if they are one text."""
    refuse_text(given, "partitions")
    items = [*given]
    topics = {item for item in items if isinstance(item, str)}
    return topics, topic_partitions([item for item in items if not isinstance(item, str)])


def canonical_names(given: Iterable[str], known: Sequence[str], what: str) -> list[str]:
    """Returns the names in the spelling of brokers. Raises ValueError for an unknown name.

    Case, hyphens and underscores of the given names do not matter.
    """
    if isinstance(given, str):
        given = (given,)
    canonical = {name.lower(): name for name in known}
    found = []
    for name in given:
        if name.replace("-", "").replace("_", "").lower() not in canonical:
            raise ValueError(f"there is no group {what} {name!r}; there are {', '.join(known)}")
        found.append(canonical[name.replace("-", "").replace("_", "").lower()])
    return found
