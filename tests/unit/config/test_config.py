"""ConsumerConfig: Java's defaults, both spellings, and errors that say what to change."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from kconsumer.config.options import OPTIONS, ConsumerConfig
from kconsumer.errors import ConfigError
from kconsumer.types import IsolationLevel, OffsetReset

SERVERS = {"bootstrap_servers": "localhost:9092"}


def config(**options: object) -> ConsumerConfig:
    return ConsumerConfig(**{**SERVERS, **options})


def refusal(**options: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**options)
    return str(caught.value)


# Restated from the Java consumer's documentation, not from our table.
JAVA_DEFAULTS = {
    "allow.auto.create.topics": True,
    "auto.commit.interval.ms": 5000,
    "check.crcs": True,
    "client.dns.lookup": "use_all_dns_ips",
    "client.rack": "",
    "connections.max.idle.ms": 540000,
    "default.api.timeout.ms": 60000,
    "enable.metrics.push": True,
    "exclude.internal.topics": True,
    "fetch.max.bytes": 52428800,
    "fetch.max.wait.ms": 500,
    "fetch.min.bytes": 1,
    "group.id": None,
    "group.instance.id": None,
    "group.protocol": "classic",
    "group.remote.assignor": None,
    "heartbeat.interval.ms": 3000,
    "isolation.level": "read_uncommitted",
    "max.partition.fetch.bytes": 1048576,
    "max.poll.interval.ms": 300000,
    "max.poll.records": 500,
    "metadata.max.age.ms": 300000,
    "metadata.recovery.strategy": "rebootstrap",
    "metadata.recovery.rebootstrap.trigger.ms": 300000,
    "metrics.num.samples": 2,
    "metrics.recording.level": "INFO",
    "metrics.sample.window.ms": 30000,
    "receive.buffer.bytes": 65536,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30000,
    "retry.backoff.max.ms": 1000,
    "retry.backoff.ms": 100,
    "security.protocol": "PLAINTEXT",
    "send.buffer.bytes": 131072,
    "session.timeout.ms": 45000,
    "socket.connection.setup.timeout.max.ms": 30000,
    "socket.connection.setup.timeout.ms": 10000,
    "sasl.mechanism": "GSSAPI",
    "sasl.login.refresh.buffer.seconds": 300,
    "ssl.endpoint.identification.algorithm": "https",
}


@pytest.mark.parametrize(("key", "default"), JAVA_DEFAULTS.items())
def test_defaults_are_javas(key: str, default: object) -> None:
    """An option that is not given has the Java consumer's default."""
    assert default == getattr(config(), key.replace(".", "_"))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_is_allowed(name: str) -> None:
    """Each option accepts its own default in both spellings, and `explicit` then contains it."""
    row = OPTIONS[name]
    if name == "bootstrap_servers" or row.protocol in ("consumer", "share"):
        return
    assert name in config(**{name: row.default}).explicit
    assert name in config(**{row.java_key: row.default}).explicit


def test_java_keys_as_text() -> None:
    """from_mapping understands dotted keys with text values, mixed with typed snake_case ones."""
    result = ConsumerConfig.from_mapping(
        {
            "bootstrap.servers": "a:1, b:2",
            "group.id": "g",
            "enable.auto.commit": "false",
            "max.poll.records": "7",
            "auto.offset.reset": "earliest",
            "fetch_min_bytes": 9,
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor,sticky",
        }
    )
    assert (("a", 1), ("b", 2)) == result.bootstrap_servers
    assert (False, 7, 9) == (result.enable_auto_commit, result.max_poll_records, result.fetch_min_bytes)
    assert OffsetReset.EARLIEST == result.auto_offset_reset
    assert ("org.apache.kafka.clients.consumer.RangeAssignor", "sticky") == result.assignors
    assert result.assignors == result.partition_assignment_strategy
    assert {"bootstrap_servers", "group_id", "enable_auto_commit", "max_poll_records", "auto_offset_reset",
            "fetch_min_bytes", "assignors"} == result.explicit  # fmt: skip


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("auto_offset_rest", "auto_offset_reset"),
        ("auto.ofset.reset", "auto.offset.reset"),
        ("bootstrap_server", "bootstrap_servers"),
        ("groupid", "group_id"),
        ("session.timeout", "session.timeout.ms"),
        ("partition.assignment.strategies", "partition.assignment.strategy"),
    ],
)
def test_unknown_option_names_the_nearest(typo: str, meant: str) -> None:
    """An unknown option is refused, and the error suggests the nearest option in the spelling that the user chose."""
    assert f"{typo} is not an option of kconsumer; did you mean {meant}?" == refusal(**{typo: 1})


def test_key_that_is_no_text() -> None:
    """A mapping with a key that is not a str is refused with a ConfigError that names the key."""
    with pytest.raises(ConfigError, match="the name of an option must be a str, not 3"):
        ConsumerConfig.from_mapping({3: "x"})  # type: ignore[dict-item]  # the mistake under test
    with pytest.raises(ConfigError, match="self is not an option"):
        ConsumerConfig.from_mapping({"self": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session_timeout_ms", "soon"),
        ("session_timeout_ms", 0),
        ("session_timeout_ms", 2**31),
        ("session_timeout_ms", 1.5),
        ("session_timeout_ms", True),
        ("session_timeout_ms", None),
        ("enable_auto_commit", 1),
        ("enable_auto_commit", "yes"),
        ("check_crcs", "maybe"),
        ("isolation_level", "serializable"),
        ("group_id", ""),
        ("group_id", 5),
        ("group_instance_id", "a b"),
        ("group_instance_id", ""),
        ("group_instance_id", ".."),
        ("group_instance_id", "x" * 250),
        ("auto_offset_reset", "Latest"),
        ("auto_offset_reset", "by_duration:-PT1H"),
        ("auto_offset_reset", "by_duration:1h"),
        ("auto_offset_reset", "by_duration:P"),
        ("auto_offset_reset", "by_duration:PT"),
        ("auto_offset_reset", "by_duration:P1DT"),
        ("auto_offset_reset", 3),
        ("max_poll_records", int),
        ("connections_max_idle_ms", -2),
        ("assignors", []),
        ("assignors", ["range", "range"]),
        ("assignors", [3]),
        ("assignors", "range,,sticky"),
        ("key_deserializer", "com.example.Mine"),
        ("value_deserializer", 3),
        ("on_commit", "print"),
        ("buffer_memory", 0),
        ("sasl_login_refresh_window_factor", 2.0),
        ("ssl_keystore_type", "pem2"),
        ("interceptors", 3),
        ("interceptors", [object()]),
        ("interceptors", "com.example.Audit"),
        ("metrics_reporters", [object()]),
        ("metrics_reporters", "com.example.Reporter"),
        ("ssl_cipher_suites", [1]),
    ],
)
def test_a_value_that_does_not_fit(name: str, value: object) -> None:
    """A value of a wrong type or range is refused; the error has the option, the value and what is allowed."""
    message = refusal(**{name: value})
    assert message.startswith(f"{name}={value!r} is not allowed")
    assert OPTIONS[name].kind.text in message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("latest", OffsetReset.LATEST),
        ("none", OffsetReset.NONE),
        (OffsetReset.EARLIEST, OffsetReset.EARLIEST),
        ("by_duration:PT1H30M", OffsetReset.by_duration(5_400_000)),
        ("by_duration:P2DT0.5S", OffsetReset.by_duration(172_800_500)),
        ("by_duration:pt1m-30s", OffsetReset.by_duration(30_000)),
        ("by_duration:PT0S", OffsetReset.by_duration(0)),
    ],
)
def test_offset_reset(value: object, expected: OffsetReset) -> None:
    """Java's names of reset policies and an ISO-8601 duration become an OffsetReset."""
    assert expected == config(auto_offset_reset=value).auto_offset_reset


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 , b:2,", (("a", 1), ("b", 2))),
        (["a:1", ("b", 2), ("::1", 3)], (("a", 1), ("b", 2), ("::1", 3))),
        ("[::1]:9092,[fe80::1%eth0]:1", (("::1", 9092), ("fe80::1%eth0", 1))),
        ("PLAINTEXT://kafka_1.example:9092", (("kafka_1.example", 9092),)),
        ("PLAINTEXT://[::1]:9", (("::1", 9),)),
        (("a:1", "a:1"), (("a", 1),)),
    ],
)
def test_bootstrap_servers(value: object, expected: object) -> None:
    """Addresses are read from a str or a sequence; a repeated one counts once."""
    assert expected == ConsumerConfig(bootstrap_servers=value).bootstrap_servers


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("localhost", "has no port; write localhost:9092"),
        ("[::1]", "has no port"),
        ("::1:9092", "an IPv6 address is written in brackets"),
        ("a:1;b:1", "addresses are separated by commas; write a:1,b:1"),
        ("a:1 b:1", "addresses are separated by commas; write a:1,b:1"),
        ("a:1 | b:1", "addresses are separated by commas; write a:1,b:1"),
        ("PLAINTEXT://a:1;PLAINTEXT://b:1", "separated by commas; write PLAINTEXT://a:1,PLAINTEXT://b:1"),
        ("['a:1']", "a list is written without brackets and quotes"),
        ("['a:1', 'b:1']", "a list is written without brackets and quotes"),
        ('["a:1","b:1"]', "a list is written without brackets and quotes"),
        ("a:0", "a port is a number from 1 to 65535"),
        ("a:65536", "a port is a number from 1 to 65535"),
        ("a:b", "is not host:port"),
        ("https://a:443", "is a web address"),
        ("a:1,,b:2", "it has an empty entry"),
        ("", "it names no broker"),
        ([], "it names no broker"),
        ([None], "it has an empty entry"),
        ([5], "neither a str nor a (host, port) pair"),
        (5, "it takes host:port addresses"),
        (None, "cannot be None"),
    ],
)
def test_bad_bootstrap_servers(value: object, reason: str) -> None:
    """An invalid address is refused with the reason."""
    message = refusal(bootstrap_servers=value)
    assert message.startswith(f"bootstrap_servers={value!r} is not allowed")
    assert reason in message


def test_bootstrap_servers_are_required() -> None:
    """Without bootstrap servers an error shows how to set them."""
    with pytest.raises(ConfigError, match="bootstrap_servers is required"):
        ConsumerConfig(group_id="g")


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"heartbeat_interval_ms": 45_000}, "heartbeat_interval_ms", "session_timeout_ms"),
        ({"session_timeout_ms": 2_000}, "heartbeat_interval_ms", "session_timeout_ms"),
        ({"enable_auto_commit": True}, "enable_auto_commit", "group_id"),
        ({"group_instance_id": "i"}, "group_instance_id", "group_id"),
        ({"group_remote_assignor": "uniform"}, "group_remote_assignor", "group_protocol"),
        (
            {"assignors": ["range"], "partition_assignment_strategy": ["range"]},
            "assignors",
            "partition_assignment_strategy",
        ),
        ({"group.id": "a", "group_id": "a"}, "group.id", "group_id"),
        ({"fetch_max_wait_ms": 500, "request_timeout_ms": 500}, "fetch_max_wait_ms", "request_timeout_ms"),
        ({"fetch_max_wait_ms": 30_000}, "fetch_max_wait_ms", "request_timeout_ms"),
        ({"receive_message_max_bytes": 1_000_000}, "receive_message_max_bytes", "fetch_max_bytes"),
    ],
)
def test_contradictions_name_both(options: dict[str, object], first: str, second: str) -> None:
    """Two options that exclude each other are refused at construction, and the error names both."""
    message = refusal(**options)
    assert first in message
    assert second in message


def test_a_short_request_timeout_shortens_the_wait_of_fetches() -> None:
    """fetch_max_wait_ms is by default at most half of request_timeout_ms, so that no fetch times out."""
    assert (500, 250, 0) == tuple(config(request_timeout_ms=ms).fetch_max_wait_ms for ms in (1000, 500, 1))


def test_the_largest_response_of_the_protocol_can_be_received() -> None:
    """The option accepts the largest size that a frame can have, because a batch may have almost 2 GiB."""
    largest = 2**31 - 1
    config = ConsumerConfig(bootstrap_servers="localhost:9092", receive_message_max_bytes=largest)
    assert largest == config.receive_message_max_bytes


def test_time_to_resolve_bootstrap_servers() -> None:
    """bootstrap_resolve_timeout_ms is 0 by default and not negative, as in Java."""
    assert 0 == config().bootstrap_resolve_timeout_ms
    assert 5000 == config(bootstrap_resolve_timeout_ms=5000).bootstrap_resolve_timeout_ms
    assert refusal(bootstrap_resolve_timeout_ms=-1).startswith("bootstrap_resolve_timeout_ms")


@pytest.mark.parametrize("level", IsolationLevel)
def test_isolation_level(level: IsolationLevel) -> None:
    """The option accepts its text and the member of the enum."""
    for given in (level, level.value):
        found = config(isolation_level=given)
        assert (level.value, level is IsolationLevel.READ_COMMITTED) == (found.isolation_level, found.read_committed)


def test_secrets_stay_hidden() -> None:
    """Neither an error nor a repr shows a password."""
    for name in ("ssl_password", "sasl_plain_password", "sasl.jaas.config"):
        assert "hunter2" not in refusal(**{name: ["hunter2"]})
    assert "hunter2" not in repr(config(ssl_password="hunter2"))


def test_default_client_id() -> None:
    """The default is consumer-<group>-<n>, with a counter of the process or the instance id as <n>; without a group it
    is consumer-<n>.
    """
    first, second = config(group_id="g"), config(group_id="g")
    numbers = [int(one.client_id.removeprefix("consumer-g-")) for one in (first, second)]
    assert numbers[0] + 1 == numbers[1]
    assert "consumer-g-i1" == config(group_id="g", group_instance_id="i1").client_id
    assert re.fullmatch(r"consumer-\d+", config().client_id)
    assert "mine" == config(client_id="mine").client_id


def test_auto_commit_follows_the_group() -> None:
    """Auto-commit is enabled with a group and disabled without one, unless it is set."""
    assert not config().enable_auto_commit
    assert config(group_id="g").enable_auto_commit
    assert not config(group_id="g", enable_auto_commit=False).enable_auto_commit


def test_reconnect_backoff_alone_is_constant() -> None:
    """With only reconnect_backoff_ms set, its maximum is the same value, as in Java."""
    assert 5000 == config(reconnect_backoff_ms=5000).reconnect_backoff_max_ms
    assert 9 == config(reconnect_backoff_ms=5, reconnect_backoff_max_ms=9).reconnect_backoff_max_ms


def test_deserializers() -> None:
    """Callables, objects with deserialize() and the names of Kafka's deserializer classes are accepted."""

    class Reader:
        def deserialize(self, topic: str, headers: object, data: bytes) -> object:
            return data

    reader = Reader()
    assert json.loads is config(value_deserializer=json.loads).value_deserializer
    assert reader is config(value_deserializer=reader).value_deserializer
    assert "pass an instance of Reader" in refusal(value_deserializer=Reader)
    java = "org.apache.kafka.common.serialization."
    assert config(key_deserializer=java + "ByteArrayDeserializer").key_deserializer is None
    assert "ü" == config(key_deserializer=java + "StringDeserializer").key_deserializer("ü".encode())
    assert -2 == config(key_deserializer=java + "LongDeserializer").key_deserializer(b"\xff" * 7 + b"\xfe")
    with pytest.raises(ValueError, match="3 bytes where 4 are needed"):
        config(key_deserializer="IntegerDeserializer").key_deserializer(b"abc")


def test_a_config_does_not_change() -> None:
    """A config is frozen, can be pickled, and its repr has the options that the user set."""
    one = config(group_id="g", max_poll_records=3)
    with pytest.raises(AttributeError, match="immutable"):
        one.group_id = "h"
    with pytest.raises(AttributeError, match="immutable"):
        del one.group_id
    assert one.as_mapping() == pickle.loads(pickle.dumps(one)).as_mapping()
    assert "ConsumerConfig(bootstrap_servers=(('localhost', 9092),), group_id='g', max_poll_records=3)" == repr(one)
