"""The configuration of a share consumer: options that it refuses, and options that only it has."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer.config.options import OPTIONS
from kconsumer.errors import ConfigError
from kconsumer.share.config import REFUSED, ShareConsumerConfig
from support.harnesses.inside import config_of

#: The list in Java's ShareConsumerConfig of Kafka 4.4.
OF_JAVA = (
    "auto.offset.reset",
    "enable.auto.commit",
    "group.instance.id",
    "isolation.level",
    "partition.assignment.strategy",
    "interceptor.classes",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol",
    "group.remote.assignor",
)


def config(**options: Any) -> ShareConsumerConfig:
    """Returns a configuration with these options."""
    return ShareConsumerConfig(**{"bootstrap_servers": "b:9092", "group_id": "g", **options})


@pytest.mark.parametrize("key", OF_JAVA)
def test_what_java_refuses(key: str) -> None:
    """Each option that Java refuses is refused, under both of its names, with the reason."""
    for name in (key, key.replace(".", "_")):
        with pytest.raises(ConfigError, match=f"{name} is not an option of ShareConsumer: "):
            config(**{name: "x"})


def test_refused_options_exist() -> None:
    """Every refused option is an option of other consumers."""
    assert [] == [name for name in REFUSED if name not in OPTIONS]


def test_defaults() -> None:
    """The defaults are Java's."""
    assert ("implicit", "batch_optimized", None) == (
        config().share_acknowledgement_mode,
        config().share_acquire_mode,
        config().on_acknowledge,
    )


@pytest.mark.parametrize("name", ["share_acknowledgement_mode", "share_acquire_mode"])
def test_wrong_modes(name: str) -> None:
    """An unknown mode is refused with the modes that exist."""
    with pytest.raises(ConfigError, match=f"{name}.*one of"):
        config(**{name: "sometimes"})


@pytest.mark.parametrize("name", ["share_acknowledgement_mode", "share_acquire_mode", "on_acknowledge"])
def test_a_consumer_refuses_options_of_share_groups(name: str) -> None:
    """Another consumer refuses an option of share consumers, and names the class that has it."""
    with pytest.raises(ConfigError, match=f"{name} is an option of ShareConsumer"):
        Consumer(bootstrap_servers="b:9092", group_id="g", **{name: OPTIONS[name].default})


def test_a_group_is_required() -> None:
    """Without a group the error says which option is missing."""
    with pytest.raises(ConfigError, match="group_id is required"):
        ShareConsumer.from_config({"bootstrap.servers": "b:9092"})


def test_a_mapping_of_options() -> None:
    """from_config takes Java's names with text values, and the topics."""
    mapping = {"bootstrap.servers": "b:9092", "group.id": "g", "max.poll.records": "7"}
    consumer = ShareConsumer.from_config(mapping, "t")
    assert (frozenset({"t"}), 7) == (consumer.subscription(), config_of(consumer).max_poll_records)
    consumer.close()
