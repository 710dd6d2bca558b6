"""What errors say if a broker is too old for what a program uses: the option or feature, and the release it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kconsumer import Consumer, ShareConsumer, SubscriptionPattern, groups
from kconsumer.errors import KafkaError, UnsupportedVersionError
from kconsumer.testing import FakeCluster


class Case(NamedTuple):
    """A call that a release of Kafka does not support, and what the error must name."""

    release: str
    call: Callable[[str], object]
    names: tuple[str, ...]


def poll(servers: str, **options: Any) -> None:
    pattern = options.pop("pattern", None)
    with Consumer(bootstrap_servers=servers, group_id="g", enable_auto_commit=False, **options) as consumer:
        consumer.subscribe(["t"] if pattern is None else pattern)
        poll_until_error(consumer)


def poll_shared(servers: str) -> None:
    with ShareConsumer("t", bootstrap_servers=servers, group_id="g") as consumer:
        poll_until_error(consumer)


def poll_until_error(consumer: Consumer | ShareConsumer) -> None:
    for _ in range(100):
        consumer.poll(timeout=0.2)


CASES = {
    "static member": Case(
        "2.2", lambda servers: poll(servers, group_instance_id="a"), ("group_instance_id", "Kafka 2.3", "JoinGroup")
    ),
    "static member, threaded": Case(
        "2.2",
        lambda servers: poll(servers, group_instance_id="a", engine="threaded"),
        ("group_instance_id", "Kafka 2.3"),
    ),
    "consumer protocol": Case(
        "3.9",
        lambda servers: poll(servers, group_protocol="consumer"),
        ('group_protocol="consumer" needs Kafka 4.0', 'use group_protocol="classic"', "ConsumerGroupHeartbeat"),
    ),
    "pattern of the broker": Case(
        "3.9",
        lambda servers: poll(servers, group_protocol="consumer", pattern=SubscriptionPattern("t.*")),
        ("SubscriptionPattern needs Kafka 4.0",),
    ),
    "share group": Case("3.9", poll_shared, ("share groups need Kafka 4.2",)),
    "states of groups": Case(
        "2.5", lambda servers: groups.list(servers, states=["stable"]), ("filtering by states", "Kafka 2.6")
    ),
    "types of groups": Case(
        "3.7", lambda servers: groups.list(servers, types=["classic"]), ("filtering by types", "Kafka 3.8")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_what_needs_a_later_broker(name: str) -> None:
    """The error has the feature, the release that it needs, and Kafka's code once. It makes no guess at the release."""
    case = CASES[name]
    with FakeCluster(version=case.release) as cluster:
        cluster.create_topic("t")
        with pytest.raises(UnsupportedVersionError) as raised:
            case.call(cluster.bootstrap_servers)
    text = str(raised.value)
    assert all(each in text for each in case.names), text
    assert 1 == text.count("UNSUPPORTED_VERSION"), text
    assert "2.1" not in text
    assert raised.value.message in text
    assert isinstance(raised.value, KafkaError)
