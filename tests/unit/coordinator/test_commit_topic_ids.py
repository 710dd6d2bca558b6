"""Commits and committed offsets of a KIP-848 member: topics are identified by id, so a re-created topic is a different
one.
"""

from __future__ import annotations

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.coordinator.commits import MAX_IN_FLIGHT
from kconsumer.errors import KafkaError
from kconsumer.schema.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kconsumer.types import OffsetAndMetadata, TopicPartition
from support.harnesses.consumer_harness import EVERYTHING, ConsumerGroupHarness, topic_id
from support.harnesses.group_harness import committed

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLD, NEW = topic_id("t"), b"another id of t."
LAST_VERSION_WITH_NAMES, UNKNOWN_TOPIC_ID = 9, 100


@pytest.fixture
def group() -> ConsumerGroupHarness:
    """Returns a member that owns partitions 0 and 1 of t and has read both up to offset 5."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0, 1]})
    for tp in (T0, T1):
        group.positions.seek(tp, 5)
        group.assignment.get(tp).topic_id = OLD
    return group


def sent(group: ConsumerGroupHarness) -> UnsentRequest:
    """Returns the one request of the commit manager."""
    (request,) = group.commits.poll(group.now).requests
    return request


def recreate_topic(group: ConsumerGroupHarness) -> None:
    """Let metadata show that t was deleted and created again."""
    group.learn(EVERYTHING, {"t": NEW})


def fetched(topic: bytes, offset: int = 9, code: int = 0) -> OffsetFetchResponse:
    """Returns an OffsetFetch response for partition 0 of the topic with this id."""
    partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset, metadata="m", error_code=code)
    topics = [OffsetFetchResponseTopics(topic_id=topic, partitions=[partition])]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def test_ids_if_all_are_known(group: ConsumerGroupHarness) -> None:
    """A commit identifies its topics by id, in the newest version."""
    promise = group.commits.commit({T0: OffsetAndMetadata(5), U0: OffsetAndMetadata(1)}, group.now + 1000)
    request = sent(group)
    assert [OLD, topic_id("u")] == [topic.topic_id for topic in request.message.topics]
    assert request.max_version > LAST_VERSION_WITH_NAMES
    group.reply(request, committed(request))
    assert {T0, U0} == set(promise.result())


def test_commits_with_and_without_ids_are_not_merged(group: ConsumerGroupHarness) -> None:
    """Of many waiting asynchronous commits, those with ids are merged into one request and those with names into
    another. A topic without an id fails only its own commit, and the queue stays short.
    """
    stranger = TopicPartition("stranger", 0)
    for n in range(MAX_IN_FLIGHT):
        group.commits.commit({T0: OffsetAndMetadata(n)})
    promises = [group.commits.commit({tp: OffsetAndMetadata(50)}) for tp in (T0, stranger, T1, stranger)]
    for request in group.commits.poll(group.now).requests:
        group.reply(request, committed(request))
    by_id, by_name = group.commits.poll(group.now).requests
    assert [(OLD, [0, 1])] == [
        (topic.topic_id, [p.partition_index for p in topic.partitions]) for topic in by_id.message.topics
    ]
    assert ["stranger"] == [topic.name for topic in by_name.message.topics]
    assert by_id.max_version > LAST_VERSION_WITH_NAMES == by_name.max_version
    group.reply(by_id, committed(by_id))
    group.reply(by_name, committed(by_name, 29))
    assert [False, True, False, True] == [promise.error is not None for promise in promises]


def test_merging_keeps_the_order_of_one_partition(group: ConsumerGroupHarness) -> None:
    """If the id of a topic becomes known while commits wait, its newer offset is not sent before the older one."""
    stranger = TopicPartition("stranger", 0)
    for n in range(MAX_IN_FLIGHT):
        group.commits.commit({T0: OffsetAndMetadata(n)})
    group.commits.commit({T1: OffsetAndMetadata(1)})
    group.commits.commit({stranger: OffsetAndMetadata(1)})
    group.learn({**EVERYTHING, "stranger": 1})
    group.commits.commit({stranger: OffsetAndMetadata(2)})
    for request in group.commits.poll(group.now).requests:
        group.reply(request, committed(request))
    sent = [
        (topic.partitions[0].partition_index, topic.partitions[0].committed_offset)
        for request in group.commits.poll(group.now).requests
        for topic in request.message.topics
        if topic.name == "stranger" or topic.topic_id == topic_id("stranger")
    ]
    assert [(0, 1), (0, 2)] == sent


def test_offsets_of_a_deleted_topic_are_not_committed_to_its_successor(group: ConsumerGroupHarness) -> None:
    """Offsets of the old topic are committed with the old id, and the commit fails at once because the
    topic is gone.
    """
    recreate_topic(group)
    promise = group.commits.commit(group.positions.all_consumed(), group.now + 60_000)
    request = sent(group)
    assert [OLD] == [topic.topic_id for topic in request.message.topics]
    group.reply(request, committed(request, UNKNOWN_TOPIC_ID))
    assert isinstance(promise.error, KafkaError)
    assert "commit of t-0" in str(promise.error)
    assert UNKNOWN_TOPIC_ID == getattr(promise.error, "code", 0)


def test_the_id_is_that_of_the_moment_of_the_commit(group: ConsumerGroupHarness) -> None:
    """A retried commit keeps the id of the old topic if the topic is re-created meanwhile."""
    promise = group.commits.commit({T0: OffsetAndMetadata(5)}, group.now + 60_000)
    request = sent(group)
    group.reply(request, committed(request, 14))
    recreate_topic(group)
    group.now += 2000
    again = sent(group)
    assert [OLD] == [topic.topic_id for topic in again.message.topics]
    group.reply(again, committed(again, UNKNOWN_TOPIC_ID))
    assert promise.done


def test_positions_of_both_topics_in_one_commit(group: ConsumerGroupHarness) -> None:
    """If one partition already reads the re-created topic and another one does not, each offset is committed with its
    own id.
    """
    recreate_topic(group)
    group.assignment.get(T1).topic_id = NEW
    group.commits.commit(group.positions.all_consumed(), group.now + 1000)
    topics = sent(group).message.topics
    assert {OLD: [0], NEW: [1]} == {topic.topic_id: [p.partition_index for p in topic.partitions] for topic in topics}


def test_a_coordinator_that_does_not_know_the_id_yet(group: ConsumerGroupHarness) -> None:
    """A caller's commit is retried and metadata is requested; an auto-commit fails at once."""
    waiting = group.commits.commit({T0: OffsetAndMetadata(5)}, group.now + 60_000)
    automatic = group.commits.commit({T1: OffsetAndMetadata(5)}, group.now + 60_000, automatic=True)
    for request in group.commits.poll(group.now).requests:
        group.reply(request, committed(request, UNKNOWN_TOPIC_ID))
    assert (False, True) == (waiting.done, automatic.done)
    group.now += 2000
    assert ["Metadata"] == [request.api.name for request in group.metadata.poll(group.now).requests]
    request = sent(group)
    group.reply(request, committed(request))
    assert {T0: OffsetAndMetadata(5)} == waiting.result()


def test_a_position_after_a_seek_or_reset_is_in_the_current_topic(group: ConsumerGroupHarness) -> None:
    """After a seek or a reset the position belongs to the current topic, because nothing was read from the old one."""
    recreate_topic(group)
    group.positions.seek(T0, 0)
    group.commits.commit({T0: OffsetAndMetadata(0)}, group.now + 1000)
    assert [NEW] == [topic.topic_id for topic in sent(group).message.topics]


def test_committed_offsets_by_id(group: ConsumerGroupHarness) -> None:
    """Committed offsets are requested and matched by id, and topics that were not requested are ignored."""
    promise = group.commits.committed([T0], group.now + 1000)
    request = sent(group)
    assert [OLD] == [topic.topic_id for topic in request.message.groups[0].topics]
    response = fetched(OLD)
    response.groups[0].topics += fetched(NEW, 77).groups[0].topics
    group.reply(request, response)
    assert {T0: OffsetAndMetadata(9, "m")} == promise.result()


def test_committed_offsets_of_a_recreated_topic(group: ConsumerGroupHarness) -> None:
    """If the topic is re-created meanwhile, the request is repeated with the new id."""
    promise = group.commits.committed([T0], group.now + 60_000)
    group.reply(sent(group), fetched(OLD, -1, UNKNOWN_TOPIC_ID))
    recreate_topic(group)
    group.now += 2000
    request = sent(group)
    assert [NEW] == [topic.topic_id for topic in request.message.groups[0].topics]
    group.reply(request, fetched(NEW, 3))
    assert {T0: OffsetAndMetadata(3, "m")} == promise.result()
