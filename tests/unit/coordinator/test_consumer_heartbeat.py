"""Heartbeats of KIP-848: their fields, when they are sent, and the effect of each response."""

from __future__ import annotations

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.coordinator.consumer_protocol.state import MemberState
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from kconsumer.types import Node, SubscriptionPattern
from support.harnesses.consumer_harness import INTERVAL_MS, ConsumerGroupHarness, topic_id

pytestmark = pytest.mark.network_thread


def fields(request: UnsentRequest) -> dict[str, object]:
    """Returns the fields of a heartbeat that are set, with partitions by topic id."""
    message = request.message
    names = ("rebalance_timeout_ms", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor", "rack_id")
    said = {name: getattr(message, name) for name in names}
    said["partitions"] = (
        None if message.topic_partitions is None else {t.topic_id: t.partitions for t in message.topic_partitions}
    )
    return {name: value for name, value in said.items() if value not in (None, -1)}


def test_the_first_heartbeat_has_every_field() -> None:
    """The first heartbeat is sent at once, with epoch 0 and every field."""
    group = ConsumerGroupHarness(client_rack="r1", group_remote_assignor="range", group_protocol="consumer")
    request = group.beat()
    assert ("g", "me", 0, "+1") == (
        request.message.group_id,
        request.message.member_id,
        request.message.member_epoch,
        request.node,
    )
    assert {
        "rebalance_timeout_ms": 300_000,
        "subscribed_topic_names": ["t"],
        "server_assignor": "range",
        "rack_id": "r1",
        "partitions": {},
    } == fields(request)


def test_after_a_failure_every_field_is_sent_again() -> None:
    """After a failure the next heartbeat has every field: the coordinator may have missed the last one, and repeats an
    assignment only in response to a full heartbeat.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    group.break_connection(group.beat(), BrokerConnectionError("gone"))
    assert group.coordinator.connection_id is None
    group.coordinator.coordinator = group.cluster.nodes[1]
    group.now += 200
    request = group.beat()
    assert 1 == request.message.member_epoch
    assert {
        "rebalance_timeout_ms": 300_000,
        "subscribed_topic_names": ["t"],
        "partitions": {topic_id("t"): [0]},
    } == fields(request)


def test_a_changed_subscription_is_sent_at_once() -> None:
    """After a change of the subscription the next heartbeat is sent at once, and has only the topics."""
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.subscription.subscribe(["t", "u"])
    assert {"subscribed_topic_names": ["t", "u"]} == fields(group.beat())


@pytest.mark.parametrize("leave_sent", [True, False])
def test_a_member_that_joins_by_names_clears_the_pattern_it_had_before(leave_sent: bool) -> None:
    """A join by names clears the pattern explicitly. If the coordinator missed that the member left, it would otherwise
    keep the pattern of this member id and assign topics that are not subscribed.
    """
    group = ConsumerGroupHarness(subscribe=False)
    group.subscription.subscribe_broker_pattern(SubscriptionPattern("t.*"))
    group.joined({"t": [0]})
    if not leave_sent:
        group.coordinator.mark_unknown("gone", group.now)
    group.membership.leave_callback()
    leave = group.membership.leave("test", group.now)
    if leave is not None:
        group.break_connection(leave, BrokerConnectionError("gone"))
    group.subscription.unsubscribe()
    group.subscription.subscribe(["u"])
    group.coordinator.coordinator = Node(1, "broker", 9092)
    beat = group.beat()
    message = beat.message
    assert (0, ["u"], "") == (message.member_epoch, message.subscribed_topic_names, message.subscribed_topic_regex)
    group.refuse(beat, 14)
    group.now += INTERVAL_MS
    assert "" == group.beat().message.subscribed_topic_regex


def test_a_broker_without_patterns_says_so() -> None:
    """For a SubscriptionPattern the error has other advice."""
    group = ConsumerGroupHarness(subscribe=False)
    group.subscription.subscribe_broker_pattern(SubscriptionPattern("t.*"))
    group.break_connection(group.beat(), UnsupportedVersionError("version 0 at most"))
    assert "SubscriptionPattern" in str(group.membership.take_error())


@pytest.mark.parametrize("error", [AuthenticationError("no", code=58), ProtocolError("garbage"), KafkaError("bug")])
def test_an_error_that_may_be_temporary_does_not_end_the_membership(error: KafkaError) -> None:
    """A wrong password may be corrected later, and a response that cannot be parsed may be the only one: poll raises
    the error, and heartbeats continue after the backoff.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    group.now += INTERVAL_MS
    group.break_connection(group.beat(), error)
    assert error is group.heartbeat.take_error()
    assert group.membership.take_error() is None
    assert MemberState.STABLE is group.state
    group.now += INTERVAL_MS
    group.break_connection(group.beat(), error)
    group.now += INTERVAL_MS
    group.refuse(group.beat(), 14)
    assert (None if isinstance(error, AuthenticationError) else error) is group.heartbeat.take_error()


def test_heartbeats_continue_while_the_last_on_revoke_runs() -> None:
    """A leaving member sends heartbeats until its on_revoke has returned, follows the member epoch, and takes no new
    assignment. Otherwise the coordinator would give the partitions to another member during a long callback.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0]})
    assert group.membership.leave_callback() is not None
    group.now += INTERVAL_MS
    (beat,) = group.background()
    group.respond(beat, 7, {"t": [0, 1]})
    assert (MemberState.PREPARE_LEAVING, 7) == (group.state, group.member.member_epoch)
    group.now += INTERVAL_MS
    (beat,) = group.background()
    assert 7 == beat.message.member_epoch
    leave = group.membership.leave("test", group.now)
    assert leave is not None
    group.respond(beat, 8)
    assert (-1, MemberState.UNSUBSCRIBED) == (leave.message.member_epoch, group.state)
