"""Metrics of polls and commits, and app-info, which the engine records."""

from __future__ import annotations

from math import isnan

import pytest

from kconsumer import Consumer
from kconsumer._version import VERSION
from kconsumer.engine.metrics import ConsumerMetrics, add_app_info
from kconsumer.metrics.registry import Metrics
from support.harnesses.inside import parts_of


def read(metrics: Metrics, name: str, now: float) -> float:
    """Returns the value of a metric at `now`."""
    return {metric.name: value for metric, value in metrics.snapshot(now).items()}[name]


def test_polls_that_wait() -> None:
    """The time between polls, the fraction of it that polls waited, and the time since the last poll are recorded (Java
    testPollTimeMetrics).
    """
    metrics = Metrics()
    polls = ConsumerMetrics(metrics).polls
    assert -1 == read(metrics, "last-poll-seconds-ago", 0.0)
    assert isnan(read(metrics, "time-between-poll-avg", 0.0))
    polls.poll_began(1_000.0)
    polls.wait_ended(1_050.0)
    polls.settle()
    assert (0, 0) == (read(metrics, "time-between-poll-avg", 1_050.0), read(metrics, "time-between-poll-max", 1_050.0))
    assert 1 == read(metrics, "poll-idle-ratio-avg", 1_050.0)
    polls.poll_began(6_000.0)
    polls.wait_ended(6_000.0)  # found its data at once: no fraction is recorded
    assert (2_500, 5_000) == (
        read(metrics, "time-between-poll-avg", 6_000.0),
        read(metrics, "time-between-poll-max", 6_000.0),
    )
    polls.poll_began(7_000.0)
    polls.wait_ended(8_000.0)
    polls.settle()
    polls.settle()
    assert 0.75 == read(metrics, "poll-idle-ratio-avg", 8_000.0)
    assert 3 == read(metrics, "last-poll-seconds-ago", 10_000.0)


def test_quick_polls() -> None:
    """Polls that find buffered data are recorded as polls that did not wait."""
    metrics = Metrics()
    polls = ConsumerMetrics(metrics).polls
    polls.poll_began(1_000.0)
    polls.wait_ended(1_010.0)
    for now in (1_020.0, 1_025.0, 1_040.0):
        polls.quick_poll(now)
    polls.poll_began(1_100.0)
    assert pytest.approx(100 / 5) == read(metrics, "time-between-poll-avg", 1_100.0)  # the first counts 0
    assert 60 == read(metrics, "time-between-poll-max", 1_100.0)
    assert 0.25 == read(metrics, "poll-idle-ratio-avg", 1_100.0)
    polls.quick_poll(1_170.0)
    polls.settle()
    assert (70, 0) == (
        read(metrics, "time-between-poll-max", 1_170.0),
        read(metrics, "last-poll-seconds-ago", 1_170.0),
    )


def test_blocking_commits() -> None:
    """The time that commit() and committed() take is recorded in nanoseconds."""
    metrics = Metrics()
    calls = ConsumerMetrics(metrics)
    calls.commit_ended(100.0, 103.0)
    calls.commit_ended(200.0, 201.0)
    calls.committed_ended(300.0, 300.5)
    assert 4e6 == read(metrics, "commit-sync-time-ns-total", 400.0)
    assert 5e5 == read(metrics, "committed-time-ns-total", 400.0)


def test_app_info() -> None:
    """Texts are tags; the start time and the number of metrics are values."""
    metrics = Metrics()
    add_app_info(metrics, 1_700_000_000_000)
    found = {metric.name: (value, dict(metric.tags)) for metric, value in metrics.snapshot(0.0).items()}
    assert (1.0, {"version": VERSION}) == found["version"]
    assert (1.0, {"commit-id": "unknown"}) == found["commit-id"]
    assert 1_700_000_000_000 == found["start-time-ms"][0]
    assert 4 == found["count"][0]


def test_every_metric_has_the_client_id() -> None:
    """Every metric of a consumer that has not connected has the client id; without a group there are no
    group metrics.
    """
    for group_id in (None, "g"):
        with Consumer(bootstrap_servers="localhost:1", group_id=group_id, client_id="me") as consumer:
            names = list(consumer.metrics())
        assert {"me"} == {dict(name.tags)["client-id"] for name in names}
        groups = {"app-info", "consumer-metrics", "consumer-fetch-manager-metrics", "kafka-metrics-count"}
        groups |= {"consumer-coordinator-metrics"} if group_id else set()
        assert groups == {name.group for name in names}
        assert all(name.description for name in names)


def test_sampling_is_configured() -> None:
    """metrics_num_samples and metrics_sample_window_ms reach the metrics."""
    options = {"metrics_num_samples": 5, "metrics_sample_window_ms": 100}
    with Consumer(bootstrap_servers="localhost:1", **options) as consumer:
        assert "5 windows of 100 ms" in repr(parts_of(consumer).metrics)
