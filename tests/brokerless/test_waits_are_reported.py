"""Each kind of consumer, with each engine, logs why it waits, and shows it in its `repr`; on the cluster model.

`tests/unit/engine/test_nothing_is_silent.py` has each error of each request, on virtual time.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer._internal import progress
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
from kconsumer.testing import FakeCluster
from kconsumer.testing.cluster.faults import Faults
from support.harnesses.inside import model_of

pytestmark = pytest.mark.network_thread

CONSUMERS: dict[str, Callable[..., Any]] = {
    "classic": lambda **options: Consumer("t", **options),
    "threaded": lambda **options: Consumer("t", engine="threaded", **options),
    "consumer": lambda **options: Consumer("t", group_protocol="consumer", **options),
    "asyncio": lambda **options: AsyncConsumer("t", **options),
    "share": lambda **options: ShareConsumer("t", **options),
    "share, asyncio": lambda **options: AsyncShareConsumer("t", **options),
}
FAULTS = {
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
    "ConsumerGroupHeartbeat": "COORDINATOR_LOAD_IN_PROGRESS",
    "ShareGroupHeartbeat": "NOT_COORDINATOR",
    "JoinGroup": "NOT_COORDINATOR",
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report waits of 0.2 s."""
    monkeypatch.setattr(progress, "WARNING_AFTER_MS", 200.0)


async def call(result: Any) -> Any:
    """Returns what a method returns, of a consumer of either kind."""
    return await result if inspect.isawaitable(result) else result


async def poll_until(consumer: Any, ended: Callable[[], bool]) -> None:
    """Poll until `ended()` is True."""
    deadline = time.monotonic() + 20
    while not ended():
        assert time.monotonic() < deadline
        await call(consumer.poll(timeout=0.05))


def apis(kind: str) -> list[str]:
    """Returns the requests of `FAULTS` that a kind of consumer sends."""
    share, consumer = kind.startswith("share"), kind == "consumer"
    joins = "ShareGroupHeartbeat" if share else "ConsumerGroupHeartbeat" if consumer else "JoinGroup"
    return ["FindCoordinator", joins]


@pytest.mark.parametrize(("kind", "api"), [(kind, api) for kind in CONSUMERS for api in apis(kind)])
def test_a_wait_is_reported(caplog: pytest.LogCaptureFixture, kind: str, api: str) -> None:
    """While a request fails again and again, a warning names the error, and so does `repr`; both end with the fault."""
    caplog.set_level("INFO", "kconsumer.progress")

    def logged(text: str) -> bool:
        return any(text in record.getMessage() for record in caplog.records if record.name == "kconsumer.progress")

    async def run() -> None:
        with FakeCluster() as cluster:
            cluster.create_topic("t")
            cluster.fail_next(api, FAULTS[api], times=10_000)
            options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g"}
            consumer = CONSUMERS[kind](**options)
            try:
                await poll_until(consumer, lambda: logged(FAULTS[api]) and FAULTS[api] in repr(consumer))
                model_of(cluster).faults = Faults(model_of(cluster), model_of(cluster).fetch)  # the fault ends
                await poll_until(consumer, lambda: logged("no longer waiting") and "waiting" not in repr(consumer))
            finally:
                await call(consumer.close(timeout=5))

    asyncio.run(run())
