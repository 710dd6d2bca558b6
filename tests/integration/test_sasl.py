"""SASL authentication with a real broker, limited sessions, and missing ACLs.

The broker has three more listeners: SASL supports every mechanism, SHORT limits sessions to three seconds, SECURE uses
TLS. Its authorizer restricts only the users of the tests of ACLs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.errors import (
    AuthenticationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
)
from support.brokers.certificates import Authority
from support.brokers.kafka import Kafka, KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.sasl import (
    MODULES,
    SCRAM,
    allow,
    delegation_token,
    forbid,
    sasl_properties,
    set_password,
    unsecured_token,
    write_secret,
)
from support.fakes.tunnel_proxy import TunnelProxy
from support.harnesses.stopwatch import Stopwatch

pytestmark = pytest.mark.broker

PASSWORDS = {"alice": "wonderland", "restricted": "no-entry"}
SESSION_MS, LONG_SESSION_MS = 3_000, 10_000
TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Returns the paths of a trusted certificate, and of a server's certificate and key."""
    folder, authority = tmp_path_factory.mktemp("certificates"), Authority()
    return authority.write(folder / "ca.pem"), authority.issue("broker").write(folder / "broker.pem")


@pytest.fixture(scope="module")
def kafka(authority: tuple[str, str]) -> Iterator[KafkaCluster]:
    """The broker."""
    every = ("PLAIN", *SCRAM, "OAUTHBEARER")
    properties = {
        **sasl_properties("SASL", every, PASSWORDS),
        **sasl_properties("SHORT", ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"), PASSWORDS),
        **sasl_properties("LONG", ("PLAIN",), PASSWORDS),
        **sasl_properties("SECURE", ("PLAIN", "SCRAM-SHA-512"), PASSWORDS),
        "listener.name.long.plain.connections.max.reauth.ms": str(LONG_SESSION_MS),
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": authority[1],
        "delegation.token.secret.key": "brokers-secret",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", "alice", "bob", "carol", "dora")),
    }
    for mechanism in ("plain", "scram-sha-256", "oauthbearer"):
        properties[f"listener.name.short.{mechanism}.connections.max.reauth.ms"] = str(SESSION_MS)
    plain = "SASL_PLAINTEXT"
    listeners = {"SASL": plain, "SHORT": plain, "LONG": plain, "SECURE": "SASL_SSL"}
    with KafkaCluster(properties=properties, listeners=listeners) as cluster:
        for user in ("bob", "dora"):
            set_password(cluster, user, "builder")
        yield cluster


def login(kafka: Kafka, listener: str = "SASL", **options: Any) -> dict[str, Any]:
    """Returns the options of a client that logs in as alice by PLAIN."""
    assert isinstance(kafka, KafkaCluster)
    return {
        "bootstrap_servers": kafka.servers(listener),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
        "fetch_max_wait_ms": 100,  # so that close() does not wait long for the last fetch
        **options,
    }


def with_token(kafka: Kafka, provider: Callable[[], object], listener: str = "SASL") -> dict[str, Any]:
    """Returns the options of a client that logs in with a token."""
    options = login(kafka, listener, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
    return {name: value for name, value in options.items() if "plain" not in name}


def read(consumer: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[bytes | None]:
    """Returns the values of the next `count` records, or of those that arrived in time."""
    deadline, found = time.monotonic() + timeout_s, []
    while len(found) < count and time.monotonic() < deadline:
        found += [record.value for record in consumer.poll(0.2)]
    return found


def raised(consumer: Consumer, timeout_s: float = TIMEOUT_S) -> KafkaError:
    """Returns the first error of polling."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            consumer.poll(0.2)
        except KafkaError as error:
            return error
    raise AssertionError("poll raised nothing")


NewConsumer = Callable[..., Consumer]

# --- mechanisms ---


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM, "OAUTHBEARER"])
def test_each_mechanism(kafka: Kafka, new_consumer: NewConsumer, topic_name: str, mechanism: str) -> None:
    """With each mechanism, a group member reads the records over its connections to the broker and the coordinator."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"one", b"two"])
    options = login(kafka, sasl_mechanism=mechanism)
    if mechanism in SCRAM:
        options |= {"sasl_plain_username": "bob", "sasl_plain_password": "builder"}
    if mechanism == "OAUTHBEARER":
        options = with_token(kafka, lambda: unsecured_token("carol"))
    consumer = new_consumer(topic_name, group_id=topic_name, **options)
    assert [b"one", b"two"] == read(consumer, 2)
    consumer.commit()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_over_tls(
    kafka: Kafka, authority: tuple[str, str], new_consumer: NewConsumer, topic_name: str, mechanism: str
) -> None:
    """Each mechanism works after a TLS handshake."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"one"])
    user = {"sasl_plain_username": "bob", "sasl_plain_password": "builder"} if mechanism in SCRAM else {}
    options = {"security_protocol": "SASL_SSL", "ssl_cafile": authority[0], "sasl_mechanism": mechanism, **user}
    consumer = new_consumer(topic_name, group_id=topic_name, **login(kafka, "SECURE", **options))
    assert [b"one"] == read(consumer, 1)


@pytest.mark.parametrize(("option", "scheme"), [("socks_proxy", "socks5"), ("http_proxy", "http")])
def test_over_tls_through_a_proxy(
    kafka: Kafka, authority: tuple[str, str], new_consumer: NewConsumer, topic_name: str, option: str, scheme: str
) -> None:
    """A group member connects to the broker and the coordinator through a proxy, which checks a login of its own."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"one"])
    with TunnelProxy(login=("me", "secret")) as proxy:
        options = {"security_protocol": "SASL_SSL", "ssl_cafile": authority[0]}
        options[option] = f"{scheme}://me:secret@{proxy.address}"
        consumer = new_consumer(topic_name, group_id=topic_name, **login(kafka, "SECURE", **options))
        assert [b"one"] == read(consumer, 1)
        consumer.close()
        assert len(proxy.asked) > 1
        assert {"me"} == {asked.user for asked in proxy.asked}


def test_a_delegation_token(kafka: Kafka, topic_name: str) -> None:
    """The token's id and HMAC log in by SCRAM, as an option and in Java's form. Without the option that marks them as a
    delegation token, the login fails.
    """
    assert isinstance(kafka, KafkaCluster)
    kafka.create_topic(topic_name)
    module = f"{MODULES}scram.ScramLoginModule required"
    entry = f'{module} username="bob" password="builder";'
    token_id, hmac = delegation_token(kafka, "SASL", "SCRAM-SHA-256", entry)
    token = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": token_id, "sasl_plain_password": hmac}
    options = login(kafka, **token)

    def let_in() -> bool:
        with Consumer(**options, sasl_scram_tokenauth=True) as consumer:
            try:
                return topic_name in consumer.list_topics()
            except AuthenticationError:
                return False

    wait_until(let_in, TIMEOUT_S, "the broker to know the token")  # the broker's controller gets the token first
    entry = f'{module} username="{token_id}" password="{hmac}" tokenauth="true";'
    java = {name: value for name, value in options.items() if "plain" not in name}
    with Consumer(**java, sasl_jaas_config=entry) as consumer:
        assert topic_name in consumer.list_topics()
    with Consumer(**options) as consumer, pytest.raises(AuthenticationError, match="refused the login"):
        consumer.list_topics()


# --- refusals ---


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(kafka: Kafka, new_consumer: NewConsumer, topic_name: str, mechanism: str) -> None:
    """The blocking call soon raises an AuthenticationError that says what to change. Further polls do not cause a flood
    of attempts.
    """
    consumer = new_consumer(
        topic_name, group_id=topic_name, **login(kafka, sasl_mechanism=mechanism, sasl_plain_password="hunter2")
    )
    watch = Stopwatch()
    with pytest.raises(
        AuthenticationError, match=rf"refused the login by {mechanism}.*check sasl_plain_username"
    ) as one:
        consumer.list_topics()
    assert watch.seconds() < 5
    assert "hunter2" not in str(one.value)
    assert 58 == one.value.code
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        assert isinstance(raised(consumer), AuthenticationError)
    assert 8 >= sum(
        metric.name == "connection-creation-total" and value for metric, value in consumer.metrics().items()
    )


def test_a_token_that_has_expired(kafka: Kafka, new_consumer: NewConsumer, topic_name: str) -> None:
    """The error contains what the broker reports in the mechanism's own JSON, and what to check."""
    token = unsecured_token("carol", lifetime_s=-60)
    consumer = new_consumer(topic_name, group_id=topic_name, **with_token(kafka, lambda: (token, time.time() + 60)))
    with pytest.raises(AuthenticationError, match=r"OAUTHBEARER: status invalid_token .*expiry"):
        consumer.list_topics()


# --- sessions and credentials that change ---


class Load:
    """Writes numbers until it is stopped."""

    def __init__(self, kafka: Kafka, topic: str, pause_s: float = 0.005) -> None:
        self.count = 0
        self._stop = threading.Event()
        self._kafka, self._topic, self._pause_s = kafka, topic, pause_s
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        producer = self._kafka.producer()
        while not self._stop.wait(self._pause_s):
            producer.produce(self._topic, b"%d" % self.count)
            self.count += 1
        assert 0 == producer.flush(TIMEOUT_S)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def read_under_load(
    kafka: Kafka, consumer: Consumer, topic: str, seconds: float, meanwhile: Callable[[], None] = lambda: None
) -> tuple[list[bytes | None], list[KafkaError]]:
    """Poll for a time during which records are written, and check that all were read. Calls `meanwhile` after a third
    of the time. Returns the values and the errors of poll.
    """
    found: list[bytes | None] = []
    errors: list[KafkaError] = []
    began, called = time.monotonic(), False

    def poll() -> None:
        try:
            found.extend(record.value for record in consumer.poll(0.1))
        except AuthenticationError as error:
            errors.append(error)

    with Load(kafka, topic) as load:
        while time.monotonic() - began < seconds:
            poll()
            if not called and time.monotonic() - began > seconds / 3:
                called = True
                meanwhile()
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < load.count and time.monotonic() < deadline:
        poll()
    assert [b"%d" % number for number in range(load.count)] == found
    return found, errors


def prolonged(caplog: pytest.LogCaptureFixture) -> int:
    """Returns the number of sessions that were prolonged."""
    return sum("has prolonged the session" in record.message for record in caplog.records)


def closed(consumer: Consumer) -> float:
    """Returns the number of connections that were closed."""
    return sum(value for metric, value in consumer.metrics().items() if metric.name == "connection-close-total")


def test_sessions_are_prolonged_under_load(
    kafka: Kafka,
    new_consumer: NewConsumer,
    engine: dict[str, Any],
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that limits sessions to three seconds closes no connection, because each authenticates again in time,
    and every record is returned once and in order. One engine uses a password, the other uses tokens, of which a later
    login takes a new one.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"first"])
    issued: list[str] = []

    def token() -> str:
        issued.append(unsecured_token("carol", lifetime_s=2 * SESSION_MS / 1000))
        return issued[-1]

    options = login(kafka, "SHORT")
    if "group_protocol" in engine:
        options = with_token(kafka, token, "SHORT")
    consumer = new_consumer(topic_name, group_id=topic_name, **options)
    assert [b"first"] == read(consumer, 1)
    closed_before = closed(consumer)
    with caplog.at_level(logging.DEBUG, "kconsumer.net"):
        _, errors = read_under_load(kafka, consumer, topic_name, 6.5)
    assert [] == errors
    assert 4 <= prolonged(caplog)
    assert ("group_protocol" in engine) == (len(issued) >= 2)
    assert 1 >= closed(consumer) - closed_before  # a machine that stalls may miss the deadline once


def test_a_password_that_changes(kafka: Kafka, new_consumer: NewConsumer, topic_name: str, tmp_path: Path) -> None:
    """The password file changes just before or after the broker's password. At worst polls raise for a while; then
    reading continues without losing records.
    """
    kafka.create_topic(topic_name)
    file = tmp_path / "password"
    user = {"sasl_plain_username": "dora", "sasl_plain_password": write_secret(file, f"{topic_name}-1")}
    set_password(kafka, "dora", f"{topic_name}-1")
    options = login(kafka, "SHORT", sasl_mechanism="SCRAM-SHA-256", **user)
    consumer = new_consumer(topic_name, group_id=topic_name, **options)

    def change() -> None:
        set_password(kafka, "dora", f"{topic_name}-2")
        write_secret(file, f"{topic_name}-2")

    _, errors = read_under_load(kafka, consumer, topic_name, 6, change)
    assert all("SCRAM-SHA-256" in str(error) for error in errors)


# --- ACLs ---


@pytest.fixture
def restricted(kafka: Kafka) -> Iterator[dict[str, Any]]:
    """Returns the options of a user without any permission."""
    yield login(kafka, sasl_plain_username="restricted", sasl_plain_password=PASSWORDS["restricted"])
    forbid(kafka, "restricted")


def heals(consumer: Consumer, kinds: type[KafkaError]) -> None:
    """Poll until the only record is returned; until then polls raise errors of this kind."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if consumer.poll(0.2):
                return
        except kinds:
            pass
    raise AssertionError("the record did not come")


def test_a_topic_that_may_not_be_read(
    kafka: Kafka, new_consumer: NewConsumer, restricted: dict[str, Any], topic_name: str
) -> None:
    """A topic may first not be described, then not be read. Each error names the topic and the missing permission; the
    same consumer reads when both are allowed.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"one"])
    allow(kafka, "restricted", "READ", group=topic_name)
    consumer = new_consumer(topic_name, group_id=topic_name, metadata_max_age_ms=1_000, **restricted)
    error = raised(consumer)
    assert isinstance(error, TopicAuthorizationError)
    assert (frozenset({topic_name}), "Describe") == (error.topics, error.operation)
    assert str(error).startswith(topic_name)
    assert "an ACL must allow Describe on the topic" in str(error)
    allow(kafka, "restricted", "DESCRIBE", topic=topic_name)

    def may_not_read() -> bool:
        try:
            consumer.poll(0.2)
        except TopicAuthorizationError as error:
            return error.operation == "Read" and error.topics == {topic_name}
        return False

    wait_until(may_not_read, TIMEOUT_S, "the fetch that is refused")
    allow(kafka, "restricted", "READ", topic=topic_name)
    heals(consumer, TopicAuthorizationError)


def test_a_group_that_may_not_be_used(
    kafka: Kafka, new_consumer: NewConsumer, restricted: dict[str, Any], topic_name: str
) -> None:
    """The error names the group and the missing permission; the same consumer joins when it is allowed."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"one"])
    allow(kafka, "restricted", "READ", topic=topic_name)
    consumer = new_consumer(topic_name, group_id=topic_name, **restricted)
    error = raised(consumer)
    assert isinstance(error, GroupAuthorizationError)
    assert topic_name in str(error)
    assert "an ACL must allow Describe on the group" in str(error)
    allow(kafka, "restricted", "DESCRIBE", group=topic_name)

    def may_not_join() -> bool:
        try:
            consumer.poll(0.2)
        except GroupAuthorizationError as error:
            return error.operation == "Read" and topic_name in str(error)
        return False

    wait_until(may_not_join, TIMEOUT_S, "the refusal to join")
    allow(kafka, "restricted", "READ", group=topic_name)
    heals(consumer, GroupAuthorizationError)
    consumer.commit()


def test_a_commit_that_may_not_be_made(
    kafka: Kafka, new_consumer: NewConsumer, restricted: dict[str, Any], topic_name: str
) -> None:
    """If a permission is revoked while a group works, the commit raises an error that says so."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"one"])
    allow(kafka, "restricted", "READ", topic=topic_name)
    allow(kafka, "restricted", "READ", group=topic_name)
    options = {"enable_auto_commit": False, **restricted}
    consumer = new_consumer(topic_name, group_id=topic_name, **options)
    assert [b"one"] == read(consumer, 1)
    forbid(kafka, "restricted")

    def refused() -> Any:
        try:
            consumer.commit()
        except (GroupAuthorizationError, TopicAuthorizationError) as error:
            return error
        return None

    error = wait_until(refused, TIMEOUT_S, "the refused commit")
    assert "Read" == error.operation
    assert topic_name in str(error)
