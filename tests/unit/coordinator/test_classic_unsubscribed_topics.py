"""Classic protocol: once subscribe() has returned, no topic that it left out is fetched or returned."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer.assignors import Assignor
from kconsumer.errors import BrokerConnectionError
from kconsumer.schema.classic_group import JoinGroupResponse
from support.harnesses.group_harness import FirstTakesAll, FirstTakesAllCooperative, GroupHarness, tps

KEPT, DROPPED = *tps("t", 0), *tps("u", 0)


def nothing(_: GroupHarness) -> None:
    """Leave the member stable."""


def join_in_flight(group: GroupHarness) -> None:
    """Bring the member to a JoinGroup in flight, after another member joined."""
    group.member.request_rejoin("test")
    group.until("JoinGroup")


def sync_in_flight(group: GroupHarness) -> None:
    """Bring the member to a SyncGroup in flight."""
    group.member.request_rejoin("test")
    group.join(generation=2)


def assignment_received(group: GroupHarness) -> None:
    """Let the SyncGroup response arrive outside poll."""
    group.member.request_rejoin("test")
    group.respond(group.join(generation=2), group.synced(KEPT, DROPPED))


def coordinator_unknown(group: GroupHarness) -> None:
    """Make the coordinator unknown, so that it is looked up."""
    group.coordinator.mark_unknown("test", group.now)


def backing_off(group: GroupHarness) -> None:
    """Fail a JoinGroup, so that the member is in backoff."""
    group.member.request_rejoin("test")
    group.respond(group.until("JoinGroup"), JoinGroupResponse(error_code=14))


def connection_lost(group: GroupHarness) -> None:
    """Lose the connection during the join, and find the coordinator again."""
    group.member.request_rejoin("test")
    group.break_connection(group.until("JoinGroup"), BrokerConnectionError("reset"))
    group.find_coordinator()


@pytest.mark.parametrize("assignor", [FirstTakesAll(), FirstTakesAllCooperative()], ids=["eager", "cooperative"])
@pytest.mark.parametrize(
    "moment",
    [nothing, join_in_flight, sync_in_flight, assignment_received, coordinator_unknown, backing_off, connection_lost],
)
def test_topic_left_out_is_not_fetchable(assignor: Assignor, moment: Callable[[GroupHarness], None]) -> None:
    """In every phase of a rebalance, a topic that is left out is not fetchable from then on. If it is subscribed to
    again before the group is notified, it is fetchable if still owned.
    """
    group = GroupHarness(assignor=assignor, topics=("t", "u"))
    group.stable(KEPT, DROPPED)
    for tp in (KEPT, DROPPED):
        group.consume(tp, 5)
    moment(group)
    owned = [tp for tp in (KEPT, DROPPED) if group.assignment.is_fetchable(tp)]
    group.subscription.subscribe(["t"])
    assert [KEPT] * (KEPT in owned) == group.assignment.fetchable()
    group.subscription.subscribe(["t", "u"])
    assert owned == group.assignment.fetchable()
    group.subscription.subscribe(["t"])
    for _ in range(5):
        group.poll()
        group.now += 1
        assert not group.assignment.is_fetchable(DROPPED)
    group.find_coordinator()
    group.now += 2000
    for _ in range(5):
        group.poll()
        group.run_callbacks()
        assert not group.assignment.is_fetchable(DROPPED)
