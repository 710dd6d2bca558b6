"""Log records have the client id, the group, the member, and the partition of their message as fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kconsumer import Consumer, ShareConsumer, TopicPartition
from kconsumer._common.deferred_calls import DeferredCalls, get_logger
from kconsumer.engine.environment import Environment
from kconsumer.testing import FakeCluster

FIELDS = ("client_id", "group", "member", "topic", "partition")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with the topic `t`."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"v"])
        yield cluster


def fields(record: logging.LogRecord) -> dict[str, object]:
    """Returns the fields of a log record."""
    return {name: vars(record)[name] for name in FIELDS if name in vars(record)}


def found(caplog: pytest.LogCaptureFixture, text: str) -> dict[str, object]:
    """Returns the fields of the last log record with this text."""
    return [fields(record) for record in caplog.records if text in record.getMessage()][-1]


@pytest.mark.parametrize("options", [{}, {"engine": "threaded"}, {"group_protocol": "consumer"}])
def test_a_member(cluster: FakeCluster, caplog: pytest.LogCaptureFixture, options: dict[str, str]) -> None:
    """Records about the group have the member; those about a partition have its topic and number, too."""
    with (
        caplog.at_level(logging.DEBUG, "kconsumer"),
        Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            client_id="c",
            auto_offset_reset="earliest",
            **options,
        ) as consumer,
    ):
        while not consumer.poll(1):
            pass
        member = {"client_id": "c", "group": "g", "member": consumer.group_metadata().member_id}
    assert member == found(caplog, "group g: assigned")
    assert {**member, "topic": "t", "partition": 0} == found(caplog, "reset the position of t-0")


def test_a_consumer_without_a_group(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Its records have no group. A message about a topic has the topic."""
    options = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "c", "auto_offset_reset": "earliest"}
    with caplog.at_level(logging.DEBUG, "kconsumer"), Consumer(**options) as consumer:
        consumer.assign([TopicPartition("missing", 0)])
        consumer.poll(0.5)
    assert {"client_id": "c", "topic": "missing"} == found(caplog, "topic missing does not exist")


def test_a_share_consumer(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """A member of a share group has the same fields."""
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "s", "client_id": "c"}
    with caplog.at_level(logging.DEBUG, "kconsumer"), ShareConsumer("t", **options) as consumer:
        consumer.poll(0.5)
    record = found(caplog, "share group s")
    assert {"client_id": "c", "group": "s"} == {name: record[name] for name in ("client_id", "group")}
    assert record["member"]


def test_fields_of_the_program_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """A field that a record has already is not changed, and a record outside of any consumer gets none."""
    lock = Environment().reentrant_lock()
    calls = DeferredCalls(lock, lambda: {"client_id": "c", "group": "g"})
    log = get_logger("kconsumer.test_log_fields")
    with caplog.at_level(logging.INFO, log.name):
        with lock:
            log.info("about %s", TopicPartition("t", 3), extra={"group": "mine"})
        calls.run()
        log.info("outside")
    inside, outside = caplog.records
    assert {"client_id": "c", "group": "mine", "topic": "t", "partition": 3} == fields(inside)
    assert {} == fields(outside)
