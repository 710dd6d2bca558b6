"""Which partitions count as new: those that were not in the first metadata after the subscription."""

from __future__ import annotations

import re

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.metadata import MetadataResponse
from kconsumer.state.cluster import Cluster
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import SubscriptionPattern
from support.harnesses.manager_driver import metadata, partition, topic, tp

ID, OTHER_ID = b"1" * 16, b"2" * 16
ABSENT = Errors.UNKNOWN_TOPIC_OR_PARTITION


def sized(name: str, partitions: int, topic_id: bytes = ID) -> object:
    """Returns a topic of a response."""
    return topic(name, *(partition(index, 1) for index in range(partitions)), topic_id=topic_id)


class Case:
    """A subscription that gets metadata."""

    def __init__(self) -> None:
        self.cluster, self.state = Cluster(), SubscriptionState()

    def receive(self, response: MetadataResponse, *, all_topics: bool = False) -> None:
        """Handle a response, as the manager of metadata does."""
        update = self.cluster.update(response, 12, full=True)
        self.state.record_partitions(self.cluster, update, all_topics=all_topics)

    def new(self, *names: str) -> list[str]:
        """Returns those of these partitions that are new."""
        return [name for name in names if self.state.initial_partitions.is_new(tp(name))]


@pytest.fixture
def case() -> Case:
    """A subscription to a topic by its name."""
    created = Case()
    created.state.subscribe({"a"})
    return created


def test_a_topic_that_grows(case: Case) -> None:
    """Partitions are new for ever, and before metadata has them; without metadata nothing is known to be new."""
    assert [] == case.new("a-0", "b-9")
    case.receive(metadata(sized("a", 2)))
    assert ["a-2"] == case.new("a-0", "a-1", "a-2")
    case.receive(metadata(sized("a", 3)))
    case.state.subscribe({"a", "b"})
    assert ["a-2", "a-3"] == case.new("a-1", "a-2", "a-3", "b-0")
    case.state.subscribe({"b"})
    assert [] == case.new("a-2", "a-3")


@pytest.mark.parametrize("code", [ABSENT, Errors.LEADER_NOT_AVAILABLE])
def test_a_topic_that_does_not_exist_yet(case: Case, code: int) -> None:
    """All of its partitions are new. A broker that does not know an existing topic changes nothing."""
    case.receive(metadata(topic("a", error=code)))
    case.receive(metadata(sized("a", 2)))
    assert ["a-0", "a-1"] == case.new("a-0", "a-1")
    case.state.unsubscribe()
    case.state.subscribe({"a"})
    case.receive(metadata(sized("a", 2)))
    case.receive(metadata(topic("a", error=code)))
    assert [] == case.new("a-0", "a-1")


def test_topics_with_other_errors(case: Case) -> None:
    """A topic that may not be described may have existed before."""
    case.receive(metadata(topic("a", error=Errors.TOPIC_AUTHORIZATION_FAILED)))
    case.receive(metadata(sized("a", 1)))
    assert ["a-1"] == case.new("a-0", "a-1")


def test_a_topic_that_is_created_again(case: Case) -> None:
    """All partitions of the new topic are new."""
    case.receive(metadata(sized("a", 2)))
    case.receive(metadata(sized("a", 2, OTHER_ID)))
    assert ["a-0", "a-1"] == case.new("a-0", "a-1")


@pytest.mark.parametrize("by_broker", [False, True])
def test_topics_that_match_a_pattern_later(by_broker: bool) -> None:
    """They are new if the metadata of all topics lacked them since the pattern was set."""
    case = Case()
    if by_broker:
        case.state.subscribe_broker_pattern(SubscriptionPattern("a.*"))
    else:
        case.state.subscribe_pattern(re.compile("a.*"))
    assert by_broker is case.state.awaits_all_topics
    case.receive(metadata(sized("a", 1)))
    case.receive(metadata(sized("a", 1), sized("ab", 1)), all_topics=True)
    assert not case.state.awaits_all_topics
    case.receive(metadata(sized("a", 1), sized("ab", 1), sized("ac", 1)))
    assert ["a-1", "ac-0"] == case.new("a-0", "a-1", "ab-0", "ac-0")


def test_a_manual_assignment_has_no_new_partitions() -> None:
    """There is no subscription."""
    case = Case()
    case.state.assign([tp("a-0")])
    case.receive(metadata(sized("a", 1)), all_topics=True)
    case.receive(metadata(sized("a", 2)), all_topics=True)
    assert [] == case.new("a-0", "a-1")
