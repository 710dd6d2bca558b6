"""When a member requests metadata of all topics, to match a pattern before it joins."""

from __future__ import annotations

import re

import pytest

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.schema.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from support.harnesses.consumer_harness import ConsumerGroupHarness
from support.harnesses.group_harness import GroupHarness

BROKER = MetadataResponseBroker(node_id=1, host="broker", port=9092)
PATTERN = re.compile("t.*")
Harness = GroupHarness | ConsumerGroupHarness


@pytest.fixture(params=["classic", "consumer"])
def group(request: pytest.FixtureRequest) -> Harness:
    """Returns a member of either protocol without a subscription; its metadata contains topic t."""
    group: Harness = GroupHarness() if request.param == "classic" else ConsumerGroupHarness()
    group.subscription.unsubscribe()
    update(group, *group.metadata.poll(group.now).requests)
    return group


def update(group: Harness, request: UnsentRequest) -> None:
    """Deliver the metadata of topics t and t2."""
    topics = [MetadataResponseTopic(name=name) for name in ("t", "t2")]
    group.now += 1000
    request.handler(Reply(MetadataResponse(brokers=[BROKER], topics=topics), None, group.now, 12, "1", group.now))
    group.now += 1000


def unsubscribe(group: Harness) -> None:
    """End the membership and the subscription, as the engine does."""
    group.membership.leave_callback()
    request = group.membership.leave("the consumer unsubscribed", group.now)
    if request is not None and isinstance(group, ConsumerGroupHarness):
        group.respond(request, -1)
    group.subscription.unsubscribe()


def match(group: Harness) -> None:
    """Subscribe to the pattern, deliver the metadata of all topics, and let the coordinator accept the member."""
    group.subscription.subscribe_pattern(PATTERN)
    assert [] == group.poll()
    (request,) = group.metadata.poll(group.now).requests
    assert request.message.topics is None
    update(group, request)
    assert {"t", "t2"} == group.subscription.subscribed_topics()
    (join,) = group.poll()
    if isinstance(group, GroupHarness):
        group.respond(join, group.joined(leader=False))
    else:
        group.respond(join)


def test_the_same_pattern_again_is_matched_again(group: Harness) -> None:
    """After unsubscribe the same pattern is matched against all topics again, as its first match was dropped."""
    match(group)
    unsubscribe(group)
    match(group)


def test_a_response_after_unsubscribe_matches_nothing(group: Harness) -> None:
    """A metadata response that arrives after unsubscribe does not count as a match for a later subscription to the
    same pattern.
    """
    group.subscription.subscribe_pattern(PATTERN)
    group.poll()
    (request,) = group.metadata.poll(group.now).requests
    unsubscribe(group)
    update(group, request)
    match(group)
