"""Helpers of manager tests: a configuration, short ways to write metadata responses, backoffs without
jitter."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kconsumer._internal.managers import PollResult, Reply, UnsentRequest
from kconsumer.config.options import ConsumerConfig
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.types import Node, TopicPartition

RETRY_MS = 100
REQUEST_TIMEOUT_MS = 30_000
MAX_AGE_MS = 300_000
TRIGGER_MS = 200_000

NODES = {i: Node(i, f"host{i}", 9092) for i in (1, 2, 3)}


class NoJitter(random.Random):
    """Makes backoffs exact: every factor drawn is 1."""

    def uniform(self, a: float, b: float) -> float:
        """Returns the middle of the range."""
        return (a + b) / 2


class ManagerCase:
    """Polls a manager. The case of a test sets it."""

    manager: Any

    def ask(self, now: float) -> UnsentRequest:
        """Returns the one request sent at `now`."""
        result: PollResult = self.manager.poll(now)
        (request,) = result.requests
        return request

    def waits(self, now: float) -> float:
        """Returns how long the manager waits at `now` (ms), and checks that it sends nothing."""
        result: PollResult = self.manager.poll(now)
        assert [] == result.requests
        return result.wait_ms


def config(**changes: Any) -> ConsumerConfig:
    """Returns Java's defaults except for the constants above. Retries follow in exact steps of `RETRY_MS`."""
    options: dict[str, Any] = {
        "bootstrap_servers": "broker:9092",
        "retry_backoff_ms": RETRY_MS,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "metadata_max_age_ms": MAX_AGE_MS,
        "metadata_recovery_rebootstrap_trigger_ms": TRIGGER_MS,
    }
    return ConsumerConfig(**(options | changes))


def tps(*names: str) -> list[TopicPartition]:
    """Returns partitions: `tps("a-0", "b-12")`."""
    return [TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in names]


def tp(name: str) -> TopicPartition:
    """Returns a partition: `tp("a-0")`."""
    return tps(name)[0]


def partition(index: int, leader: int = 1, epoch: int = 0, *, error: int = 0, **fields: Any) -> Any:
    """Returns one partition of a metadata response."""
    values = {"replica_nodes": [1, 2], "isr_nodes": [1, 2]} | fields
    return MetadataResponsePartition(
        error_code=error, partition_index=index, leader_id=leader, leader_epoch=epoch, **values
    )


def topic(
    name: str | None, *partitions: Any, error: int = 0, topic_id: bytes = ZERO_UUID, internal: bool = False
) -> Any:
    """Returns one topic of a metadata response."""
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=internal, partitions=list(partitions)
    )


def metadata(*topics: Any, nodes: tuple[int, ...] = (1, 2, 3), error: int = 0, controller: int = 1) -> Any:
    """Returns a metadata response."""
    brokers = [MetadataResponseBroker(node_id=i, host=f"host{i}", port=9092) for i in nodes]
    return MetadataResponse(
        brokers=brokers, cluster_id="c", controller_id=controller, topics=list(topics), error_code=error
    )


def led_by(leaders: Mapping[str, int], epoch: int = 0) -> Any:
    """Returns a metadata response with these partitions (`{"a-0": 1}`), all at one leader epoch."""
    by_name: dict[str, list[Any]] = {}
    for name, leader in leaders.items():
        by_name.setdefault(tp(name).topic, []).append(partition(tp(name).partition, leader, epoch))
    return metadata(*(topic(name, *rows) for name, rows in by_name.items()))


def respond(request: UnsentRequest, message: Any, now: float, version: int | None = None) -> None:
    """Deliver a response to a request, at the newest version if none is given."""
    version = request.api.max_version if version is None else version
    request.handler(Reply(message, None, now, version, request.node or "-1"))


def fail(request: UnsentRequest, error: Any, now: float) -> None:
    """Let a request fail at the client."""
    request.handler(Reply(None, error, now, node=request.node or ""))
