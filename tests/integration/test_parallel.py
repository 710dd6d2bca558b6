"""kconsumer.parallel in a group whose members are killed, stopped and replaced: nothing is lost, and orders hold.

With KCONSUMER_CHAOS_SECONDS, each test continues for this time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.members.parallel_group import SESSION_MS, AsyncParallelGroup, ParallelGroup, ShareParallelGroup

SECONDS = float(os.environ.get("KCONSUMER_CHAOS_SECONDS", "0"))

pytestmark = pytest.mark.timeout(SECONDS * 1.5 + 300)
NewGroup = Callable[..., ParallelGroup]


@pytest.fixture
def new_group(kafka: Kafka, topic_name: str, tmp_path: Path) -> Iterator[NewGroup]:
    """Returns a function that creates a group of a class, with its arguments. Its members end with the test."""
    with ExitStack() as stack:
        yield lambda kind, **arguments: kind(kafka, topic_name, tmp_path, stack, **arguments)


@pytest.fixture
def options(engine: dict[str, Any]) -> dict[str, Any]:
    """The options of consumers with an engine."""
    return {} if engine.get("group_protocol") == "consumer" else {"session_timeout_ms": SESSION_MS}


def test_members_are_killed_and_stopped(new_group: NewGroup, engine: dict[str, Any], options: dict[str, Any]) -> None:
    """With order="key", no record is lost, and those of a key are processed one after the other, by all members."""
    group = new_group(ParallelGroup, order="key", executor="threads", options={**options, **engine})
    group.run_storms(1, SECONDS)


def test_members_with_an_async_consumer_are_killed_and_stopped(
    new_group: NewGroup, engine: dict[str, Any], options: dict[str, Any]
) -> None:
    """The same holds for an AsyncConsumer."""
    loop = {name: value for name, value in engine.items() if name != "engine"}
    group = new_group(AsyncParallelGroup, order="key", executor="asyncio", options={**options, **loop})
    group.run_storms(1, SECONDS)


@pytest.mark.consumer_protocol
def test_members_with_a_share_consumer_are_killed_and_stopped(new_group: NewGroup) -> None:
    """Each record is accepted, and none is repeated unless a member was killed or its lock was lost."""
    new_group(ShareParallelGroup, order="none", executor="threads").run_storms(1, SECONDS)


@pytest.mark.parametrize("executor", ["threads", "asyncio"])
def test_members_with_batches_are_killed_and_stopped(new_group: NewGroup, executor: str) -> None:
    """The same holds for handlers of several records, which fail for some of them."""
    options = {"session_timeout_ms": SESSION_MS}
    new_group(ParallelGroup, order="key", executor=executor, batch=[10, 0.02], options=options).run_storms(1, SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("order", ["partition", "none"])
@pytest.mark.parametrize("executor", ["processes", "asyncio"])
def test_members_of_other_executors_are_killed(
    new_group: NewGroup, engine: dict[str, Any], options: dict[str, Any], executor: str, order: str
) -> None:
    """The same holds for worker processes, which end with their parent, and for coroutines."""
    group = new_group(ParallelGroup, order=order, executor=executor, options={**options, **engine})
    group.run_storms(3, SECONDS)


@pytest.mark.long
@pytest.mark.consumer_protocol
@pytest.mark.parametrize("executor", ["processes", "asyncio"])
def test_members_of_a_share_group_with_other_executors_are_killed(new_group: NewGroup, executor: str) -> None:
    """The same holds for a share group."""
    new_group(ShareParallelGroup, order="none", executor=executor).run_storms(3, SECONDS)
