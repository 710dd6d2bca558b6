"""Membership of KIP-848: how assigned partitions become owned ones, in which order, and which events interrupt that."""

from __future__ import annotations

import re

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.coordinator.consumer_protocol.state import MemberState
from kconsumer.schema.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from kconsumer.types import Node, SubscriptionPattern, TopicPartition
from support.harnesses.consumer_harness import ASSIGNED, INTERVAL_MS, LOST, REVOKED, ConsumerGroupHarness, topic_id
from support.harnesses.group_harness import tps

pytestmark = pytest.mark.network_thread

S = MemberState


def owned(group: ConsumerGroupHarness) -> list[TopicPartition]:
    """Returns the partitions that the member owns."""
    return sorted(group.assignment.assigned())


# --- joining and reconciling -------------------------------------------------------------------------------------


def test_an_empty_assignment_is_announced_and_acknowledged() -> None:
    """on_assign is called for an empty assignment, as in Java."""
    group = ConsumerGroupHarness()
    group.joined({})
    assert [(ASSIGNED, ())] == group.calls
    assert group.membership.idle


# --- callbacks that fail -----------------------------------------------------------------------------------------


def test_a_failed_revocation_callback_is_tried_again() -> None:
    """Until on_revoke has returned the partition stays owned, is not fetched, and its revocation is not
    acknowledged.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({}, 2)
    group.poll()
    group.run_callbacks(raising=ValueError("no"))
    assert ([*tps("t", 0)], S.RECONCILING) == (owned(group), group.state)
    group.until_stable()
    assert 2 == group.calls.count((REVOKED, tps("t", 0)))
    assert [] == owned(group)


# --- topic ids ---------------------------------------------------------------------------------------------------


def asked_for_topics(group: ConsumerGroupHarness) -> list[str | bytes]:
    """Returns the names or ids of the next Metadata request, and responds as a broker that only has topic t."""
    group.now += 1000
    (request,) = group.metadata.poll(group.now).requests
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
        topics=[MetadataResponseTopic(name="t", topic_id=topic_id("t"))],
    )
    group.reply(request, response)
    return [topic.name or topic.topic_id for topic in request.message.topics]


def test_names_and_ids_are_requested_separately() -> None:
    """Names and ids are not sent in one request, because a broker that finds an id does not check names and would omit
    all other topics.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({"t": [0], "gone": [0]}, 2)
    group.poll()
    group.metadata.request_update()
    assert ["t"] == asked_for_topics(group)
    assert [topic_id("gone")] == asked_for_topics(group)
    assert [] == group.metadata.poll(group.now).requests, "names are requested once per metadata update"
    assert {"t"} <= set(group.cluster.topics())


def reported_by(heartbeat: UnsentRequest) -> dict[bytes, list[int]]:
    """Returns the partitions that a heartbeat reports as owned, by topic id."""
    return {topic.topic_id: list(topic.partitions) for topic in heartbeat.message.topic_partitions}


def test_an_acknowledgement_reports_the_partitions_of_a_newer_target() -> None:
    """While on_assign runs, a newer target assignment arrives. The acknowledgement of the first one must not look as if
    the member did not take the new partitions: it takes them before it receives the response. The coordinator could
    give them to another member meanwhile.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({"t": [0, 1]}, 2)
    group.poll()
    assert group.membership.due_callback is not None
    group.target({"t": [0, 1, 2, 3]}, 3)
    group.run_callbacks()
    ack = group.beat()
    assert {topic_id("t"): [0, 1, 2, 3]} == reported_by(ack)
    group.respond(ack, 4, {"t": [0, 1]})
    group.until_stable()
    assert [TopicPartition("t", 0), TopicPartition("t", 1)] == owned(group)
    assert {topic_id("t"): frozenset({0, 1})} == group.member.reported


def test_metadata_of_assigned_topics_is_kept() -> None:
    """With a pattern that the broker evaluates, metadata of the assigned topics is requested by id and kept, although
    the subscription has no names.
    """
    group = ConsumerGroupHarness(subscribe=False)
    group.learn({})
    group.subscription.subscribe_broker_pattern(SubscriptionPattern("x.*"))
    group.respond(group.beat(), 1, {"x1": [0]})
    group.poll()
    (request,) = group.metadata.poll(group.now).requests
    assert [(None, topic_id("x1"))] == [(t.name, t.topic_id) for t in request.message.topics]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
        topics=[MetadataResponseTopic(name="x1", topic_id=topic_id("x1"))],
    )
    group.reply(request, response)
    assert "x1" in group.cluster.topics()
    group.until_stable()
    assert [TopicPartition("x1", 0)] == owned(group)


# --- fencing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("begun", "error"), [(False, None), (True, None), (True, ValueError("no"))])
def test_fenced_in_the_middle_of_a_reconciliation(begun: bool, error: Exception | None) -> None:
    """The reconciliation is cancelled: on_lost is called for all partitions except those of the on_revoke call, and
    on_assign is not called for new ones.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0, 1]})
    group.target({"t": [1, 2]}, 2)
    group.poll()
    callback = group.membership.due_callback
    assert callback is not None
    if begun:
        group.membership.callback_began(callback)
    group.now += INTERVAL_MS
    (beat,) = group.background()
    group.refuse(beat, 110)
    if begun:
        group.membership.callback_done(callback, group.now, error)
    group.calls.clear()
    group.run_callbacks()
    assert [(LOST, tps("t", 1) if begun else tps("t", 0, 1))] == group.calls
    assert ([], S.JOINING) == (owned(group), group.state)


def test_fenced_after_on_revoke_had_raised() -> None:
    """If on_revoke raised, and must be called again, its partitions still belong to the listener, so on_lost is called
    for them.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0, 1]})
    group.target({"t": [1]}, 2)
    group.poll()
    group.run_callbacks(raising=ValueError("no"))
    group.calls.clear()
    group.now += INTERVAL_MS
    (beat,) = group.background()
    group.refuse(beat, 110)
    group.run_callbacks()
    assert [(LOST, tps("t", 0, 1))] == group.calls


@pytest.mark.parametrize("begun", [False, True])
def test_on_lost_has_only_partitions_of_on_assign(begun: bool) -> None:
    """If the member is fenced before on_assign is called, on_lost is not called for the new partitions; if it is fenced
    during on_assign, it is.
    """
    group = ConsumerGroupHarness()
    group.respond(group.beat(), 1, {"t": [0]})
    group.poll()
    callback = group.membership.due_callback
    assert callback is not None
    if begun:
        group.membership.callback_began(callback)
    group.now += INTERVAL_MS
    (beat,) = group.background()
    group.refuse(beat, 110)
    group.run_callbacks()
    assert ([(LOST, tps("t", 0))] if begun else []) == group.calls
    assert ([], S.JOINING) == (owned(group), group.state)


# --- the caller that does not poll ---------------------------------------------------------------------------------


def test_an_idle_caller_without_a_coordinator_is_stale_at_once() -> None:
    """Without a coordinator no leave heartbeat can be sent; the coordinator ends the session by its timeout."""
    group = ConsumerGroupHarness(max_poll_interval_ms=60_000)
    group.joined({"t": [0]})
    group.coordinator.mark_unknown("gone", group.now)
    group.now += 60_000
    assert [] == group.background()
    assert S.STALE is group.state


def test_an_idle_caller_fenced_before_it_left() -> None:
    """If the response to a heartbeat in flight fences a member that is about to leave, it need not leave any more. The
    next poll calls on_lost and joins, and partitions that are assigned again are fetched.
    """
    group = ConsumerGroupHarness(max_poll_interval_ms=60_000)
    group.joined({"t": [0]})
    group.calls.clear()
    group.now += 60_000 - INTERVAL_MS
    (beat,) = group.background()
    group.now += INTERVAL_MS
    assert [] == group.background()
    assert S.LEAVING is group.state
    group.refuse(beat, 110)
    assert S.UNSUBSCRIBED is group.state
    assert [] == group.background()
    group.poll()
    group.run_callbacks()
    assert [(LOST, tps("t", 0))] == group.calls
    assert [] == owned(group)
    group.joined({"t": [0]})
    group.positions.seek(TopicPartition("t", 0), 3)
    assert group.assignment.is_fetchable(TopicPartition("t", 0))


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_an_idle_caller_that_closes_before_it_left(instance: str | None, epoch: int) -> None:
    """If the poll interval is exceeded while a heartbeat is in flight, and the consumer closes before the response,
    close() sends the leave heartbeat. Without it a static member's successor would be refused.
    """
    group = ConsumerGroupHarness(group_instance_id=instance, max_poll_interval_ms=60_000)
    group.joined({"t": [0]})
    group.now += 60_000 - INTERVAL_MS
    group.background()
    group.now += INTERVAL_MS
    assert [] == group.background()
    assert S.LEAVING is group.state
    callback = group.membership.leave_callback()
    assert callback is not None
    assert (LOST, tps("t", 0)) == (callback.kind.value, callback.partitions)
    leave = group.membership.leave("test", group.now)
    assert leave is not None
    assert (epoch, S.UNSUBSCRIBED) == (leave.message.member_epoch, group.state)


def test_an_idle_caller_that_unsubscribes_and_comes_back() -> None:
    """A stale member that unsubscribes calls on_lost at once. It has left already, and joins when it
    subscribes again.
    """
    group = ConsumerGroupHarness(max_poll_interval_ms=60_000)
    group.joined({"t": [0]})
    group.now += 60_000
    (leave,) = group.background()
    group.respond(leave, -1)
    callback = group.membership.leave_callback()
    assert callback is not None
    assert (LOST, tps("t", 0)) == (callback.kind.value, callback.partitions)
    assert group.membership.leave("test", group.now) is None
    group.subscription.unsubscribe()
    assert ([], []) == (owned(group), group.poll())
    group.subscription.subscribe(["u"])
    assert 0 == group.beat().message.member_epoch


# --- leaving -------------------------------------------------------------------------------------------------------


def test_leaving_while_fenced_runs_on_lost() -> None:
    """A fenced member that leaves calls on_lost, because it no longer owns its partitions."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    group.refuse(group.beat(), 110)
    callback = group.membership.leave_callback()
    assert callback is not None
    assert LOST == callback.kind.value
    assert group.membership.leave("test", group.now) is None
    assert S.UNSUBSCRIBED is group.state


@pytest.mark.parametrize("code", [15, 25, 69, 110, 128])
@pytest.mark.parametrize("leave_sent", [True, False])
def test_late_responses_of_a_former_membership_are_ignored(code: int, leave_sent: bool) -> None:
    """A response to a leave heartbeat, or to one before it, does not change a membership that began since. Otherwise
    GROUP_ID_NOT_FOUND, for example, would make the member FATAL.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    former = [group.beat()]
    group.membership.leave_callback()
    if leave_sent:
        leave = group.membership.leave("test", group.now)
        assert leave is not None
        former.append(leave)
    else:
        assert group.membership.leave("test", group.now, leave_group=False) is None
    group.poll()
    assert S.JOINING is group.state
    for request in former:
        group.refuse(request, code)
    assert (S.JOINING, None) == (group.state, group.membership.take_error())
    assert (code == 15) == (group.coordinator.connection_id is None)
    group.coordinator.coordinator = Node(1, "broker", 9092)
    group.joined({"t": [0]})
    assert S.STABLE is group.state


def test_a_fatal_error_ends_with_the_subscription() -> None:
    """After a fatal error a consumer that unsubscribes can assign partitions itself. If it subscribes again, poll
    raises the error at once (Java raises it once and then does not join).
    """
    group = ConsumerGroupHarness()
    group.refuse(group.beat(), 112)
    assert [112, 112] == [getattr(group.membership.take_error(), "code", 0) for _ in range(2)]
    group.membership.leave_callback()
    assert group.membership.leave("test", group.now) is None
    group.subscription.unsubscribe()
    assert group.membership.take_error() is None
    group.subscription.assign(tps("t", 0))
    assert group.membership.take_error() is None
    group.subscription.unsubscribe()
    group.subscription.subscribe(["t"])
    assert group.membership.take_error() is not None


# --- subscriptions -------------------------------------------------------------------------------------------------


def test_a_client_pattern_is_matched_before_joining() -> None:
    """The first heartbeat contains the topics that match, so it waits for the metadata of all topics."""
    group = ConsumerGroupHarness(subscribe=False)
    group.subscription.subscribe_pattern(re.compile("t.*"))
    assert [] == group.poll()
    (request,) = group.metadata.poll(group.now).requests
    assert request.message.topics is None
    group.reply(request, MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)]))
    group.subscription.subscribe_matched(["t1"])
    assert ["t1"] == group.beat().message.subscribed_topic_names
