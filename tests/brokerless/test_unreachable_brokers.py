"""What consumers log and raise while no broker, or none of the advertised ones, can be reached."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer.net.address_failures import ADVERTISED
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES
from support.harnesses.inside import model_of, server_of


@pytest.fixture
def closing_port() -> Iterator[int]:
    """A listener that accepts connections and closes them, as a load balancer without a healthy target does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def poll_until_warning(consumer: Consumer | ShareConsumer, caplog: pytest.LogCaptureFixture, text: str) -> None:
    end = time.monotonic() + 10
    while not any(text in warning for warning in warnings_of(caplog)):
        assert time.monotonic() < end, warnings_of(caplog)
        consumer.poll(timeout=0.1)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_address_that_closes_connections_is_a_warning(
    engine: str, closing_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer whose connections are closed says so within ten seconds, without a call that times out."""
    address = f"127.0.0.1:{closing_port}"
    with Consumer("t", bootstrap_servers=address, group_id="g", **ENGINES[engine]) as consumer:
        poll_until_warning(consumer, caplog, f"the connection to bootstrap broker {address} (127.0.0.1) was lost")


PASSWORD = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p"}


@pytest.mark.parametrize(
    "options",
    [
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_PLAINTEXT", **PASSWORD},
        {"security_protocol": "SASL_SSL", **PASSWORD},
    ],
    ids=lambda options: options["security_protocol"],
)
def test_a_close_during_a_handshake_is_a_warning(
    options: dict[str, Any], closing_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that is closed during the handshake of TLS or SASL is logged in the same way."""
    address = f"127.0.0.1:{closing_port}"
    with Consumer("t", bootstrap_servers=address, group_id="g", **options) as consumer:
        poll_until_warning(consumer, caplog, address)


def test_a_share_consumer_says_it_too(closing_port: int, caplog: pytest.LogCaptureFixture) -> None:
    """A share consumer whose connections are closed says so."""
    with ShareConsumer("t", bootstrap_servers=f"127.0.0.1:{closing_port}", group_id="g") as consumer:
        poll_until_warning(consumer, caplog, "was lost: ")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_advertised_address_that_cannot_be_reached(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    """The bootstrap server responds with the address of a broker that refuses connections. Warnings name
    `advertised.listeners` and are limited, although the client starts again from the bootstrap servers each time.
    """
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        with server_of(cluster).change():
            model_of(cluster).brokers[1].port = 1
        with Consumer("t", bootstrap_servers=servers, group_id="g", **ENGINES[engine]) as consumer:
            poll_until_warning(consumer, caplog, ADVERTISED)
            poll_until_warning(consumer, caplog, "starting again from the bootstrap servers")
            end = time.monotonic() + 4
            while time.monotonic() < end:
                consumer.poll(timeout=0.2)
    about_address = [text for text in warnings_of(caplog) if ADVERTISED in text]
    assert len(about_address) == 1
    assert len(warnings_of(caplog)) <= 5  # of the rebootstrap, and what the managers wait for
