"""Mistakes that users make in their first hour: each raises an error that says what to write.

Names and arguments of other clients are in tests/unit/public/test_foreign_methods.py, values of wrong types in
test_argument_checks.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, ShareConsumer, read_range, read_topic
from kconsumer.errors import (
    AuthenticationError,
    ConfigError,
    RecordDeserializationError,
    StateError,
    TimeoutError,
)
from kconsumer.parallel import process
from kconsumer.testing import FakeCluster

ORDERS = ("orders", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of JSON values, the last of which is damaged."""
    with FakeCluster() as running:
        running.create_topic("orders")
        running.produce("orders", [json.dumps({"n": n}) for n in range(9)])
        running.create_topic("damaged")
        running.produce("damaged", ["{oops"])
        running.configure_group("explicit", share_auto_offset_reset="earliest")
        yield running


@pytest.fixture
def make(cluster: FakeCluster) -> Callable[..., Consumer]:
    """Creates a consumer of the cluster, which begins with the first record."""

    def create(*topics: Any, **options: Any) -> Consumer:
        given = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", **options}
        return Consumer(*topics, **given)

    return create


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"group_id": 5}, "it takes a str that is not empty"),
    ({"auto_offset_reset": "begining"}, "it takes one of latest, earliest, none"),
    ({"auto_offset_reset": None}, "leave it out for the default"),
    ({"auto_offset_rest": "latest"}, "auto_offset_reset"),
    ({"session_timeout_ms": 10.5}, "it takes an int from 1"),
    ({"session_timeout_ms": 2000}, "heartbeat_interval_ms=3000 must be less than session_timeout_ms=2000"),
    ({"max_poll_records": 0}, "it takes an int from 1"),
    ({"group_protocol": "consumer", "assignors": ["range"]}, "is an option of group_protocol='classic'"),
    ({"group_protocol": "consumer", "session_timeout_ms": 9000}, "is an option of group_protocol='classic'"),
    ({"value_deserializer": "jsno"}, "as text only str, json"),
    ({"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA512"}, "it takes one of .*SCRAM-SHA-512"),
    ({"bootstrap_servers": "a:9092 b:9092"}, "write a:9092,b:9092"),
    ({"password": "x"}, "use sasl_plain_password"),
    ({"auto_commit": True}, "use enable_auto_commit"),
    ({"brokers": "a:9092"}, "use bootstrap_servers"),
    ({"topic": "orders"}, "topics are the first arguments"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=lambda value: str(value)[:40])
def test_options(make: Callable[..., Consumer], options: dict[str, Any], message: str) -> None:
    """A wrong option raises ConfigError at construction, which says what is allowed or meant."""
    with pytest.raises(ConfigError, match=message):
        make("orders", **{"group_id": "g", **options})


async def read_bytes(data: bytes) -> bytes:
    """A deserializer for asyncio."""
    return data


async def handle(record: ConsumerRecord) -> None:
    """A handler for asyncio."""


CALLS: list[tuple[Callable[[Any, str], object], type[Exception], str]] = [
    (lambda make, _: make(group_id="g").subscribe("orders"), TypeError, "write subscribe(['orders'])"),
    (lambda make, _: make(["orders"], group_id="g"), ValueError, "write Consumer('a', 'b')"),
    (lambda make, _: make("orders"), StateError, "give group_id=… to Consumer, or assign() partitions"),
    (lambda make, _: make().assign(ORDERS), TypeError, "assign() takes a list of them"),
    (lambda make, _: make().assign(["orders"]), TypeError, "give TopicPartition(topic, partition)"),
    (lambda make, _: make().end_offsets(ORDERS), TypeError, "give TopicPartition(topic, partition)"),
    (lambda make, _: make().pause([ORDERS]), TypeError, "one by one: pause(*partitions)"),
    (lambda make, _: make("orders", group_id="g").seek(ORDERS, 0), StateError, "poll() assigns those of subscribe()"),
    (lambda make, _: assigned(make).commit(), StateError, "this needs a consumer group: give group_id="),
    (lambda make, _: assigned(make).poll()[0], TypeError, "iterate over it, as in `for record in records`"),
    (lambda make, _: assigned(make).poll().items(), AttributeError, "use by_partition().items()"),
    (lambda make, _: assigned(make).commit([*assigned(make).poll()]), TypeError, "pass what it returned"),
    (
        lambda make, _: assigned(make).commit(assigned(make).poll_arrow()),
        TypeError,
        "write commit(batch.next_offsets())",
    ),
    (lambda make, _: closed(make).poll(), StateError, "this consumer is closed; make a new one"),
    (
        lambda make, _: assigned(make, "damaged", value_deserializer="json").poll(),
        RecordDeserializationError,
        "seek to",
    ),
    (lambda make, _: assigned(make, value_deserializer=read_bytes).poll(), ConfigError, "only AsyncConsumer"),
    (lambda make, _: process(make("orders", group_id="g"), print), ConfigError, "give enable_auto_commit=False"),
    (
        lambda make, _: process(make("orders", group_id="g", enable_auto_commit=False), handle),
        TypeError,
        "use executor='asyncio'",
    ),
    (lambda _, at: read_range(ORDERS, 9, 2, bootstrap_servers=at), ValueError, "not a range of offsets: 9 to 2"),
    (
        lambda _, at: read_range(ORDERS, datetime(2026, 1, 1), "latest", bootstrap_servers=at),
        ValueError,
        "has no time zone",
    ),
    (lambda _, at: read_topic("orders", bootstrap_servers=at, group_id="g"), ConfigError, "read without a group"),
    (lambda _, at: read_topic("orders", bootstrap_servers=at, columns=["x"]), ValueError, "there are key, value"),
    (lambda _, at: read_topic("orders", bootstrap_servers=at, columns="key"), TypeError, "write columns=['key']"),
    (lambda make, _: make(security_protocol="SSL", ssl_cafile="/no.pem").list_topics(), ConfigError, "No such file"),
    (
        lambda make, _: make(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="u",
            sasl_plain_password="env:KCONSUMER_NO",
        ).list_topics(),
        AuthenticationError,
        "the environment has no variable KCONSUMER_NO",
    ),
    (
        lambda make, _: make(bootstrap_servers="127.0.0.1:1").list_topics(timeout=0.1),
        TimeoutError,
        "connection refused (is a broker listening there?)",
    ),
    (
        lambda _, at: ShareConsumer("orders", bootstrap_servers=at, group_id="g", auto_offset_reset="earliest"),  # type: ignore[call-overload]
        ConfigError,
        "set share.auto.offset.reset of the share group",
    ),
    (lambda _, at: forgotten_acknowledgement(at), StateError, "acknowledge each record before the next poll"),
]


def assigned(make: Callable[..., Consumer], topic: str = "orders", **options: Any) -> Consumer:
    """Returns a consumer without a group, of partition 0."""
    consumer = make(**options)
    consumer.assign([(topic, 0)])
    return consumer


def closed(make: Callable[..., Consumer]) -> Consumer:
    """Returns a consumer that is closed."""
    with assigned(make) as consumer:
        return consumer


def forgotten_acknowledgement(servers: str) -> None:
    """Poll twice in explicit mode, and acknowledge nothing."""
    options = {"group_id": "explicit", "share_acknowledgement_mode": "explicit"}
    with ShareConsumer("orders", bootstrap_servers=servers, **options) as consumer:
        while not consumer.poll():
            pass
        consumer.poll()


@pytest.mark.parametrize(("call", "error", "message"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.filterwarnings("ignore:unclosed <Consumer:ResourceWarning")
def test_calls(
    make: Callable[..., Consumer],
    cluster: FakeCluster,
    call: Callable[[Any, str], object],
    error: type[Exception],
    message: str,
) -> None:
    """A wrong call raises an error that says what to write."""
    made: list[Consumer] = []

    def kept(*topics: Any, **options: Any) -> Consumer:
        made.append(make(*topics, **options))
        return made[-1]

    try:
        with pytest.raises(error, match=re.escape(message)):
            call(kept, cluster.bootstrap_servers)
    finally:
        for consumer in made:
            consumer.close()


def test_values_that_a_fake_cluster_cannot_write(cluster: FakeCluster) -> None:
    """The error for a dict names json.dumps, and that for an unknown topic names create_topic."""
    with pytest.raises(TypeError, match=r"not dict; for JSON write json\.dumps\(value\)"):
        cluster.produce("orders", [{"a": 1}])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"create_topic\(\)"):
        cluster.produce("nowhere", ["x"])
