"""The consumer-coordinator-metrics group: what each response and each rebalance records."""

from __future__ import annotations

from math import isnan

import pytest

from kconsumer.coordinator.metrics import GROUP, GroupMetrics
from kconsumer.errors import BrokerConnectionError
from kconsumer.metrics.registry import Metrics
from kconsumer.schema.classic_group import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from kconsumer.types import OffsetAndMetadata
from support.harnesses.group_harness import GroupHarness, committed, tps


def metric(group: GroupHarness, name: str) -> float:
    """Returns the value of a metric now."""
    return {m.name: value for m, value in group.metrics.snapshot(group.now).items() if m.group == GROUP}[name]


def test_a_heartbeat() -> None:
    """The response of a heartbeat is counted and timed; the time since the last heartbeat is available from the request
    on.
    """
    group = GroupHarness()
    group.stable(*tps("t", 0))
    assert -1 == metric(group, "last-heartbeat-seconds-ago")
    group.now += 3000
    (request,) = group.heartbeat.poll(group.now).requests
    assert (0, 0) == (metric(group, "heartbeat-total"), metric(group, "last-heartbeat-seconds-ago"))
    group.respond(request, HeartbeatResponse(error_code=27), took_ms=2500)
    assert (1, 2500) == (metric(group, "heartbeat-total"), metric(group, "heartbeat-response-time-max"))
    assert 2 == metric(group, "last-heartbeat-seconds-ago")
    assert metric(group, "heartbeat-rate") > 0


def test_a_heartbeat_without_a_response() -> None:
    """A lost connection is not recorded as a response."""
    group = GroupHarness()
    group.stable(*tps("t", 0))
    group.now += 3000
    (request,) = group.heartbeat.poll(group.now).requests
    group.break_connection(request, BrokerConnectionError("gone"))
    assert 0 == metric(group, "heartbeat-total")
    assert isnan(metric(group, "heartbeat-response-time-max"))


def test_a_rebalance() -> None:
    """The time from the first JoinGroup to the assignment is recorded, and the number of joins and syncs with their
    latencies.
    """
    group = GroupHarness()
    assert -1 == metric(group, "last-rebalance-seconds-ago")
    group.respond(group.until("JoinGroup"), group.joined(leader=False), took_ms=100)
    group.respond(group.until("SyncGroup"), group.synced(*tps("t", 0)), took_ms=30)
    names = ("join-total", "join-time-avg", "join-time-max", "sync-total", "sync-time-avg", "sync-time-max")
    assert [1, 100, 100, 1, 30, 30] == [metric(group, name) for name in names]
    assert (1, 130, 130, 130) == tuple(
        metric(group, f"rebalance-{what}") for what in ("total", "latency-avg", "latency-max", "latency-total")
    )
    group.now += 5000
    assert 5 == metric(group, "last-rebalance-seconds-ago")
    assert pytest.approx(3600 / 35) == metric(group, "rebalance-rate-per-hour")
    assert 0 == metric(group, "failed-rebalance-total")


def test_a_response_with_a_member_id_is_no_failure() -> None:
    """A first response that only contains a member id (KIP-394) is not counted."""
    group = GroupHarness()
    group.respond(group.until("JoinGroup"), JoinGroupResponse(error_code=79, member_id="me"), took_ms=10)
    group.respond(group.until("JoinGroup"), group.joined(leader=False), took_ms=10)
    assert (0, 1) == (metric(group, "failed-rebalance-total"), metric(group, "join-total"))


@pytest.mark.parametrize("code", [15, 27, 25, 23])
def test_failed_joins(code: int) -> None:
    """Any error of a JoinGroup counts as one failure, and the time of the rebalance continues."""
    group = GroupHarness()
    group.respond(group.until("JoinGroup"), JoinGroupResponse(error_code=code), took_ms=10)
    assert 1 == metric(group, "failed-rebalance-total")
    group.find_coordinator()
    group.membership.take_error()
    group.now += 1000
    group.respond(group.until("JoinGroup"), group.joined(leader=False), took_ms=10)
    group.respond(group.until("SyncGroup"), group.synced(), took_ms=10)
    assert (1, 1030) == (metric(group, "failed-rebalance-total"), metric(group, "rebalance-latency-max"))


def test_failed_syncs_and_lost_connections() -> None:
    """An error of a SyncGroup and a lost connection count as failures."""
    group = GroupHarness()
    group.respond(group.join(), SyncGroupResponse(error_code=27))
    group.break_connection(group.until("JoinGroup"), BrokerConnectionError("gone"))
    assert 2 == metric(group, "failed-rebalance-total")
    assert metric(group, "failed-rebalance-rate-per-hour") > 0
    assert 0 == metric(group, "rebalance-total")


def test_leaving_ends_a_rebalance() -> None:
    """After the member left, the next rebalance is timed from its own start."""
    group = GroupHarness()
    join = group.until("JoinGroup")
    group.membership.leave("test", group.now)
    group.now += 60_000
    group.respond(join, group.joined(leader=False))
    group.respond(group.join(), group.synced(), took_ms=10)
    assert 10 == metric(group, "rebalance-latency-max")


def test_commits() -> None:
    """Each response to an OffsetCommit is counted and timed, with or without an error."""
    group = GroupHarness()
    group.stable(*tps("t", 0))
    for code, took_ms in ((0, 20), (12, 40)):
        group.commits.commit({tps("t", 0)[0]: OffsetAndMetadata(5)})
        (request,) = group.commits.poll(group.now).requests
        group.respond(request, committed(request, code), took_ms=took_ms)
    assert [2, 30, 40] == [metric(group, f"commit-{what}") for what in ("total", "latency-avg", "latency-max")]
    assert metric(group, "commit-rate") > 0


def test_callbacks_and_assignment() -> None:
    """The engine records how long the listener took; the number of partitions is read at each snapshot."""
    metrics = Metrics()
    group = GroupMetrics(metrics)
    partitions: list[int] = []
    group.watch_assignment(lambda: partitions)
    for kind, took_ms in (("assigned", 5.0), ("assigned", 7.0), ("lost", 1.0)):
        group.callback_ran(kind, took_ms, 100.0)
    partitions += [1, 2, 3]
    got = {m.name: value for m, value in metrics.snapshot(100.0).items()}
    assert (6.0, 7.0) == (got["partition-assigned-latency-avg"], got["partition-assigned-latency-max"])
    assert 1.0 == got["partition-lost-latency-max"]
    assert isnan(got["partition-revoked-latency-avg"])
    assert 3.0 == got["assigned-partitions"]
