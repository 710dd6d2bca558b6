"""User mistakes: each raises one clear error that names the cause and the correction."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, RangeClient, TopicPartition
from kconsumer.errors import (
    BootstrapResolutionError,
    ConfigError,
    InvalidTopicError,
    StaleMetadataError,
    StateError,
    TimeoutError,
    UnknownAssignorError,
)
from support.brokers.kafka import Kafka
from support.harnesses.polling import read

Options = dict[str, Any]


def test_unknown_option_names_the_nearest() -> None:
    """The error of a misspelt option contains the most similar option."""
    with pytest.raises(ConfigError, match=r"auto_ofset_reset.*auto_offset_reset"):
        Consumer(bootstrap_servers="x:1", auto_ofset_reset="earliest")
    with pytest.raises(ConfigError, match=r"max\.pol\.records.*max\.poll\.records"):
        Consumer.from_config({"bootstrap.servers": "x:1", "max.pol.records": "5"})


def test_assignor_that_is_not_installed_lists_those_that_are() -> None:
    """The error of an unknown assignor contains its name, the installed assignors, and close matches."""
    with pytest.raises(UnknownAssignorError, match=r"stiky.*cooperative-sticky.*sticky"):
        Consumer(bootstrap_servers="x:1", group_id="g", assignors=["stiky"])


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer, tp: consumer.seek_to_beginning([tp]),
        lambda consumer, tp: consumer.pause({tp}),
        lambda consumer, tp: consumer.assign(tp),
        lambda consumer, tp: consumer.position("t"),
        lambda consumer, tp: consumer.seek(("t", "0"), 5),
    ],
)
def test_partitions_in_the_wrong_shape(call: Callable[[Consumer, TopicPartition], object]) -> None:
    """A list in place of single partitions, a partition in place of a list, or a topic name alone raises an error that
    shows the argument and the correct form.
    """
    with (
        Consumer(bootstrap_servers="x:1") as consumer,
        pytest.raises(TypeError, match=r"is not a topic-partition; give TopicPartition.*pause\(\*partitions\)"),
    ):
        call(consumer, TopicPartition("t", 0))


@pytest.mark.classic_protocol
def test_no_broker_at_the_address(engine: Options) -> None:
    """The error of a blocking call contains the address that refused the connection."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        Consumer(bootstrap_servers=address, **engine) as consumer,
        pytest.raises(TimeoutError, match=rf"{address}.*refused"),
    ):
        consumer.list_topics(timeout=1)


@pytest.mark.classic_protocol
def test_name_that_does_not_resolve(engine: Options) -> None:
    """The error contains the host name that cannot be resolved."""
    with (
        Consumer(bootstrap_servers="no-such-host.invalid:9092", **engine) as consumer,
        pytest.raises((BootstrapResolutionError, TimeoutError), match=r"no-such-host\.invalid"),
    ):
        consumer.list_topics(timeout=1)


@pytest.mark.classic_protocol
def test_topic_that_does_not_exist(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """A topic that does not exist has no partitions, and a call that needs one raises an error that says so."""
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, **engine) as consumer:
        assert () == consumer.partitions_for(topic_name)
        tp = TopicPartition(topic_name, 0)
        with pytest.raises(TimeoutError, match=rf"{topic_name}.*does not exist"):
            consumer.end_offsets([tp], timeout=1)
        consumer.assign([tp])
        assert not consumer.poll(0.5)
        assert "does not exist" in consumer.partition_states()[tp].reason
        with pytest.raises(TimeoutError, match=rf"{topic_name}.*does not exist"):
            consumer.position(tp, timeout=0.5)


@pytest.mark.classic_protocol
def test_partition_that_does_not_exist(
    kafka: Kafka, topic_name: str, engine: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls that need the partition raise at once and name the existing partitions. poll() returns nothing and logs one
    warning, until the partition is added.
    """
    kafka.create_topic(topic_name, 3)
    kafka.produce(topic_name, [b"0"], partition=0)
    there, missing = TopicPartition(topic_name, 0), TopicPartition(topic_name, 7)
    message = rf"topic {topic_name} has 3 partitions \(0 to 2\), there is no {topic_name}-7"
    servers = kafka.bootstrap_servers
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **engine) as consumer:
        for call in (
            consumer.end_offsets,
            consumer.beginning_offsets,
            lambda tps: consumer.offsets_for_times({tps[1]: 0}),
        ):
            with pytest.raises(TimeoutError, match=message) as raised:
                call([there, missing])
            assert isinstance(raised.value.__cause__, StaleMetadataError)
        consumer.assign([missing, there])
        with pytest.raises(TimeoutError, match=message):
            consumer.position(missing)
        assert [b"0"] == [record.value for record in read(consumer, 1)]
        assert re.search(message, consumer.partition_states()[missing].reason)
        assert 1 == len([entry for entry in caplog.records if re.search(message, entry.getMessage())])
        kafka.add_partitions(topic_name, 8)
        kafka.produce(topic_name, [b"7"], partition=7)
        assert [b"7"] == [record.value for record in read(consumer, 1)]
    with (
        RangeClient(bootstrap_servers=servers) as client,
        pytest.raises(TimeoutError, match=rf"there is no {topic_name}-8"),
    ):
        list(client.read_range((topic_name, 8), "earliest", "latest"))


def test_topic_name_with_illegal_characters(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """poll() raises InvalidTopicError with the topic's name."""
    servers = kafka.bootstrap_servers
    with Consumer("not a legal/name!", bootstrap_servers=servers, group_id=topic_name, **engine) as consumer:

        def poll_on() -> None:
            for _ in range(20):
                consumer.poll(1)

        with pytest.raises(InvalidTopicError, match="not a legal/name!"):
            poll_on()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.poll(0), "subscribe"),
        (lambda c: c.commit(), "group_id"),
        (lambda c: c.subscribe(["t"]), "group_id"),
        (lambda c: c.seek(TopicPartition("t", 0), 1), "not assigned"),
        (lambda c: c.group_metadata(), "group_id"),
        (lambda c: c.pause(TopicPartition("t", 0)), "not assigned"),
    ],
)
def test_calls_that_do_not_fit_the_state(call: Callable[[Consumer], object], message: str) -> None:
    """Without any broker, StateError says which earlier call is missing."""
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer, pytest.raises(StateError, match=message):
        call(consumer)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.poll(-1),
        lambda c: c.poll(0, max_records=0),
        lambda c: c.seek(TopicPartition("t", 0), -1),
        lambda c: c.assign([TopicPartition("", 0)]),
        lambda c: c.assign([TopicPartition("t", -1)]),
        lambda c: c.offsets_for_times({TopicPartition("t", 0): -5}),
    ],
)
def test_arguments_out_of_range(call: Callable[[Consumer], object]) -> None:
    """Negative times, negative offsets and empty names raise ValueError at once."""
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer, pytest.raises(ValueError, match=r".+"):
        call(consumer)


def test_one_string_is_not_a_list_of_topics() -> None:
    """subscribe("topic") raises, because a string is a sequence of letters."""
    with Consumer(bootstrap_servers="x:1", group_id="g") as consumer, pytest.raises(TypeError, match=r"\['t'\]"):
        consumer.subscribe("t")
