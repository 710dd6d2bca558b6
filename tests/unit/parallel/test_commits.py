"""Commits: what is committed again, when commits are in flight, fail, or are overtaken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import ConsumerRecord, OffsetAndMetadata, TopicPartition
from kconsumer.errors import KafkaError, RebalanceInProgressError
from kconsumer.parallel.commits import Commits
from kconsumer.parallel.offset_tracker import OffsetTracker

TP = TopicPartition("t", 0)


class Sent:
    """The commits that were sent, and their callbacks."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, Callable[[Any, KafkaError | None], object]]] = []

    def __call__(self, offsets: Any, callback: Callable[[Any, KafkaError | None], object]) -> None:
        """Note a commit."""
        self.commits.append((offsets[TP].offset, callback))

    def end(self, number: int, error: KafkaError | None = None) -> None:
        """Let a commit succeed or fail."""
        self.commits[number][1]({}, error)


@pytest.fixture
def tracker() -> OffsetTracker:
    """A tracker of ten records, of which none is finished."""
    tracker = OffsetTracker(TP)
    tracker.take([ConsumerRecord("t", 0, n) for n in range(10)], 10, 0)
    return tracker


def test_what_is_in_flight_is_not_committed_yet(tracker: OffsetTracker) -> None:
    """A commit that waits contains what an earlier one has sent and not got acknowledged."""
    commits, sent = Commits(), Sent()
    commits.start([tracker], sent)
    commits.start([tracker], sent)
    assert 1 == len(sent.commits)
    assert {TP: OffsetAndMetadata(0, "", 0)} == commits.changed([tracker])
    sent.end(0)
    assert ({}, {TP: 0}) == (commits.changed([tracker]), commits.committed)


@pytest.mark.parametrize("error", [None, RebalanceInProgressError("later")])
def test_an_overtaken_commit_changes_nothing(tracker: OffsetTracker, error: KafkaError | None) -> None:
    """The callback of a commit may be called after a later commit, which waited, was acknowledged."""
    commits, sent = Commits(), Sent()
    commits.start([tracker], sent)
    tracker.finish(0)
    commits.succeeded(commits.changed([tracker]))
    sent.end(0, error)
    assert ({}, {TP: 1}, None) == (commits.changed([tracker]), commits.committed, commits.error)
    tracker.finish(1)
    commits.start([tracker], sent)
    assert [0, 2] == [offset for offset, _ in sent.commits]


def test_a_lost_partition_is_forgotten(tracker: OffsetTracker) -> None:
    """A commit that was in flight when its partition was lost counts no more when the partition comes back."""
    commits, sent = Commits(), Sent()
    commits.start([tracker], sent)
    commits.forget([TP])
    sent.end(0)
    assert {TP} == set(commits.changed([tracker]))


def test_a_commit_that_cannot_be_sent_is_repeated(tracker: OffsetTracker) -> None:
    """If the consumer refuses to send a commit, the next one is sent."""
    commits, sent = Commits(), Sent()

    def refuse(offsets: Any, callback: Any) -> None:
        raise RebalanceInProgressError("later")

    with pytest.raises(RebalanceInProgressError):
        commits.start([tracker], refuse)
    commits.start([tracker], sent)
    assert 1 == len(sent.commits)
