"""ConsumerRecord as a Python object."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import pytest

from kconsumer._core.decode import ConsumerRecord
from kconsumer.decode import decode_batches
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import TimestampType, TopicPartition

NAMES = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "serialized_key_size",
    "serialized_value_size",
    "topic_partition",
)


def decoded(*, topic: str = "t", **fields: Any) -> ConsumerRecord:
    (record,) = decode_batches(build_batch([Rec(**fields)], base_offset=5, leader_epoch=2), topic=topic)
    return record


def made(**changes: Any) -> ConsumerRecord:
    """Return a record equal to `decoded(value=b"v", key=b"k", headers=[("h", b"x")], timestamp=9)`, with
    these changes.
    """
    fields = {
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "timestamp": 9,
        "timestamp_type": TimestampType.CREATE_TIME,
        "key": b"k",
        "value": b"v",
        "headers": (("h", b"x"),),
        "leader_epoch": 2,
    }
    return ConsumerRecord(**{**fields, **changes})


def test_made_by_hand_equals_decoded() -> None:
    """A record that user code creates equals the same record returned by a poll."""
    record = decoded(value=b"v", key=b"k", headers=[("h", b"x")], timestamp=9)
    assert made() == record
    assert hash(made()) == hash(record)
    assert [getattr(made(), name) for name in NAMES] == [getattr(record, name) for name in NAMES]


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "u"},
        {"partition": 1},
        {"offset": 6},
        {"timestamp": 10},
        {"timestamp_type": TimestampType.LOG_APPEND_TIME},
        {"key": None},
        {"value": b"w"},
        {"headers": ()},
        {"leader_epoch": None},
        {"serialized_key_size": 7},
        {"serialized_value_size": 7},
    ],
)
def test_any_difference_makes_records_unequal(change: dict[str, Any]) -> None:
    """Equality checks every attribute."""
    assert made() != made(**change)


def test_a_record_is_not_a_tuple() -> None:
    """Comparison with an object of another type is left to that type."""
    assert made() != ("t", 0, 5)
    assert made().__eq__(5) is NotImplemented


def test_defaults() -> None:
    """Only topic, partition and offset of a record are required."""
    record = ConsumerRecord("t", 1, 2)
    expected = ("t", 1, 2, -1, TimestampType.NO_TIMESTAMP, None, None, (), None, -1, -1, TopicPartition("t", 1))
    assert expected == tuple(getattr(record, name) for name in NAMES)


def test_sizes_of_what_is_given() -> None:
    """The sizes of bytes are their lengths; for deserialized objects the constructor accepts the sizes."""
    assert (3, -1) == (made(key=b"abc").serialized_key_size, made(value={"a": 1}).serialized_value_size)
    assert 8 == made(value={"a": 1}, serialized_value_size=8).serialized_value_size


@pytest.mark.parametrize("name", [*NAMES, "anything"])
def test_attributes_cannot_be_set(name: str) -> None:
    """Neither existing nor new attributes can be set."""
    with pytest.raises(AttributeError):
        setattr(made(), name, None)


def test_cannot_be_initialised_again() -> None:
    """Calling `__init__` again does not change a record."""
    for record in (made(), decoded(value=b"v")):
        with pytest.raises(TypeError, match="immutable"):
            record.__init__("x", 0, 0)  # type: ignore[misc]  # called by hand on purpose
        assert 5 == record.offset


def test_key_value_and_headers_are_made_once() -> None:
    """Reading an attribute twice returns the same object."""
    record = decoded(value=b"value", key=b"key", headers=[("h", b"x")])
    assert record.value is record.value
    assert record.key is record.key
    assert record.headers is record.headers


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    """A record survives pickling, decoded or not, deserialized or not."""
    for record in (decoded(value=b"v", headers=[("h", None)]), made(value=[1, {"a": 2}]), ConsumerRecord("t", 0, 0)):
        assert record == pickle.loads(pickle.dumps(record, protocol))


def test_unhashable_values_make_the_record_unhashable() -> None:
    """A record with an unhashable value cannot be hashed, like a tuple."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(made(value=[1]))


def test_bad_utf8_in_a_header_key_is_replaced() -> None:
    """A header key that is not UTF-8 is read with replacement characters."""
    assert (("\ufffda", b"x"), ("é", None)) == decoded(headers=[(b"\xffa", b"x"), ("é", None)]).headers


def test_many_headers() -> None:
    """Header names may repeat, and order is kept."""
    headers = tuple((f"h{i % 7}", b"%d" % i) for i in range(300))
    assert headers == decoded(headers=headers).headers


def test_repr_shows_everything_but_long_values() -> None:
    """The repr has all fields, with long values shortened, so that it fits in a log line."""
    assert (
        "ConsumerRecord(topic='t', partition=0, offset=5, timestamp=9, timestamp_type=CREATE_TIME, key=b'k', "
        "value=b'v', headers=(('h', b'x'),), leader_epoch=2)"
    ) == repr(made())
    text = repr(made(value=b"v" * 10_000))
    assert "(10000 bytes)" in text
    assert len(text) < 400
    text = repr(made(key="k" * 10_000, value=list(range(10_000)), headers=[("h", b"x")] * 1_000))
    assert "characters)" in text
    assert len(text) < 1_500


@pytest.mark.parametrize(
    "wrong",
    [{"topic": None}, {"topic": b"t"}, {"partition": "0"}, {"offset": None}, {"timestamp": 1.5}, {"leader_epoch": "1"}],
)
def test_wrong_types_are_refused(wrong: dict[str, Any]) -> None:
    """The constructor refuses numbers of a wrong type or range."""
    with pytest.raises(TypeError):
        made(**wrong)


def test_an_unknown_timestamp_type_is_refused() -> None:
    """Only the three timestamp types are accepted."""
    with pytest.raises(ValueError, match="7"):
        made(timestamp_type=7)


def test_a_blank_record_does_not_crash() -> None:
    """A record created by `__new__` alone does not crash: its attributes raise or are empty."""
    record = ConsumerRecord.__new__(ConsumerRecord)
    for name in NAMES:
        try:
            getattr(record, name)
        except TypeError:
            assert name in ("topic", "partition")


def test_cycles_through_a_value_are_collected() -> None:
    """The garbage collector frees a record whose deserialized value refers to it."""

    class Value:
        record: object = None
        died = 0

        def __del__(self) -> None:
            Value.died += 1

    def cycle() -> None:
        value = Value()
        value.record = made(value=value)

    cycle()
    gc.collect()
    assert 1 == Value.died
