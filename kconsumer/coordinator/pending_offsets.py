"""Commits and look-ups of committed offsets that are not finished: what each sends, and with which others.

Decides what a retried commit says and what two merged ones say together. When they are sent, and what a response means,
is decided in `commits.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kconsumer.backoff import RetryTimer
from kconsumer.coordinator.commit_messages import Ids
from kconsumer.errors import KafkaError
from kconsumer.managers import Promise
from kconsumer.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True, eq=False)
class PendingRequest:
    """One commit or one look-up: what the caller waits for, and how often it was tried."""

    promise: Promise[Any]
    backoff: RetryTimer
    deadline: float | None  # None: tried once (an asynchronous commit)
    in_flight: bool = False
    tried: bool = False
    last_error: KafkaError | None = None


@dataclass(slots=True, eq=False)
class PendingCommit(PendingRequest):
    """Offsets to commit."""

    offsets: Offsets = field(default_factory=dict)
    ids: Ids = field(default_factory=dict)  # of the topics read, when it was made; or none
    before_rebalance: bool = False  # the member must know how it went before it gives partitions up
    is_auto_commit: bool = False
    must_send: bool = False  # somebody does nothing else until it is done
    merged: list[PendingCommit] = field(default_factory=list)  # later ones that are sent in the same request
    _newer: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)  # for a retry
    _newer_ids: dict[TopicPartition, bytes] = field(default_factory=dict)

    def supersede(self, offsets: Offsets, ids: Ids) -> None:
        """Note that a later commit has newer offsets of some partitions. A retry says those: it may arrive after the
        later commit, and must not set it back."""
        self._newer.update({tp: offset for tp, offset in offsets.items() if tp in self.offsets})
        self._newer_ids.update({tp: topic_id for tp, topic_id in ids.items() if tp in self.ids})

    def request(self) -> tuple[Offsets, Ids]:
        """What to send: later offsets of a partition take the place of earlier ones."""
        if self.tried:
            self.offsets, self.ids = {**self.offsets, **self._newer}, {**self.ids, **self._newer_ids}
        offsets, ids = dict(self.offsets), dict(self.ids)
        for commit in self.merged:
            offsets.update(commit.offsets)
            ids.update(commit.ids)
        return offsets, ids


@dataclass(slots=True, eq=False)
class PendingOffsetFetch(PendingRequest):
    """Partitions whose committed offsets are wanted."""

    partitions: frozenset[TopicPartition] = frozenset()
