"""The forms that a deserializer may have, and the arguments of each."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer._core.decode import PartitionFetch
from kconsumer.config.options import ConsumerConfig
from kconsumer.deserializers import ContextDeserializer, ObjectDeserializer, PlainDeserializer, adapt
from kconsumer.errors import ConfigError, RecordDeserializationError
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import TopicPartition

HEADERS = (("h", b"x"),)


class WithMethod:
    """A deserializer in the form of kafka-python and Java."""

    def deserialize(self, topic: str, headers: Any, data: bytes) -> object:
        return topic, headers, data


class WithContext:
    """A deserializer in the form of confluent-kafka, with an optional context."""

    def __call__(self, value: bytes, ctx: Any = None) -> object:
        return value, ctx.topic, ctx.field, ctx.headers


def with_required_context(data: bytes, where: Any) -> object:
    return data, where.topic, where.field, where.headers


def with_option(data: bytes, encoding: str = "utf-8") -> str:
    return data.decode(encoding)


class Both(WithMethod):
    def __call__(self, data: bytes) -> object:
        raise AssertionError("the method is what counts")


@pytest.mark.parametrize(
    ("deserializer", "data", "expected"),
    [
        (json.loads, b'{"a": 1}', {"a": 1}),
        (bytes.decode, b"text", "text"),
        (int, b"17", 17),
        (str, b"x", "b'x'"),
        (lambda data: data[::-1], b"abc", b"cba"),
        (with_option, b"text", "text"),
        (len, b"four", 4),
        (bytearray, b"x", bytearray(b"x")),
    ],
)
def test_plain_callables_get_the_bytes(deserializer: Any, data: bytes, expected: object) -> None:
    """Functions, methods, built-ins and classes receive the bytes; their own optional parameters keep
    their defaults.
    """
    adapted = adapt(deserializer, "value")
    assert isinstance(adapted, PlainDeserializer)
    assert expected == adapted("t", HEADERS, data)


@pytest.mark.parametrize("deserializer", [WithMethod(), Both()])
def test_objects_with_a_method_get_topic_and_headers(deserializer: Any) -> None:
    """An object with deserialize() is called by that method, even if it is callable."""
    adapted = adapt(deserializer, "key")
    assert isinstance(adapted, ObjectDeserializer)
    assert ("t", HEADERS, b"d") == adapted("t", HEADERS, b"d")


@pytest.mark.parametrize("deserializer", [WithContext(), with_required_context])
@pytest.mark.parametrize("field", ["key", "value"])
def test_callables_with_a_context_get_one(deserializer: Any, field: str) -> None:
    """The second argument is a context with topic, field and headers."""
    adapted = adapt(deserializer, field)
    assert isinstance(adapted, ContextDeserializer)
    assert (b"d", "t", field, [("h", b"x")]) == adapted("t", HEADERS, b"d")


@pytest.mark.parametrize("deserializer", [json.loads, WithMethod(), WithContext()])
def test_null_is_never_deserialized(deserializer: Any) -> None:
    """As in Java, null is returned without a call of the deserializer."""
    assert adapt(deserializer, "value")("t", HEADERS, None) is None


def test_confluents_own_deserializers() -> None:
    """The classes of confluent-kafka work as they are."""
    from confluent_kafka.serialization import DoubleDeserializer, IntegerDeserializer, StringDeserializer

    assert "é" == adapt(StringDeserializer("utf_8"), "value")("t", (), "é".encode())
    assert 258 == adapt(IntegerDeserializer(), "value")("t", (), b"\x00\x00\x01\x02")
    assert 1.5 == adapt(DoubleDeserializer(), "key")("t", (), b"\x3f\xf8" + bytes(6))


@pytest.mark.parametrize("wrong", [5, "utf-8", b"", object()])
def test_what_is_no_deserializer_is_a_config_error(wrong: object) -> None:
    """The error names the option and the allowed forms."""
    with pytest.raises(ConfigError, match="value_deserializer must be a callable or have"):
        adapt(wrong, "value")


def test_a_class_with_the_method_is_a_config_error() -> None:
    """A class in place of its instance raises an error at once, because it would fail for the first record."""
    with pytest.raises(ConfigError, match="key_deserializer is the class WithMethod; give an instance"):
        adapt(WithMethod, "key")


def test_each_form_in_a_run() -> None:
    """A run calls each form with the topic and headers of the record."""
    tp = TopicPartition("orders", 1)
    data = build_batch([Rec(b"v", b"k", [("h", b"x")])])
    expected = {
        bytes.hex: "76",
        WithMethod(): ("orders", HEADERS, b"v"),
        WithContext(): (b"v", "orders", "value", [("h", b"x")]),
    }
    for deserializer, result in expected.items():
        run = PartitionFetch(tp, data, 0).take(1)
        run.deserialize(None, adapt(deserializer, "value"))
        assert [result] == [record.value for record in run]


def configured(deserializer: object) -> Any:
    """Returns the deserializer that the option results in."""
    return ConsumerConfig(bootstrap_servers="a:1", value_deserializer=deserializer).value_deserializer


def test_names_of_deserializers() -> None:
    """The names of text and JSON deserializers are accepted, and call no Python function in between."""
    for text in ("str", str, "StringDeserializer"):
        assert configured(text) is bytes.decode
        assert isinstance(adapt(configured(text), "value"), PlainDeserializer)
    assert {"a": [1, None]} == adapt(configured("json"), "value")("t", (), b'{"a": [1, null]}')
    with pytest.raises(ConfigError, match="only str, json and Kafka's"):
        configured("avro")


def test_json_by_the_faster_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """orjson is used if it is installed, else Python's json."""
    monkeypatch.setitem(sys.modules, "orjson", SimpleNamespace(loads=len))
    assert configured("json") is len
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert configured("json") is json.loads


@pytest.mark.parametrize("library", ["orjson", "json"])
@pytest.mark.parametrize(
    ("data", "hinted"),
    [
        (b'\0\0\0\0\7{"a": 1}', True),
        (b"\0\0\0\0\7\2\x08text", True),
        (b"\1" + bytes(range(16)) + b'{"a": 1}', True),
        (b'{"a": ', False),
        (b"\0\0", False),
        (b"", False),
        ("é".encode("latin-1"), False),
    ],
)
def test_json_with_the_id_of_a_schema(library: str, data: bytes, hinted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of plain JSON for a value with the id of a schema before it names `kconsumer.registry`."""
    if library == "json":
        monkeypatch.setitem(sys.modules, "orjson", None)
    run = PartitionFetch(TopicPartition("orders", 1), build_batch([Rec(data)]), 0).take(1)
    with pytest.raises(RecordDeserializationError) as caught:
        run.deserialize(None, adapt(configured("json"), "value"))
    assert hinted == ("looks like a schema registry frame" in str(caught.value))
