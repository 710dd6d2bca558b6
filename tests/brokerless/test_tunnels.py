"""`socks_proxy` and `http_proxy`: every client connects to brokers through the proxy, with TLS and SASL, too."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kconsumer.cluster
from kconsumer import Consumer, RangeClient, ShareConsumer, cli
from kconsumer.aio import AsyncConsumer
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import AuthenticationError, ConfigError, KafkaError
from kconsumer.groups import GroupClient
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
from support.fakes.tunnel_proxy import TunnelProxy

NAME = ("kafka.invalid", 9092)  # only the proxy knows it
SERVERS = "kafka.invalid:9092"
LOGIN = {"mechanism": "PLAIN", "users": {"me": "secret"}}
PASSWORD = "p@ss/w%rd"
SCHEMES = {"socks_proxy": "socks5", "http_proxy": "http"}


@pytest.fixture(params=SCHEMES)
def option(request: pytest.FixtureRequest) -> str:
    """The option of a proxy."""
    return str(request.param)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [("k", "v")])
        yield cluster


def address_of(cluster: FakeCluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return host, int(port)


def url(option: str, proxy: TunnelProxy, login: str = "") -> str:
    return f"{SCHEMES[option]}://{login}{proxy.address}"


def test_every_client_uses_it(cluster: FakeCluster, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bootstrap servers and brokers are reached through the proxy, which resolves their names and checks the login."""

    async def read(options: dict[str, Any]) -> list[Any]:
        async with AsyncConsumer("t", group_id="a", auto_offset_reset="earliest", **options) as consumer:
            return [record.value for record in await consumer.poll(10)]

    def read_shared() -> None:
        with ShareConsumer("t", group_id="s", **options) as share:
            share.poll(0.1)

    def consume() -> list[Any]:
        with Consumer("t", group_id="g", auto_offset_reset="earliest", **options) as consumer:
            return [record.value for record in consumer.poll(10)]

    with TunnelProxy({NAME: address_of(cluster)}, login=("me", PASSWORD)) as proxy:
        login = "me:p%40ss%2Fw%25rd@"
        options: dict[str, Any] = {"bootstrap_servers": SERVERS, option: url(option, proxy, login)}
        uses = {
            "Consumer": (consume, [b"v"]),
            "AsyncConsumer": (lambda: asyncio.run(read(options)), [b"v"]),
            "ShareConsumer": (read_shared, None),
            "groups": (lambda: {group.group_id for group in kconsumer.groups.list(**options)}, {"g", "a", "s"}),
            "cluster": (lambda: len(kconsumer.cluster.describe(**options).brokers), 1),
            "ranges": (lambda: set(_topics(options)), {"t"}),
            "command": (
                lambda: cli.main(
                    ["consume", "t", "-b", SERVERS, "-X", f"{option.replace('_', '.')}={options[option]}", "--exit"]
                ),
                0,
            ),
        }
        for name, (use, expected) in uses.items():
            proxy.asked.clear()
            assert expected == use(), name
            protocols = {(asked.protocol, asked.user) for asked in proxy.asked}
            assert NAME == proxy.asked[0][1:3], name
            if option == "http_proxy":
                assert {("CONNECT", "me")} == protocols, name
            else:
                assert ("socks5", "me") in protocols, name
        assert address_of(cluster) in {asked[1:3] for asked in proxy.asked}  # brokers, too


def _topics(options: dict[str, Any]) -> Any:
    with RangeClient(**options) as client:
        return client.topics(["t"])


def test_tls_and_sasl_behind_it(tmp_path: Path, option: str) -> None:
    """TLS starts behind the tunnel and checks the broker's name; `address_map` applies before the proxy."""
    authority = Authority()
    certificate = authority.issue("broker", hosts=(NAME[0],)).write(tmp_path / "broker.pem")
    with FakeCluster(tls=certificate, sasl=LOGIN) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [("k", "v")])
        mapped = ("mapped.invalid", 1)
        with TunnelProxy({mapped: address_of(cluster)}) as proxy:
            options: dict[str, Any] = {
                option: url(option, proxy),
                "security_protocol": "SASL_SSL",
                "ssl_cafile": authority.write(tmp_path / "ca.pem"),
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "me",
                "sasl_plain_password": "secret",
                "address_map": {NAME: mapped},
            }
            with Consumer(bootstrap_servers=SERVERS, **options) as consumer:
                assert {"t"} == set(consumer.list_topics(10))
            assert mapped == proxy.asked[0][1:3]
            with (
                Consumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer,
                pytest.raises(KafkaError, match=r"is not for the host '?127\.0\.0\.1"),
            ):
                consumer.list_topics(10)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("socks_proxy", "has not connected to kafka.invalid:9092: connection refused (SOCKS reply 5)"),
        ("http_proxy", "has not connected to kafka.invalid:9092: HTTP/1.1 502 Bad Gateway"),
    ],
)
def test_a_refused_broker(cluster: FakeCluster, option: str, text: str) -> None:
    """While the proxy cannot reach the broker, the error and the status have its reply. Then the consumer connects."""
    with TunnelProxy({NAME: ("127.0.0.1", 1)}) as proxy:
        options: dict[str, Any] = {option: url(option, proxy), "reconnect_backoff_max_ms": 50}
        with Consumer(bootstrap_servers=SERVERS, **options) as consumer:
            with pytest.raises(KafkaError, match=re.escape(text)):
                consumer.list_topics(1)
            (connection,) = consumer.status().connections
            assert text in str(connection.last_error)
            proxy.targets[NAME] = address_of(cluster)
            proxy.closes = 2
            assert {"t"} == set(consumer.list_topics(10))


def test_a_refused_login(cluster: FakeCluster, option: str, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong password is an AuthenticationError of the call. No message has the password."""
    with TunnelProxy({NAME: address_of(cluster)}, login=("me", "right")) as proxy:
        options: dict[str, Any] = {option: url(option, proxy, "me:opensesame@")}
        with Consumer(bootstrap_servers=SERVERS, **options) as consumer:
            with pytest.raises(AuthenticationError, match="does not accept the user and password") as caught:
                consumer.list_topics(10)
            shown = f"{caught.value!r} {caplog.text} {consumer.status()} {consumer!r}"
        assert proxy.address in shown
        assert "opensesame" not in shown


@pytest.mark.parametrize(
    ("address", "text"),
    [("127.0.0.1:1", "connection refused"), ("proxy.invalid:1", "the proxy proxy.invalid:1 ({}): the name could not")],
)
def test_a_proxy_that_cannot_be_reached(option: str, address: str, text: str) -> None:
    """The error names the broker, the proxy and the option."""
    options: dict[str, Any] = {option: f"{SCHEMES[option]}://{address}"}
    with (
        Consumer(bootstrap_servers=SERVERS, **options) as consumer,
        pytest.raises(KafkaError, match=re.escape(text.format(option))) as caught,
    ):
        consumer.list_topics(1)
    for word in ("kafka.invalid:9092", address, option):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "value", [1, "", "p:1080", "https://p:1080", "socks4://p:1", "{}://p", "{}://p:0", "{}://p:1/x", "{}://:1", "{}h"]
)
def test_wrong_addresses_are_refused(option: str, value: Any) -> None:
    """What is no address of a proxy is a ConfigError that says what to write."""
    given = value.format(SCHEMES[option]) if isinstance(value, str) else value
    with pytest.raises(ConfigError, match=rf"{option}.* it takes {SCHEMES[option]}://\[user:password@\]host:port"):
        ConsumerConfig(bootstrap_servers="a:1", **{option: given})


def test_references(option: str, monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
    """The address may be in the environment. It is read, and checked, when the client is created."""
    monkeypatch.setenv("KCONSUMER_PROXY", "x://me:opensesame@p")
    options: dict[str, Any] = {"bootstrap_servers": SERVERS, option: "env:KCONSUMER_PROXY"}
    with pytest.raises(ConfigError, match=rf"{option} must refer to {SCHEMES[option]}://") as caught:
        Consumer(**options)
    assert "opensesame" not in str(caught.value)
    with TunnelProxy({NAME: address_of(cluster)}) as proxy:
        monkeypatch.setenv("KCONSUMER_PROXY", url(option, proxy))
        with GroupClient(**options) as client:
            assert [] == client.list()


def test_both_are_refused() -> None:
    """Only one proxy can be set."""
    with pytest.raises(ConfigError, match=r"socks\.proxy and http_proxy cannot both be set"):
        ConsumerConfig.from_mapping(
            {"bootstrap.servers": "a:1", "socks.proxy": "socks5://p:1", "http_proxy": "http://p:1"}
        )
