"""TLS and mutual TLS with a real broker, whose certificates the tests make."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer
from support.certificates import Authority, broker_properties
from support.kafka import DEFAULT_VERSION, KafkaCluster


class Secured:
    """A broker with the listeners SSL and MTLS, who vouches for its certificate, and a client that it trusts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.ca = self.authority.write(folder / "ca.pem")
        self.client = self.authority.issue("reader", hosts=()).write(folder / "client.pem")
        broker = self.authority.issue("broker")
        properties = broker_properties(folder, self.authority, broker, ("SSL", "MTLS"), asking=("MTLS",))
        self.cluster = KafkaCluster(
            os.environ.get("KAFKA_VERSION", DEFAULT_VERSION),
            properties=properties,
            listeners={"SSL": "SSL", "MTLS": "SSL"},
        )

    def options(self, listener: str = "SSL", **more: Any) -> dict[str, Any]:
        """Of a client that may connect there."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.cluster.servers(listener),
            "security_protocol": "SSL",
            "ssl_cafile": self.ca,
            "auto_offset_reset": "earliest",
        }
        if listener == "MTLS":
            options["ssl_certfile"] = self.client
        return {**options, **more}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker for this module."""
    found = Secured(tmp_path_factory.mktemp("tls"))
    with found.cluster:
        yield found


@pytest.fixture
def consume(secured: Secured) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers of the broker, and closes them after the test."""
    with ExitStack() as stack:

        def make(*topics: str, listener: str = "SSL", **options: Any) -> Consumer:
            return stack.enter_context(Consumer(*topics, **secured.options(listener, **options)))

        yield make


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of the next so many records."""
    values: list[bytes | None] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


@pytest.mark.parametrize("listener", ["SSL", "MTLS"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads(
    secured: Secured, consume: Callable[..., Consumer], topic_name: str, listener: str, protocol: str
) -> None:
    """A group reads everything, commits and goes on there, over TLS with and without a certificate of its own."""
    secured.cluster.create_topic(topic_name, partitions=1)
    values = [b"%d" % number for number in range(500)]
    secured.cluster.produce(topic_name, values)
    group: dict[str, Any] = {"group_id": topic_name, "group_protocol": protocol, "consumer_timeout_ms": 30_000}
    first = consume(topic_name, listener=listener, **group)
    assert values == read(first, len(values))
    first.close()
    secured.cluster.produce(topic_name, [b"more"])
    assert [b"more"] == read(consume(topic_name, listener=listener, **group), 1)
