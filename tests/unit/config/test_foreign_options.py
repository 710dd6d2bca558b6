"""Options of librdkafka, confluent-kafka, kafka-python, aiokafka and Java are accepted under their own name, or refused
with their replacement. `data/option_names.json` has the names that these clients document.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kconsumer import Consumer
from kconsumer.config.foreign_options import FOREIGN
from kconsumer.config.options import ALIASES, OPTIONS, ConsumerConfig, canonical_name
from kconsumer.errors import ConfigError
from kconsumer.types import OffsetReset

NAMES = json.loads((Path(__file__).parent / "data" / "option_names.json").read_text(encoding="utf-8"))
SERVERS = {"bootstrap_servers": "localhost:9092"}
# Words with underscores in the advice that are no options.
OTHER_WORDS = {
    "auto_offset_reset", "current_lag", "end_offsets", "on_assign", "on_revoke", "on_lost", "expires_at_s",
    "verify_mode", "verify_flags", "client_credentials",
}  # fmt: skip

ALIAS_VALUES: dict[str, tuple[object, object]] = {
    "partition_assignment_strategy": ("range", ("range",)),
    "interceptor_classes": ([], ()),
    "metric_reporters": ([], ()),
    "metadata_broker_list": ("a:1,b:2", (("a", 1), ("b", 2))),
    "auto_commit_enable": ("false", False),
    "fetch_wait_max_ms": (7, 7),
    "fetch_message_max_bytes": ("7", 7),
    "socks5_proxy": ("socks5://p:1", "socks5://p:1"),
    "ssl_ca_location": ("ca.pem", "ca.pem"),
    "ssl_ca_pem": ("PEM", "PEM"),
    "ssl_certificate_location": ("me.pem", "me.pem"),
    "ssl_certificate_pem": ("PEM", "PEM"),
    "ssl_key_location": ("key.pem", "key.pem"),
    "ssl_key_pem": ("PEM", "PEM"),
    "sasl_mechanisms": ("PLAIN", "PLAIN"),
    "sasl_username": ("me", "me"),
    "sasl_password": ("secret", "secret"),
    "sasl_oauthbearer_client_id": ("me", "me"),
    "sasl_oauthbearer_client_secret": ("secret", "secret"),
    "sasl_oauthbearer_extensions": ("a=1,b=2", {"a": "1", "b": "2"}),
}


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_mapping({**SERVERS, name: "x"})
    return str(caught.value)


@pytest.mark.parametrize("client", NAMES)
def test_every_option_of_other_clients(client: str) -> None:
    """Each documented name is an option, an alias, or refused with the advice of the table, never with a guess."""
    for name in NAMES[client]:
        if canonical_name(name) not in OPTIONS:
            assert f"{name} is not an option of kconsumer: {FOREIGN[name.replace('.', '_')]}" == refusal(name)


@pytest.mark.parametrize("name", FOREIGN)
def test_advice_is_true(name: str) -> None:
    """No name in the table is an option of kconsumer, and the options that the advice names exist."""
    assert name not in OPTIONS
    assert name not in ALIASES
    assert f"{name} is not an option of kconsumer: {FOREIGN[name]}" == refusal(name)
    assert set() == set(re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b", FOREIGN[name])) - set(OPTIONS) - OTHER_WORDS


def test_aliases() -> None:
    """A name of another client sets the option with the same meaning, in snake_case and with dots."""
    assert ALIASES.keys() == ALIAS_VALUES.keys()
    for alias, (given, expected) in ALIAS_VALUES.items():
        for spelling in (alias, alias.replace("_", ".")):
            config = ConsumerConfig.from_mapping(
                ({} if alias == "metadata_broker_list" else SERVERS) | {spelling: given}
            )
            assert expected == getattr(config, ALIASES[alias])


def test_a_configuration_of_confluent_kafka() -> None:
    """A typical configuration of confluent-kafka works unchanged, and no secret is shown."""
    config = ConsumerConfig.from_mapping(
        {
            "metadata.broker.list": "a:9092",
            "group.id": "g",
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": "ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "me",
            "sasl.password": "hunter2",
            "fetch.wait.max.ms": 100,
            "fetch.message.max.bytes": 1000,
        }
    )
    assert ("ca.pem", "", "me") == (
        config.ssl_cafile, config.ssl_endpoint_identification_algorithm, config.sasl_plain_username
    )  # fmt: skip
    assert "hunter2" not in repr(config)


def test_values_of_other_clients() -> None:
    """The error for another client's offset reset names Kafka's value; as in kafka-python, infinity means no time
    limit.
    """
    for word, ours in {"smallest": "earliest", "end": "latest", "error": "none"}.items():
        with pytest.raises(ConfigError, match=f"use {ours}"):
            ConsumerConfig(**SERVERS, auto_offset_reset=word)
    assert OffsetReset.LATEST == ConsumerConfig(**SERVERS).auto_offset_reset
    assert ConsumerConfig(**SERVERS, consumer_timeout_ms=float("inf")).consumer_timeout_ms is None
    assert 7 == ConsumerConfig(**SERVERS, consumer_timeout_ms=7).consumer_timeout_ms
    with pytest.raises(ConfigError, match=r"consumer_timeout_ms=7\.5 is not allowed"):
        ConsumerConfig(**SERVERS, consumer_timeout_ms=7.5)


@pytest.mark.parametrize("name", ["read_timeout_ms", "log_levels", "callback", "timeout_ms", "cafile", "zzz"])
def test_no_wrong_guess(name: str) -> None:
    """For a name that is not similar to an option no option is suggested; the error refers to help()."""
    assert f"{name} is not an option of kconsumer; help(kconsumer.ConsumerConfig) lists them" == refusal(name)


def test_help_lists_options() -> None:
    """help(ConsumerConfig) names every option, as the message promises."""
    import pydoc

    text = pydoc.render_doc(ConsumerConfig, renderer=pydoc.plaintext)
    assert set() == {name for name in OPTIONS if f" {name} = <option: " not in text}


def test_both_names_of_one_option() -> None:
    """An option and its alias together are refused, and the message has both names."""
    with pytest.raises(ConfigError, match=r"ssl_cafile and ssl\.ca\.location are names of the same option"):
        Consumer.from_config({**SERVERS, "ssl_cafile": "a", "ssl.ca.location": "b"})
