"""Polls of consumers that have read all records, and wait for the next one or do not wait."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
from support.fakes.tls_peer import send_close_notify
from support.harnesses.engines import ENGINES
from support.harnesses.inside import server_of
from support.harnesses.polling import poll_until

TP = TopicPartition("t", 0)
LIMIT_S = 30.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with one topic."""
    with FakeCluster() as made:
        made.create_topic("t")
        yield made


@pytest.fixture(params=ENGINES)
def consumer(request: pytest.FixtureRequest, cluster: FakeCluster) -> Iterator[Consumer]:
    """A consumer that has read the first record of the topic."""
    options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
    with Consumer("t", **options, **ENGINES[request.param]) as made:
        cluster.produce("t", [b"0"])
        poll_until(made, lambda: made.assignment() and made.position(TP) == 1)
        yield made


def next_offsets(consumer: Consumer) -> list[int]:
    """Returns the offsets that the next poll without a wait returns that is not empty."""
    end = time.monotonic() + LIMIT_S
    while True:
        found = [record.offset for record in consumer.poll(0)]
        if found:
            return found
        assert time.monotonic() < end, consumer


def test_a_poll_that_does_not_wait_returns_what_a_loop_has_not_reached(
    cluster: FakeCluster, consumer: Consumer
) -> None:
    """If a loop has stopped in the middle of a batch, poll(0) returns the rest of the batch."""
    assert not consumer.poll(0)
    cluster.produce("t", [b"1", b"2"])
    assert 1 == next(record.offset for record in consumer)
    assert [2] == next_offsets(consumer)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_broker_ends_tls_while_a_poll_waits(tmp_path: Path, engine: str) -> None:
    """If a broker ends TLS and does not close the socket, the consumer connects again."""
    authority = Authority()
    certificate, trusted = authority.issue().write(tmp_path / "broker.pem"), authority.write(tmp_path / "ca.pem")
    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": trusted, "fetch_max_wait_ms": 5_000}
    with FakeCluster(tls=certificate) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"0"])
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options, **ENGINES[engine]
        ) as consumer:
            consumer.assign([TP])
            consumer.seek(TP, 0)
            poll_until(consumer, lambda: consumer.position(TP) == 1)
            assert not consumer.poll(0.1)
            with server_of(cluster).change():  # else its thread might use a socket at the same time
                for client in server_of(cluster)._clients.values():
                    assert isinstance(client._socket, ssl.SSLSocket)
                    send_close_notify(client._socket)
            assert not consumer.poll(0.1)
            cluster.produce("t", [b"1"])
            began = time.monotonic()
            poll_until(consumer, lambda: consumer.position(TP) == 2)
            assert time.monotonic() - began < 4  # later, the broker would have sent something that fails
