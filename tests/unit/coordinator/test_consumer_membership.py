"""Membership of KIP-848: from what is assigned to what is owned, in order, whatever comes between."""

from __future__ import annotations

import re

import pytest

from kconsumer.coordinator.consumer_protocol.state import MemberState
from kconsumer.errors import BrokerConnectionError
from kconsumer.schema.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from kconsumer.types import Node, OffsetAndMetadata, SubscriptionPattern, TopicPartition
from support.harnesses.consumer_harness import ASSIGNED, INTERVAL_MS, LOST, REVOKED, ConsumerGroupHarness, topic_id
from support.harnesses.group_harness import committed, tps

pytestmark = pytest.mark.network_thread

S = MemberState


def owned(group: ConsumerGroupHarness) -> list[TopicPartition]:
    """What the member owns."""
    return sorted(group.subscription.assigned())


# --- joining and reconciling -------------------------------------------------------------------------------------


def test_join_take_and_acknowledge() -> None:
    """JOINING → RECONCILING → on_assign → ACKNOWLEDGING → STABLE, the acknowledgement at once."""
    group = ConsumerGroupHarness()
    join = group.beat()
    assert S.JOINING is group.state
    group.answer(join, 3, {"t": [0, 1]})
    assert S.RECONCILING is group.state
    assert [] == group.poll()
    group.run_callbacks()
    assert S.ACKNOWLEDGING is group.state
    ack = group.beat()
    assert (S.STABLE, 3) == (group.state, ack.message.member_epoch)
    assert [(ASSIGNED, tps("t", 0, 1))] == group.calls
    assert [*tps("t", 0, 1)] == owned(group)


def test_an_empty_assignment_is_announced_and_acknowledged() -> None:
    """A member without partitions hears of it, as in Java."""
    group = ConsumerGroupHarness()
    group.joined({})
    assert [(ASSIGNED, ())] == group.calls
    assert group.membership.idle


def test_new_partitions_are_fetched_only_after_the_callback() -> None:
    """Between taking a partition and the end of on_assign it is not fetchable; then it is."""
    group = ConsumerGroupHarness()
    group.answer(group.beat(), 1, {"t": [0]})
    group.poll()
    (tp,) = tps("t", 0)
    group.subscription.seek(tp, 5)
    assert not group.subscription.is_fetchable(tp)
    group.run_callbacks()
    assert group.subscription.is_fetchable(tp)


def test_revocation_comes_before_assignment() -> None:
    """What goes is held back, revoked and dropped; then what comes is taken and announced; what stays flows on."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0, 1]})
    group.calls.clear()
    stays, goes, comes = tps("t", 0, 1, 2)
    for tp in (stays, goes):
        group.subscription.seek(tp, 9)
    group.target({"t": [0, 2]}, 2)
    group.poll()
    assert (True, False) == (group.subscription.is_fetchable(stays), group.subscription.is_fetchable(goes))
    assert [stays, goes] == owned(group)
    group.run_callbacks()
    assert [(REVOKED, (goes,)), (ASSIGNED, (comes,))] == group.calls
    assert [stays, comes] == owned(group)
    assert group.subscription.is_fetchable(stays)
    assert {topic_id("t"): [0, 2]} == {t.topic_id: t.partitions for t in group.beat().message.topic_partitions}


def test_positions_are_committed_before_revocation() -> None:
    """With auto-commit, on_revoke waits for the commit, made with the member epoch."""
    group = ConsumerGroupHarness(enable_auto_commit=True)
    group.joined({"t": [0]})
    group.subscription.seek(TopicPartition("t", 0), 7)
    group.target({}, 2)
    (commit,) = group.poll()
    assert ("OffsetCommit", 2, "me") == (
        commit.api.name,
        commit.message.generation_id_or_member_epoch,
        commit.message.member_id,
    )
    assert group.membership.due_callback is None
    group.reply(commit, committed(commit))
    group.poll()
    assert group.membership.due_callback is not None
    group.run_callbacks()
    assert (REVOKED, tps("t", 0)) in group.calls


def test_a_newer_target_waits_for_the_present_one() -> None:
    """What arrives during a reconciliation is reconciled after it; only the newest counts."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({"t": [0, 1]}, 2)
    group.poll()
    for epoch, partitions in ((3, [2]), (4, [3])):
        group.now += INTERVAL_MS
        (beat,) = group.background()
        group.answer(beat, epoch, {"t": partitions})
    group.until_stable()
    assert [*tps("t", 3)] == owned(group)
    assert (ASSIGNED, tps("t", 2)) not in group.calls


def test_there_and_back_is_acknowledged() -> None:
    """A target that becomes again what is owned needs no callback but an acknowledgement."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({"t": [0, 1]}, 2)
    group.now += INTERVAL_MS
    (beat,) = group.background()
    group.answer(beat, 3, {"t": [0]})
    group.calls.clear()
    group.poll()
    assert ([], S.STABLE) == (group.calls, group.state)
    assert [*tps("t", 0)] == owned(group)


# --- callbacks that fail -----------------------------------------------------------------------------------------


def test_a_failed_assignment_callback_is_tried_again() -> None:
    """Nothing is acknowledged and nothing fetched until on_assign has returned; it sees the same partitions again."""
    group = ConsumerGroupHarness()
    group.answer(group.beat(), 1, {"t": [0]})
    group.poll()
    group.run_callbacks(raising=ValueError("no"))
    assert S.RECONCILING is group.state
    assert [] == group.poll()
    group.subscription.seek(TopicPartition("t", 0), 0)
    assert not group.subscription.is_fetchable(TopicPartition("t", 0))
    group.run_callbacks()
    assert [(ASSIGNED, tps("t", 0))] * 2 == group.calls
    assert group.subscription.is_fetchable(TopicPartition("t", 0))
    assert group.beat().message.topic_partitions


def test_a_failed_revocation_callback_is_tried_again() -> None:
    """The partition stays owned and held back, and the coordinator is not told, until on_revoke has returned."""
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
    """The names or ids in the next Metadata request, which is answered as by a broker that knows t alone."""
    group.now += 1000
    (request,) = group.metadata.poll(group.now).requests
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
        topics=[MetadataResponseTopic(name="t", topic_id=topic_id("t"))],
    )
    group.reply(request, answer)
    return [topic.name or topic.topic_id for topic in request.message.topics]


def test_names_are_not_asked_for_together_with_ids() -> None:
    """A broker that finds an id in a request does not check names, and would seem to know no other topic."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.target({"t": [0], "gone": [0]}, 2)
    group.poll()
    group.metadata.request_update()
    assert ["t"] == asked_for_topics(group)
    assert [topic_id("gone")] == asked_for_topics(group)
    assert [] == group.metadata.poll(group.now).requests, "once is enough until metadata is asked for again"
    assert {"t"} <= set(group.cluster.topics())


def test_an_unknown_topic_id_waits_for_metadata() -> None:
    """The known part is owned and acknowledged first; the rest after its name was asked for by id."""
    group = ConsumerGroupHarness(subscribe=False)
    group.subscription.subscribe(["t", "new"])
    join = group.beat()
    group.answer(join, 1, {"t": [0], "new": [0]})
    assert S.RECONCILING is group.state
    group.poll()
    group.run_callbacks()
    (ack,) = group.background()
    assert {topic_id("t"): [0]} == {t.topic_id: t.partitions for t in ack.message.topic_partitions}
    assert S.RECONCILING is group.state
    group.answer(ack, 1)
    assert ["new", "t"] == asked_for_topics(group)
    assert [topic_id("new")] == asked_for_topics(group)
    group.learn({"t": 4, "new": 1})
    group.until_stable()
    assert [TopicPartition("new", 0), TopicPartition("t", 0)] == owned(group)


def test_unknown_ids_are_acknowledged_once() -> None:
    """While metadata is missing the known part is not acknowledged again and again."""
    group = ConsumerGroupHarness()
    group.answer(group.beat(), 1, {"gone": [0]})
    group.poll()
    group.run_callbacks()
    (ack,) = group.background()
    group.answer(ack, 1)
    assert [] == group.poll()
    assert [] == group.poll()
    assert S.RECONCILING is group.state


def test_a_name_is_kept_when_metadata_forgets_it() -> None:
    """A broker that is behind answers without the topic: its partitions stay."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.learn({})
    group.target({"t": [0, 1]}, 2)
    group.until_stable()
    assert [*tps("t", 0, 1)] == owned(group)


def test_metadata_of_assigned_topics_is_kept() -> None:
    """With a pattern that the broker evaluates nobody names the topics; their metadata is asked for by id and kept."""
    group = ConsumerGroupHarness(subscribe=False)
    group.learn({})
    group.subscription.subscribe_broker_pattern(SubscriptionPattern("x.*"))
    group.answer(group.beat(), 1, {"x1": [0]})
    group.poll()
    (request,) = group.metadata.poll(group.now).requests
    assert [(None, topic_id("x1"))] == [(t.name, t.topic_id) for t in request.message.topics]
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
        topics=[MetadataResponseTopic(name="x1", topic_id=topic_id("x1"))],
    )
    group.reply(request, answer)
    assert "x1" in group.cluster.topics()
    group.until_stable()
    assert [TopicPartition("x1", 0)] == owned(group)


# --- fencing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [25, 110])
def test_fenced_loses_everything_and_joins_again(code: int) -> None:
    """on_lost for all, nothing fetched meanwhile, then a join with epoch 0 under the same member id."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0, 1]})
    group.calls.clear()
    group.subscription.seek(TopicPartition("t", 0), 3)
    group.now += INTERVAL_MS
    group.refuse(group.beat(), code)
    assert S.FENCED is group.state
    assert not group.subscription.is_fetchable(TopicPartition("t", 0))
    assert [] == group.background()
    group.run_callbacks()
    assert [(LOST, tps("t", 0, 1))] == group.calls
    join = group.beat()
    assert (0, "me", []) == (join.message.member_epoch, join.message.member_id, join.message.topic_partitions)
    assert [] == owned(group)


def test_fenced_without_partitions_joins_without_waiting_for_the_caller() -> None:
    """There is nobody to tell, so the next heartbeat joins."""
    group = ConsumerGroupHarness()
    group.joined({})
    group.now += INTERVAL_MS
    group.refuse(group.beat(), 110)
    (join,) = group.background()
    assert 0 == join.message.member_epoch


@pytest.mark.parametrize(("begun", "error"), [(False, None), (True, None), (True, ValueError("no"))])
def test_fenced_in_the_middle_of_a_reconciliation(begun: bool, error: Exception | None) -> None:
    """The steps are given up: all is lost but for what on_revoke was called with, whatever came of it; what was coming
    is not announced."""
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
    """An on_revoke that raised is to be called again: until then its partitions are the listener's, and may be lost."""
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
def test_what_was_never_given_is_not_lost(begun: bool) -> None:
    """Fenced before on_assign was called: no on_lost for partitions that the listener never heard of; while it runs:
    on_lost."""
    group = ConsumerGroupHarness()
    group.answer(group.beat(), 1, {"t": [0]})
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


def test_a_listener_that_raises_does_not_stop_the_rejoin() -> None:
    """What is lost is lost, whatever on_lost says."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    group.refuse(group.beat(), 25)
    group.run_callbacks(raising=ValueError("no"))
    assert ([], S.JOINING) == (owned(group), group.state)


# --- the caller that does not poll ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_an_idle_caller_leaves_and_comes_back(instance: str | None, epoch: int) -> None:
    """After max_poll_interval_ms the heartbeat leaves; the next poll hears on_lost and joins again."""
    group = ConsumerGroupHarness(group_instance_id=instance, max_poll_interval_ms=60_000)
    group.joined({"t": [0]})
    group.calls.clear()
    group.subscription.seek(TopicPartition("t", 0), 3)
    for _ in range(11):
        group.now += INTERVAL_MS
        for beat in group.background():
            group.answer(beat, 1)
    assert S.STABLE is group.state
    group.now += INTERVAL_MS
    (leave,) = group.background()
    assert (epoch, S.STALE) == (leave.message.member_epoch, group.state)
    assert not group.subscription.is_fetchable(TopicPartition("t", 0))
    group.answer(leave, epoch)
    group.now += 10 * INTERVAL_MS
    assert [] == group.background()
    assert [] == group.poll()
    group.run_callbacks()
    assert [(LOST, tps("t", 0))] == group.calls
    assert 0 == group.beat().message.member_epoch


def test_an_idle_caller_without_a_coordinator_is_stale_at_once() -> None:
    """Nobody can be told; the session runs out at the coordinator."""
    group = ConsumerGroupHarness(max_poll_interval_ms=60_000)
    group.joined({"t": [0]})
    group.coordinator.mark_unknown("gone", group.now)
    group.now += 60_000
    assert [] == group.background()
    assert S.STALE is group.state


def test_an_idle_caller_fenced_before_it_left() -> None:
    """The response to a heartbeat in flight fences the member while it leaves: it need not leave any more, and the next
    poll hears on_lost and joins; what it is given again is fetched."""
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
    group.subscription.seek(TopicPartition("t", 0), 3)
    assert group.subscription.is_fetchable(TopicPartition("t", 0))


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_an_idle_caller_that_closes_before_it_left(instance: str | None, epoch: int) -> None:
    """The poll interval is exceeded while a heartbeat is in flight, and the consumer closes before its response: the
    heartbeat that leaves is sent by close(). Without it a static member's successor would be refused."""
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
    """A stale member that unsubscribes hears on_lost at once; it has left already, and joins when it subscribes."""
    group = ConsumerGroupHarness(max_poll_interval_ms=60_000)
    group.joined({"t": [0]})
    group.now += 60_000
    (leave,) = group.background()
    group.answer(leave, -1)
    callback = group.membership.leave_callback()
    assert callback is not None
    assert (LOST, tps("t", 0)) == (callback.kind.value, callback.partitions)
    assert group.membership.leave("test", group.now) is None
    group.subscription.unsubscribe()
    assert ([], []) == (owned(group), group.poll())
    group.subscription.subscribe(["u"])
    assert 0 == group.beat().message.member_epoch


# --- leaving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance", "leave_group", "epoch"),
    [
        (None, None, -1),
        (None, True, -1),
        (None, False, None),
        ("i", None, -2),
        ("i", True, -1),
        ("i", False, -2),
    ],
)
def test_the_epoch_that_leaves(instance: str | None, leave_group: bool | None, epoch: int | None) -> None:
    """-1 leaves for good, -2 says that a static member will be back, None says nothing."""
    group = ConsumerGroupHarness(group_instance_id=instance)
    group.joined({"t": [0]})
    callback = group.membership.leave_callback()
    assert callback is not None
    assert (REVOKED, tps("t", 0)) == (callback.kind.value, callback.partitions)
    request = group.membership.leave("test", group.now, leave_group)
    assert epoch == (None if request is None else request.message.member_epoch)
    assert (S.UNSUBSCRIBED, []) == (group.state, owned(group))


def test_leaving_before_the_join_is_answered() -> None:
    """Nothing is owned, so nothing is revoked; the coordinator is told in case the join arrived."""
    group = ConsumerGroupHarness()
    join = group.beat()
    assert group.membership.leave_callback() is None
    request = group.membership.leave("test", group.now)
    assert request is not None
    assert -1 == request.message.member_epoch
    group.answer(join, 1, {"t": [0]})
    assert (S.UNSUBSCRIBED, []) == (group.state, owned(group))


def test_leaving_what_was_never_joined() -> None:
    """There is nothing to say."""
    group = ConsumerGroupHarness()
    assert group.membership.leave_callback() is None
    assert group.membership.leave("test", group.now) is None
    assert S.UNSUBSCRIBED is group.state


def test_leaving_while_fenced_says_lost() -> None:
    """The ownership is already gone."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    group.refuse(group.beat(), 110)
    callback = group.membership.leave_callback()
    assert callback is not None
    assert LOST == callback.kind.value
    assert group.membership.leave("test", group.now) is None
    assert S.UNSUBSCRIBED is group.state


def test_unsubscribed_and_subscribed_again_joins_anew() -> None:
    """The same object may come back."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.membership.leave_callback()
    request = group.membership.leave("test", group.now)
    assert request is not None
    group.answer(request, -1)
    group.subscription.unsubscribe()
    group.subscription.subscribe(["u"])
    join = group.beat()
    assert (0, ["u"]) == (join.message.member_epoch, join.message.subscribed_topic_names)


def test_a_lost_leave_does_not_come_back() -> None:
    """Leaving is said once; whatever happens to it, the member has left."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.membership.leave_callback()
    request = group.membership.leave("test", group.now)
    assert request is not None
    group.break_connection(request, BrokerConnectionError("gone"))
    group.now += 10 * INTERVAL_MS
    assert [] == group.background()


@pytest.mark.parametrize("code", [15, 25, 69, 110, 128])
@pytest.mark.parametrize("told", [True, False])
def test_late_answers_of_a_former_membership_are_ignored(code: int, told: bool) -> None:
    """What the coordinator answers to a leave, or to a heartbeat before it, ends no membership that began since: after
    GROUP_ID_NOT_FOUND, for one, the member would be FATAL."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    former = [group.beat()]
    group.membership.leave_callback()
    if told:
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
    """A consumer that unsubscribes and assigns partitions itself needs no membership; one that subscribes again hears
    at once that it cannot join (Java says it once, and then joins no more)."""
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


def test_topics_no_longer_subscribed_stop_at_once() -> None:
    """Before the coordinator knows of the change, nothing of the topic is fetched any more."""
    group = ConsumerGroupHarness("t", "u")
    group.joined({"t": [0], "u": [0]})
    for topic in ("t", "u"):
        group.subscription.seek(TopicPartition(topic, 0), 1)
    group.subscription.subscribe(["t"])
    group.poll()
    assert (True, False) == tuple(group.subscription.is_fetchable(TopicPartition(x, 0)) for x in ("t", "u"))


def test_a_client_pattern_is_matched_before_joining() -> None:
    """The first heartbeat names the topics that match, so it waits for the metadata of all topics."""
    group = ConsumerGroupHarness(subscribe=False)
    group.subscription.subscribe_pattern(re.compile("t.*"))
    assert [] == group.poll()
    (request,) = group.metadata.poll(group.now).requests
    assert request.message.topics is None
    group.reply(request, MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)]))
    group.subscription.subscribe_matched(["t1"])
    assert ["t1"] == group.beat().message.subscribed_topic_names


def test_commits_carry_the_epoch_of_the_moment() -> None:
    """A commit made while the epoch moves on is sent with the newest one."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.commits.commit({TopicPartition("t", 0): OffsetAndMetadata(3)}, group.now + 60_000)
    group.now += INTERVAL_MS
    (beat,) = group.heartbeat.poll(group.now).requests
    group.answer(beat, 9)
    (commit,) = group.commits.poll(group.now).requests
    assert 9 == commit.message.generation_id_or_member_epoch
