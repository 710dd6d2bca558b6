"""Client telemetry (KIP-714) of whole consumers with the cluster model: what is pushed, and what it never does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer._internal.requests import UnsentRequest
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
from kconsumer.net.connection import Connection
from kconsumer.telemetry.manager import TelemetryManager
from kconsumer.telemetry.state import TelemetryState
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES
from support.harnesses.inside import parts_of

LIMIT_S = 20.0
INTERVAL_MS = 100
PREFIX = "org.apache.kafka.consumer.fetch.manager."
READ = PREFIX + "records.consumed.total"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster that requests all metrics of the consumer."""
    with FakeCluster(metric_reporters=("recorder",)) as started:
        started.create_topic("t")
        started.produce("t", [str(number) for number in range(5)])
        started.request_metrics("all", interval_ms=INTERVAL_MS)
        yield started


@pytest.fixture(params=ENGINES)
def consumer(request: pytest.FixtureRequest, cluster: FakeCluster) -> Iterator[Consumer]:
    """A member of a group that has read all records."""
    options = {"group_id": "g", "auto_offset_reset": "earliest", "client_id": "c", **ENGINES[request.param]}
    with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, **options) as made:
        poll_until(made, lambda: made.assignment() and made.position(("t", 0)) == 5)
        yield made


def poll_until(consumer: Consumer, condition: Callable[[], Any]) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        manager = telemetry(consumer)
        assert time.monotonic() < deadline, f"{manager}, due at {manager.due} ms, now {time.monotonic() * 1000} ms"
        consumer.poll(0.02)


def telemetry(consumer: Consumer) -> TelemetryManager:
    """Returns the manager of the consumer's telemetry."""
    return parts_of(consumer).telemetry


def test_metrics_are_pushed(cluster: FakeCluster, consumer: Consumer) -> None:
    """Metrics are pushed in each interval, and once more when the consumer is closed."""
    poll_until(consumer, lambda: sum(push.value(READ) for push in cluster.pushed_metrics()) == 5)
    instance_id, member_id = consumer.client_instance_id(), consumer.group_metadata().member_id
    consumer.close()
    pushes = cluster.pushed_metrics()
    assert {(instance_id, "c")} == {(push.client_instance_id, push.client_id) for push in pushes}
    assert [False] * (len(pushes) - 1) + [True] == [push.terminating for push in pushes]
    assert {"group_id": "g", "group_member_id": member_id} == pushes[-1].resource
    assert 5.0 == pushes[-1].value(PREFIX + "records.lead", topic="t", partition="0")
    assert 5.0 == sum(push.value(READ) for push in pushes)


def test_pushes_continue(cluster: FakeCluster, consumer: Consumer) -> None:
    """A consumer in its steady state continues to push, and to read."""
    poll_until(consumer, cluster.pushed_metrics)
    before = len(cluster.pushed_metrics())
    poll_until(consumer, lambda: len(cluster.pushed_metrics()) >= before + 3)
    cluster.produce("t", ["more"])
    poll_until(consumer, lambda: consumer.position(("t", 0)) == 6)


@pytest.mark.parametrize("api", ["GetTelemetrySubscriptions", "PushTelemetry"])
@pytest.mark.parametrize("fault", ["encoder", "handler", "error"])
def test_faults_are_not_raised(
    cluster: FakeCluster, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, api: str, fault: str
) -> None:
    """If an encoder or a handler raises, or the broker refuses a request, telemetry ends, and polls continue."""
    calls = []

    def broken(*_: object) -> None:
        calls.append(1)
        raise RuntimeError("broken")

    if fault == "encoder":
        send = Connection.send

        def faulty(self: Connection, request: UnsentRequest, now: float) -> None:
            if request.api.name == api:
                broken()
            send(self, request, now)

        monkeypatch.setattr(Connection, "send", faulty)
    elif fault == "handler":
        name = "_on_push" if api == "PushTelemetry" else "_on_subscription"
        monkeypatch.setattr(TelemetryManager, name, broken)
    else:
        cluster.fail_next(api, "INVALID_REQUEST")
    cluster.request_metrics("other", interval_ms=INTERVAL_MS)  # so that the subscription is requested again
    poll_until(consumer, lambda: telemetry(consumer).state is TelemetryState.TERMINATED)
    assert calls or fault == "error"
    cluster.produce("t", ["more"])
    poll_until(consumer, lambda: consumer.position(("t", 0)) == 6)
    consumer.commit()


def test_close_does_not_wait_long(cluster: FakeCluster, consumer: Consumer) -> None:
    """If the broker does not respond to the last push, close() ends within its timeout."""
    poll_until(consumer, cluster.pushed_metrics)
    cluster.delay("PushTelemetry", LIMIT_S)
    began = time.monotonic()
    consumer.close(timeout=0.2)
    assert time.monotonic() - began < LIMIT_S / 4


def test_share_consumer(cluster: FakeCluster) -> None:
    """A share consumer pushes its metrics, the last ones when it is closed: also bytes, sizes and throttle times."""
    cluster.configure_group("g", share_auto_offset_reset="earliest")
    with ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer:
        instance_id = consumer.client_instance_id()
        deadline = time.monotonic() + LIMIT_S
        read = 0
        while not (cluster.pushed_metrics() and read):
            assert time.monotonic() < deadline
            read += len(consumer.poll(0.02))
    prefix = "org.apache.kafka.consumer.share.fetch.manager."
    pushes = cluster.pushed_metrics()
    for name, value in (
        ("bytes.consumed.total", 5 * 8.0),
        ("fetch.size.max", 5 * 8.0),
        ("fetch.throttle.time.max", 0.0),
    ):
        assert value in [push.value(prefix + name) for push in pushes], name
    assert {instance_id} == {push.client_instance_id for push in cluster.pushed_metrics()}
    assert cluster.pushed_metrics()[-1].terminating


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncShareConsumer])
def test_asyncio(cluster: FakeCluster, kind: type[AsyncConsumer] | type[AsyncShareConsumer]) -> None:
    """A consumer in an event loop pushes its metrics, the last ones when it is closed."""

    async def run() -> str:
        async with kind("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer:
            instance_id = await consumer.client_instance_id()
            deadline = time.monotonic() + LIMIT_S
            while not cluster.pushed_metrics():
                assert time.monotonic() < deadline
                await consumer.poll(0.02)
            return instance_id

    assert {asyncio.run(run())} == {push.client_instance_id for push in cluster.pushed_metrics()}
    assert cluster.pushed_metrics()[-1].terminating
