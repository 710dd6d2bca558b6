"""`address_map`: connections go to the mapped addresses, and TLS checks the advertised names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import ConfigError, KafkaError
from kconsumer.groups import GroupClient
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority

NAME = ("kafka.invalid", 9092)
LOGIN = {"mechanism": "PLAIN", "users": {"me": "secret"}}
Form = Callable[[tuple[str, int]], Any]
FORMS: dict[str, Form] = {
    "mapping": lambda to: {NAME: to},
    "text": lambda to: f"{NAME[0]}:{NAME[1]}={to[0]}:{to[1]}",
    "callable": lambda to: lambda host, port: to if (host, port) == NAME else None,
}


def address_of(cluster: FakeCluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return host, int(port)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_connections_go_to_the_mapped_address(form: Form) -> None:
    """A name that no name server has is reached at its mapped address; other addresses stay as they are."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [("k", "v")])
        options: dict[str, Any] = {
            "bootstrap_servers": f"{NAME[0]}:{NAME[1]}",
            "address_map": form(address_of(cluster)),
            "auto_offset_reset": "earliest",
        }
        with Consumer("t", group_id="g", **options) as consumer:
            assert [b"v"] == [record.value for record in consumer.poll(10)]
        del options["auto_offset_reset"]
        with ShareConsumer("t", group_id="s", **options) as share:
            share.poll(0.1)
        with GroupClient(**options) as client:
            assert {"g", "s"} == {group.group_id for group in client.list()}


def test_tls_checks_the_advertised_name(tmp_path: Path) -> None:
    """The certificate must be for the name before it is mapped, also with SASL."""
    authority = Authority()
    certificate = authority.issue("broker", hosts=(NAME[0],)).write(tmp_path / "broker.pem")
    with FakeCluster(tls=certificate, sasl=LOGIN) as cluster:
        cluster.create_topic("t")
        address = address_of(cluster)
        options: dict[str, Any] = {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": authority.write(tmp_path / "ca.pem"),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "me",
            "sasl_plain_password": "secret",
        }
        named = {NAME: address, address: address}
        with Consumer(bootstrap_servers=[NAME], address_map=named, **options) as consumer:
            assert {"t"} == set(consumer.list_topics(10))
        with (
            Consumer(bootstrap_servers=[address], address_map=named, **options) as consumer,
            pytest.raises(KafkaError, match="the broker's certificate is not for the host"),
        ):
            consumer.list_topics(10)


def test_errors_name_the_mapped_address() -> None:
    """The error of a failed connection has the advertised and the mapped address, or says why the callable failed."""

    def fail(host: str, port: int) -> tuple[str, int]:
        raise LookupError("no tunnel")

    cases: dict[str, Any] = {
        "connection refused": {NAME: ("127.0.0.1", 1)},
        "address_map failed with LookupError: no tunnel": fail,
        "address_map failed with ValueError": lambda *_: ("127.0.0.1", 70_000),
        "127.0.0.1:1": lambda *_: "127.0.0.1:1",
    }
    for text, given in cases.items():
        with Consumer(bootstrap_servers=[NAME], address_map=given) as consumer:
            with pytest.raises(KafkaError) as caught:
                consumer.list_topics(1)
            assert text in str(caught.value)
            assert "kafka.invalid:9092" in str(caught.value)


@pytest.mark.parametrize("value", [1, "a:1", {"a": ("b", 1)}, {("a", 1): ("b", 0)}, "a:1=b"])
def test_wrong_maps_are_refused(value: Any) -> None:
    """A map that has no pairs of host and port is a ConfigError."""
    with pytest.raises(ConfigError, match="address_map"):
        ConsumerConfig(bootstrap_servers="a:1", address_map=value)
