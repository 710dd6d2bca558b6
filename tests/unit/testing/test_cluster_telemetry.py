"""Client telemetry of the cluster model: which metrics it requests, and which pushes it accepts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
from kconsumer.telemetry.compressors import COMPRESSORS
from kconsumer.telemetry.otlp import DataPoint, Metric, encode_metrics
from kconsumer.testing import FakeCluster
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.telemetry import ClientMetrics
from support.fakes.cluster_client import ClusterClient

INTERVAL_MS = 1000
DATA = encode_metrics({"group_id": "g"}, [Metric("m", None, [DataPoint([("topic", "t")], 2.0, 5)])])


class Case:
    """A cluster that requests metrics, and a client."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = Cluster(settings=Settings(metric_reporters=("recorder",), **settings))
        self.clock = VirtualClock()
        self.client = self.connect()
        self.subscribe("a")

    def connect(self, client_id: str = "c") -> ClusterClient:
        """Returns another connection."""
        return ClusterClient(self.cluster, self.clock, client_id=client_id)

    def subscribe(self, *metrics: str, name: str = "s", interval_ms: int = INTERVAL_MS, client: str = ".*") -> None:
        """Request metrics."""
        self.cluster.telemetry.subscribe(name, ClientMetrics(metrics, interval_ms, re.compile(client)))

    def get(self, instance_id: bytes = bytes(16), client: ClusterClient | None = None) -> Any:
        """Returns the response to GetTelemetrySubscriptions."""
        request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        return (client or self.client).call(GET_TELEMETRY_SUBSCRIPTIONS, 0, request)

    def push(self, got: Any, **fields: Any) -> int:
        """Returns the error code of PushTelemetry with the id and the subscription of a response."""
        known = {"client_instance_id": got.client_instance_id, "subscription_id": got.subscription_id, "metrics": DATA}
        error: int = self.client.call(PUSH_TELEMETRY, 0, PushTelemetryRequest(**{**known, **fields})).error_code
        return error


def test_subscriptions_of_a_client() -> None:
    """A client gets the metrics of all subscriptions that match it, and the shortest of their intervals."""
    case = Case()
    case.subscribe("b", name="other", interval_ms=500)
    case.subscribe("c", name="third", interval_ms=100, client="d")
    found = case.get()
    assert (["a", "b"], 500, 1 << 20, True) == (
        found.requested_metrics,
        found.push_interval_ms,
        found.telemetry_max_bytes,
        found.delta_temporality,
    )
    assert bytes(16) != found.client_instance_id
    assert ["a", "b", "c"] == case.get(client=case.connect("d")).requested_metrics
    case.subscribe("*", name="third")
    assert ["*"] == case.get(found.client_instance_id).requested_metrics
    for name in ("s", "other", "third"):
        case.cluster.telemetry.subscribe(name, None)
    nothing = case.get(found.client_instance_id)
    assert ([], 300_000) == (nothing.requested_metrics, nothing.push_interval_ms)


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_pushes(codec: int) -> None:
    """A push with any codec is kept, with its client."""
    case = Case()
    got = case.get()
    assert 0 == case.push(got, compression_type=codec, metrics=COMPRESSORS[codec](DATA))
    (pushed,) = case.cluster.telemetry.pushed
    assert ("c", False, {"group_id": "g"}, 2.0) == (
        pushed.client_id,
        pushed.terminating,
        pushed.resource,
        pushed.value("m", topic="t"),
    )


def test_requests_before_the_end_of_the_interval() -> None:
    """A second request within the interval is throttled, except for the first push and a last one."""
    case = Case()
    got = case.get()
    assert Errors.THROTTLING_QUOTA_EXCEEDED == case.get(got.client_instance_id).error_code
    assert [0, Errors.THROTTLING_QUOTA_EXCEEDED] == [case.push(got), case.push(got)]
    case.clock.advance(INTERVAL_MS)
    assert [0, 0] == [case.push(got), case.push(got, terminating=True)]
    case.clock.advance(INTERVAL_MS)
    assert Errors.INVALID_REQUEST == case.push(got)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_instance_id": bytes(16)}, Errors.INVALID_REQUEST),
        ({"subscription_id": -1}, Errors.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, Errors.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(101)}, Errors.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\x0a\x7f"}, Errors.INVALID_RECORD),
        ({"compression_type": 4}, Errors.INVALID_RECORD),
    ],
)
def test_refused_pushes(fields: dict[str, Any], error: int) -> None:
    """Each fault of a push has Kafka's error code."""
    case = Case(telemetry_max_bytes=100)
    assert error == case.push(case.get(), **fields)
    assert [] == case.cluster.telemetry.pushed


def test_methods_of_fake_cluster() -> None:
    """Metrics can be requested only of a cluster with a plugin, in an interval that Kafka allows."""
    with FakeCluster() as cluster, pytest.raises(ValueError, match="metric_reporters"):
        cluster.request_metrics("s")
    with FakeCluster(metric_reporters=("recorder",)) as cluster:
        with pytest.raises(ValueError, match="interval_ms"):
            cluster.request_metrics("s", interval_ms=99)
        cluster.request_metrics("s", client_id="a.*")
        cluster.request_metrics("s", metrics=())
        assert [] == cluster.pushed_metrics()
