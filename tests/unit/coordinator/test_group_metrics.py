"""The consumer-coordinator-metrics group: what each response and each rebalance records."""

from __future__ import annotations

from math import isnan

import pytest

from kconsumer.coordinator.metrics import GROUP, GroupMetrics
from kconsumer.metrics.registry import Metrics
from kconsumer.schema.classic_group import JoinGroupResponse
from support.harnesses.group_harness import GroupHarness, tps


def metric(group: GroupHarness, name: str) -> float:
    """Returns the value of a metric now."""
    return {m.name: value for m, value in group.metrics.snapshot(group.now).items() if m.group == GROUP}[name]


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


def test_a_response_with_a_member_id_is_no_failure() -> None:
    """A first response that only contains a member id (KIP-394) is not counted."""
    group = GroupHarness()
    group.respond(group.until("JoinGroup"), JoinGroupResponse(error_code=79, member_id="me"), took_ms=10)
    group.respond(group.until("JoinGroup"), group.joined(leader=False), took_ms=10)
    assert (0, 1) == (metric(group, "failed-rebalance-total"), metric(group, "join-total"))
