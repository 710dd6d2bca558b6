"""TLS and mutual TLS with a real broker; the tests make the certificates."""

from __future__ import annotations

import os
import random
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, RangeClient, TopicPartition
from kconsumer.errors import AuthenticationError, ConfigError
from kconsumer.groups import GroupClient
from kconsumer.net.tls.channel import Channel, PythonChannel, new_channel
from support.brokers.certificates import Authority, broker_properties
from support.brokers.kafka import JVM_LIGHT, KafkaCluster
from support.brokers.proxy import Conditions, Proxy
from support.harnesses.stopwatch import Stopwatch


class Secured:
    """A broker with the listeners SSL and MTLS, the authority of its certificate, and a client certificate that it
    trusts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.ca = self.authority.write(folder / "ca.pem")
        self.client = self.authority.issue("reader", hosts=()).write(folder / "client.pem")
        self.broker = self.authority.issue("broker")
        self.proxy = Proxy()
        encrypted = ("SSL", "MTLS", "PROXIED")
        properties = broker_properties(folder, self.authority, self.broker, encrypted, asking=("MTLS",))
        properties["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:SSL"
        properties["message.max.bytes"] = "12000000"
        # The broker's keys change after 256 KiB, not after 128 GiB, so they do so in the middle of large responses.
        limits = folder / "java.security"
        limits.write_text("jdk.tls.keyLimits=AES/GCM/NoPadding KeyUpdate 2^18\n")
        self.cluster = KafkaCluster(
            properties=properties,
            jvm=(*JVM_LIGHT, f"-Djava.security.properties={limits}"),
            proxy=self.proxy.listen_for,
            listeners={"SSL": "SSL", "MTLS": "SSL"},
        )

    def options(self, listener: str = "SSL", **more: Any) -> dict[str, Any]:
        """Returns the options of a client that may connect to a listener."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.cluster.proxied_servers
            if listener == "PROXIED"
            else self.cluster.servers(listener),
            "security_protocol": "SSL",
            "ssl_cafile": self.ca,
            "auto_offset_reset": "earliest",
        }
        if listener == "MTLS":
            options["ssl_certfile"] = self.client
        return {**options, **more}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker for this module."""
    found = Secured(tmp_path_factory.mktemp("tls"))
    with found.proxy, found.cluster:
        yield found


WAYS: dict[str, Callable[[ssl.SSLSocket], Channel]] = {"direct": new_channel, "through Python's ssl": PythonChannel}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a test with both ways to read and write after the handshake, and checks that no other way was used."""
    used = []

    def make(sock: ssl.SSLSocket) -> Channel:
        channel = WAYS[request.param](sock)
        used.append(channel.direct is not None)
        return channel

    monkeypatch.setattr("kconsumer.net.tls.transport.new_channel", make)
    yield
    assert not used or {request.param == "direct"} == set(used)


@pytest.fixture
def consume(secured: Secured) -> Iterator[Callable[..., Consumer]]:
    """Returns a function that makes consumers of the broker and closes them after the test."""
    with ExitStack() as stack:

        def make(*topics: str, listener: str = "SSL", **options: Any) -> Consumer:
            return stack.enter_context(Consumer(*topics, **secured.options(listener, **options)))

        yield make


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """Returns the values of the next `count` records."""
    values: list[bytes | None] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("listener", ["SSL", "MTLS"])
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.consumer_protocol)])
def test_a_group_reads(
    secured: Secured, consume: Callable[..., Consumer], topic_name: str, listener: str, protocol: str
) -> None:
    """A group reads all records, commits and continues at the commit over TLS, with and without client certificates."""
    secured.cluster.create_topic(topic_name, partitions=1)
    values = [b"%d" % number for number in range(500)]
    secured.cluster.produce(topic_name, values)
    group: dict[str, Any] = {"group_id": topic_name, "group_protocol": protocol, "consumer_timeout_ms": 30_000}
    first = consume(topic_name, listener=listener, **group)
    assert values == read(first, len(values))
    first.close()
    secured.cluster.produce(topic_name, [b"more"])
    assert [b"more"] == read(consume(topic_name, listener=listener, **group), 1)


def test_single_records(secured: Secured, consume: Callable[..., Consumer], topic_name: str) -> None:
    """Records that are written one at a time are read in order, also after a large response."""
    secured.cluster.create_topic(topic_name, partitions=1)
    large = [os.urandom(100_000) for _ in range(8)]
    secured.cluster.produce(topic_name, large)
    consumer = consume(topic_name, group_id=topic_name, consumer_timeout_ms=30_000)
    assert large == read(consumer, len(large))
    for number in range(60):
        assert not consumer.poll(0.02)
        secured.cluster.produce(topic_name, [b"%d" % number])
        assert [b"%d" % number] == read(consumer, 1)


ENGINES = [{"engine": "classic"}, {"engine": "threaded"}]
CONSUMER = {"group_protocol": "consumer"}


FAILURES = {
    "unknown CA": ("SSL", {"ssl_cafile": None}, "no trusted certificate vouches for the broker's"),
    "no certificate": ("MTLS", {"ssl_certfile": None}, "the broker asks for a client certificate; set ssl_certfile"),
    "no certificate, TLS 1.2": (
        "MTLS",
        {"ssl_certfile": None, "ssl_protocol": "TLSv1.2"},
        "the broker asks for a client certificate",
    ),
    "a stranger's certificate": ("MTLS", {"ssl_certfile": "stranger"}, "does not accept the client's certificate"),
    "no TLS": ("SSL", {"security_protocol": None, "ssl_cafile": None}, "speaks TLS; set security_protocol to SSL"),
    "TLS": ("PLAINTEXT", {}, "closed the connection when TLS .*responds without TLS; .*check security_protocol"),
    "ciphers": ("SSL", {"ssl_cipher_suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "no cipher in common"),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("driven", "listener", "changes", "reason"),
    [pytest.param(ENGINES[0], *failure, id=name) for name, failure in FAILURES.items()]
    + [pytest.param(ENGINES[1], *FAILURES[name], id=f"{name}, threaded") for name in ("no certificate", "TLS")]
    + [
        pytest.param(CONSUMER, *FAILURES[name], id=f"{name}, consumer", marks=pytest.mark.consumer_protocol)
        for name in ("no certificate", "TLS")
    ],
)
def test_failures_are_raised_at_once(
    secured: Secured, topic_name: str, driven: dict[str, str], listener: str, changes: dict[str, Any], reason: str
) -> None:
    """poll() and a look-up raise errors that say what to change; later calls raise them again, with a backoff between
    the attempts.
    """
    if changes.get("ssl_certfile"):
        changes = {"ssl_certfile": Authority("stranger").issue().write(secured.folder / "stranger.pem")}
    options = {**secured.options("SSL" if listener == "PLAINTEXT" else listener), **changes, **driven}
    if listener == "PLAINTEXT":
        options["bootstrap_servers"] = secured.cluster.bootstrap_servers
    chosen = {name: value for name, value in options.items() if value is not None}
    with Consumer(topic_name, group_id=topic_name, reconnect_backoff_ms=100, **chosen) as consumer:
        watch = Stopwatch()
        for _ in range(3):
            with pytest.raises(AuthenticationError, match=reason):
                consumer.poll(20)
        with pytest.raises(AuthenticationError, match=reason):
            consumer.list_topics(timeout=20)
        assert watch.seconds() < 10
        assert 0 == connections(consumer)  # no connection was ever ready


@pytest.mark.usefixtures("way")
def test_large_records(secured: Secured, consume: Callable[..., Consumer], topic_name: str) -> None:
    """Records of ten megabytes are returned complete between small ones, whichever thread receives them, and while the
    keys of the connection change.
    """
    secured.cluster.create_topic(topic_name, partitions=1)
    values = [b"small", os.urandom(10_000_000), b"small", os.urandom(10_000_001), b"end"]
    for value in values:
        secured.cluster.produce(topic_name, [value], config={"message.max.bytes": 12_000_000})
    for engine in ENGINES:
        reader = consume(
            topic_name, group_id=topic_name, enable_auto_commit=False, consumer_timeout_ms=30_000, **engine
        )
        assert values == read(reader, len(values))
        reader.close()


@pytest.mark.usefixtures("way")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("driven", ENGINES, ids=str)
def test_faulty_connections(
    secured: Secured, consume: Callable[..., Consumer], topic_name: str, driven: dict[str, str]
) -> None:
    """Connections that deliver a few bytes at a time, or are cut in a handshake, a record or a response, cause only
    delays.
    """
    secured.cluster.create_topic(topic_name, partitions=1)
    values = [b"%06d" % number * 100 for number in range(80)]
    for start in range(0, len(values), 10):  # small batches, because a batch is sent as a whole
        secured.cluster.produce(topic_name, values[start : start + 10])
    options = {"fetch_max_bytes": 10_000, "max_partition_fetch_bytes": 10_000, "reconnect_backoff_max_ms": 50}
    reader = consume(listener="PROXIED", **options, **driven)
    reader.list_topics(timeout=20)  # once TLS has worked, a disconnect is retried
    reader.assign([TopicPartition(topic_name, 0)])
    [port] = [node.behind_port for node in secured.cluster.nodes]
    rng, taken = random.Random(7), list[bytes | None]()
    try:
        while len(taken) < len(values):
            climate = Conditions(trickle=rng.choice((0, 0, 700)), cut_after=rng.choice((50, 3_000, 20_000, 40_000)))
            secured.proxy.set_climate(climate, port)
            taken += (record.value for record in reader.poll(rng.choice((0.1, 0.5))))
    finally:
        secured.proxy.calm()
    assert values == taken
    assert connections(reader) > 3


def connections(consumer: Consumer) -> float:
    """Returns the number of connections made so far."""
    return sum(value for name, value in consumer.metrics().items() if name.name == "connection-creation-total")


# In a process of its own: librdkafka, which other tests use in this one, opens and closes sockets at any time.
def test_other_clients_of_the_package(secured: Secured, consume: Callable[..., Consumer], topic_name: str) -> None:
    """RangeClient and GroupClient read with the same TLS options."""
    secured.cluster.create_topic(topic_name, partitions=1)
    secured.cluster.produce(topic_name, [b"one", b"two"])
    with consume(topic_name, group_id=topic_name, consumer_timeout_ms=30_000) as reader:
        read(reader, 2)
        reader.commit()
    options = {name: value for name, value in secured.options("MTLS").items() if name != "auto_offset_reset"}
    with RangeClient(**options) as client, client.read_range((topic_name, 0), 0, 2) as batches:
        assert [b"one", b"two"] == [value for batch in batches for value in batch.to_pyarrow()["value"].to_pylist()]
    with GroupClient(**options) as groups:
        assert [2] == [found.committed for found in groups.offsets(groups.describe(topic_name)).values()]


def test_the_command_line(secured: Secured, topic_name: str) -> None:
    """The command takes TLS options from a properties file, as Java's tools do, and from -X."""
    secured.cluster.create_topic(topic_name, partitions=1)
    secured.cluster.produce(topic_name, [b"one"])
    client = secured.authority.issue("reader", hosts=())
    (secured.folder / "client.properties").write_text(
        f"# of Java's tools\nsecurity.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={secured.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.key={client.encrypted('sesame').replace(chr(10), ' ')}\n"
        f"ssl.keystore.certificate.chain = {client.chain.replace(chr(10), ' ')}\n"
    )
    command = [sys.executable, "-m", "kconsumer", "topics", "list", "-b", secured.cluster.servers("MTLS")]
    command += ["-F", str(secured.folder / "client.properties"), "-X", "ssl.key.password=env:KCONSUMER_TEST_KEY"]
    environment = {**os.environ, "KCONSUMER_TEST_KEY": "sesame"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    assert topic_name in done.stdout


def test_stores_of_java_become_pem_by_the_command_in_the_error(
    secured: Secured, consume: Callable[..., Consumer]
) -> None:
    """The command in the error message converts Java's stores to PEM files that a client of the broker can use; the
    test adds only the passwords.
    """
    folder, given = secured.folder, "-storepass sesame -noprompt"
    (folder / "identity.pem").write_text(secured.authority.issue("reader", hosts=()).both)

    def run(command: str) -> None:
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
        assert 0 == done.returncode, done.stdout + done.stderr

    run(f"keytool -importcert -file ca.pem -alias ca -keystore trust.jks -storetype JKS {given}")
    run("openssl pkcs12 -export -in identity.pem -out own.p12 -passout pass:sesame")
    run(
        "keytool -importkeystore -srckeystore own.p12 -srcstoretype PKCS12 -srcstorepass sesame "
        "-destkeystore own.jks -deststoretype JKS -deststorepass sesame -noprompt"
    )
    for trust, own in (("trust.jks", "own.jks"), ("trust.jks", "own.p12")):
        for option, store in (("ssl_truststore_location", trust), ("ssl_keystore_location", own)):
            with pytest.raises(ConfigError) as caught:
                consume(listener="SSL", **{option: str(folder / store), "ssl_cafile": None})
            command = str(caught.value).splitlines()[1]
            command = command.replace("-list", f"-list {given}")
            command = command.replace("-importkeystore", "-importkeystore -srcstorepass sesame -deststorepass sesame")
            run(command.replace("openssl pkcs12", "openssl pkcs12 -passin pass:sesame -passout pass:sesame"))
        converted = {"ssl_cafile": "truststore.pem", "ssl_certfile": "keystore.pem"}
        options = {name: str(folder / file) for name, file in converted.items()}
        consume(listener="MTLS", ssl_password="sesame", **options).list_topics(timeout=20)
        for file in (*converted.values(), "keystore.p12"):
            (folder / file).unlink(missing_ok=True)
