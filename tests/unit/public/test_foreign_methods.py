"""Methods and forms of other clients raise errors that name the replacement."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kconsumer import Consumer, ConsumerRecords, ShareConsumer, TopicPartition
from kconsumer._common.foreign_methods import CONSUMER, MODULE, RECORDS, SHARE_CONSUMER
from kconsumer._core.decode import ShareRecord
from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
from kconsumer.decode import decode_batches
from kconsumer.testing import MockConsumer
from kconsumer.testing.batches import build_batch

OWNERS = (Consumer, ConsumerRecords, ShareRecord)
OF_PYTHON = ("iter", "next", "items", "values")


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """A consumer that never connects."""
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as made:
        yield made


@pytest.mark.parametrize("name", CONSUMER)
def test_methods_of_other_consumers(consumer: Consumer, name: str) -> None:
    """A method of another client raises an AttributeError that names its replacement."""
    assert not hasattr(consumer, name)
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; {re.escape(CONSUMER[name])}$"):
        getattr(consumer, name)


@pytest.mark.parametrize("name", SHARE_CONSUMER)
def test_methods_of_other_share_consumers(name: str) -> None:
    """A method of another client's share consumer raises an AttributeError that names its replacement."""
    with ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        assert name not in dir(consumer)
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; {re.escape(SHARE_CONSUMER[name])}$"):
            getattr(consumer, name)


@pytest.mark.parametrize("ours", [Consumer, AsyncConsumer, ShareConsumer, AsyncShareConsumer])
def test_every_method_of_the_installed_clients_has_a_counterpart_or_a_hint(ours: type) -> None:
    """Each public method of another client exists here, or raises an AttributeError that names its replacement."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from confluent_kafka.aio import AIOConsumer
        from kafka import KafkaConsumer
    share = ours in (ShareConsumer, AsyncShareConsumer)
    theirs: list[type] = [confluent_kafka.Consumer, AIOConsumer, KafkaConsumer, aiokafka.AIOKafkaConsumer]
    theirs += [Consumer, confluent_kafka.ShareConsumer] if share else []
    methods = {name for client in theirs for name in dir(client) if not name.startswith("_") and name.islower()}
    hints = SHARE_CONSUMER if share else CONSUMER
    assert set() == {name for name in methods if not hasattr(ours, name)} - hints.keys()


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_neither_a_dict_nor_a_message(name: str) -> None:
    """Methods of kafka-python's dict and confluent-kafka's message raise an AttributeError that names their
    replacement.
    """
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; {re.escape(RECORDS[name])}$"):
        getattr(ConsumerRecords.EMPTY, name)


@pytest.mark.parametrize(
    ("owner", "table"), [(Consumer, CONSUMER), (ShareConsumer, SHARE_CONSUMER), (ConsumerRecords, RECORDS)]
)
def test_advice_names_what_exists(owner: type, table: dict[str, str]) -> None:
    """Every method in the advice exists in the consumer or its records, and no key of the table does."""
    for name, advice in table.items():
        assert not hasattr(owner, name)
        for method in re.findall(r"([a-z_]+)\(", advice):
            assert method in OF_PYTHON or any(hasattr(cls, method) for cls in (owner, *OWNERS))


def test_a_subclass_may_have_such_a_method(consumer: Consumer) -> None:
    """Names of other clients do not appear in dir(), and a subclass or an object may have attributes with them."""

    class Ours(Consumer):
        def start(self) -> str:
            return "started"

    assert not set(CONSUMER) & set(dir(consumer))
    assert not set(RECORDS) & set(dir(ConsumerRecords.EMPTY))
    with Ours(bootstrap_servers="127.0.0.1:1") as ours:
        assert ours.start() == "started"
        assert "start" in dir(ours)
        assert "stop" not in dir(ours)
    name = "start"  # a variable, because a type checker knows no such attribute
    with pytest.raises(AttributeError, match="type object 'Consumer' has no attribute 'start'; not needed"):
        getattr(Consumer, name)
    setattr(consumer, name, 1)
    assert getattr(consumer, name) == 1
    assert name in dir(consumer)


def test_any_other_name(consumer: Consumer) -> None:
    """Any other unknown name raises the usual AttributeError."""
    for name in ("zzz", "_zzz"):
        for owner in (consumer, ConsumerRecords.EMPTY):
            with pytest.raises(AttributeError, match=f"object has no attribute '{name}'$"):
                getattr(owner, name)
    assert 0 == len(copy.copy(ConsumerRecords.EMPTY))


@pytest.mark.parametrize("key", [0, TopicPartition("t", 0), slice(1)])
def test_no_subscript(key: object) -> None:
    """records[0] and records[partition] raise an error with the right form; iteration works."""
    records: Any = decode_batches(build_batch([(None, b"v")]), topic="t")
    with pytest.raises(TypeError, match=r"neither a list nor a dict: .*records\.by_partition\(\)"):
        records[key]
    assert [b"v"] == [one.value for one in records]
    assert 1 == len(records.records(("t", 0)))


def test_a_record_has_no_error() -> None:
    """record.error(), the first line of most loops over confluent-kafka, has a hint. Other unknown names have none."""
    (record,) = decode_batches(build_batch([(None, b"v")]), topic="t")
    name = "error"  # a variable, because a type checker knows no such attribute
    assert not hasattr(record, name)
    with pytest.raises(AttributeError, match=r"'ConsumerRecord' object has no attribute 'error'; poll\(\) raises"):
        getattr(record, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'zzz'$"):
        getattr(record, "z" * 3)


def test_timeout_in_milliseconds(consumer: Consumer) -> None:
    """The error for poll(timeout_ms=1000) names the argument in seconds."""
    with pytest.raises(TypeError, match=r"write poll\(timeout=1\.5\), not timeout_ms="):
        consumer.poll(timeout_ms=1500)  # type: ignore[arg-type]  # the mistake under test


def test_a_mapping_of_options() -> None:
    """The error for Consumer({...}) names from_config; a subclass may accept a mapping."""
    make: Callable[..., Consumer] = Consumer
    with pytest.raises(TypeError, match=r"write Consumer\.from_config\("):
        make({"bootstrap.servers": "a:1"})

    class Ours(Consumer):
        def __init__(self, options: dict[str, Any]) -> None:
            super().__init__(**options)

    Ours({"bootstrap_servers": "a:1"}).close()


def test_pattern_as_text(consumer: Consumer) -> None:
    """The error for a name that begins with ^, librdkafka's form of a pattern, names re.compile."""
    with pytest.raises(ValueError, match=r"for a pattern pass re\.compile\('orders\.\*'\), which matches whole names"):
        consumer.subscribe(["^orders.*"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.commit(message=1), r"commit\(\) has no argument 'message'; pass records"),
        (lambda c: c.commit(asynchronous=False), r"commit_async\(\) does not"),
        (lambda c: c.subscribe(pattern="x.*"), r"subscribe\(re\.compile"),
        (lambda c: c.position(("t", 0), timeout_ms=5), "timeouts are in seconds"),
        (lambda c: c.close(autocommit=False), r"close\(\) commits if enable_auto_commit is set"),
        (lambda c: TopicPartition("t", 0, 5), r"no offset: write seek\(tp, offset\)"),
        (lambda c: copy.copy(c), "cannot be pickled or copied; make one in each process"),
        (lambda c: Consumer(**{"bootstrap.servers": "a:1"}), r"write Consumer\.from_config"),
        (lambda c: c.poll(num_messages=5), r"poll\(\) takes max_records=5, not num_messages="),
        (lambda c: Consumer.from_config({"a": 1}, group_id="g"), r"from_config\({\*\*options, 'group_id': …}\)"),
        (lambda c: ShareConsumer.from_config({}, "t", group_id="g"), r"takes the options in its mapping"),
    ],
)
def test_arguments_of_other_clients(consumer: Consumer, call: Callable[[Any], Any], message: str) -> None:
    """An argument that another client has raises a TypeError that says what to write."""
    with pytest.raises(TypeError, match=message):
        call(consumer)


def test_arguments_of_other_clients_for_asyncio() -> None:
    """Coroutines of AsyncConsumer raise the same errors, and remain coroutine functions."""

    async def call(method: str, **arguments: object) -> None:
        async with AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
            assert inspect.iscoroutinefunction(getattr(consumer, method))
            await getattr(consumer, method)(**arguments)

    with pytest.raises(TypeError, match=r"commit\(\) has no argument 'message'; pass records"):
        asyncio.run(call("commit", message=1))
    with pytest.raises(TypeError, match="timeouts are in seconds"):
        asyncio.run(call("list_topics", timeout_ms=5))


def test_records_are_not_committed_by_a_share_consumer() -> None:
    """The error of commit(records) names acknowledge()."""
    with ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as share:
        commit: Callable[..., Any] = share.commit
        with pytest.raises(TypeError, match=r"acknowledge\(\) each"):
            commit(ConsumerRecords.EMPTY)


@pytest.mark.parametrize("name", MODULE)
def test_names_of_other_clients(name: str) -> None:
    """To import a name of another client raises an ImportError that says what to import."""
    with pytest.raises(ImportError, match=re.escape(MODULE[name])):
        exec(f"from kconsumer import {name}")


def test_likely_milliseconds(caplog: pytest.LogCaptureFixture) -> None:
    """A timeout of 1000 or more as an int, and a time that is probably in seconds, log a warning."""
    with caplog.at_level("WARNING"), MockConsumer(auto_offset_reset="earliest") as mock:
        mock.assign([("t", 0)])
        mock.add_records(("t", 0), [1])
        mock.poll(1000)
        mock.offsets_for_times({("t", 0): 1_700_000_000})
    assert ["not in ms" in caplog.text, "multiply them by 1000" in caplog.text] == [True, True]
