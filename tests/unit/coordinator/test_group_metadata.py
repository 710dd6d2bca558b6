"""GroupMetadata: its named fields, and its compatibility with transactional producers of other clients."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import confluent_kafka
import pytest

from kconsumer import GroupMetadata

kafka_python = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


def test_fields() -> None:
    """Fields are read-only and have defaults; objects are equal if all fields are, and have a readable repr."""
    one = GroupMetadata("g", 3, "m", "i")
    assert ("g", 3, "m", "i") == (one.group_id, one.generation_id, one.member_id, one.group_instance_id)
    assert GroupMetadata("g") == GroupMetadata("g", -1, "", None)
    others = [
        GroupMetadata("h", 3, "m", "i"), GroupMetadata("g", 4, "m", "i"), GroupMetadata("g", 3, "n", "i"),
        GroupMetadata("g", 3, "m", "j"), GroupMetadata("g", 3, "m", ""), GroupMetadata("g", 3, "m"),
    ]  # fmt: skip
    assert 7 == len({one, *others})
    assert "GroupMetadata(group_id='g', generation_id=3, member_id='m', group_instance_id='i')" == repr(one)
    assert repr(one) == str(one) == f"{one}"
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.group_id = "h"  # type: ignore[misc]  # the mistake under test


@kafka_python
@pytest.mark.parametrize("loaded", [False, True])
def test_copies(loaded: bool) -> None:
    """Pickles and copies are equal and of the same class, also while kafka-python is loaded."""
    if loaded:
        import kafka.structs  # noqa: F401  (its being loaded is the point)
    one = GroupMetadata("g", 3, "m", None)
    copies = [pickle.loads(pickle.dumps(one, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in (*copies, copy.copy(one), copy.deepcopy(one)):
        assert (GroupMetadata, one, "m") == (type(other), other, other.member_id)
        assert isinstance(other, GroupMetadata)


@pytest.mark.parametrize("instance", [None, "i"])
def test_as_confluent_kafka_has_it(instance: str | None) -> None:
    """The bytes equal those that confluent-kafka's consumer gives to its producer."""
    options = {"group.id": "grüppe"} | ({} if instance is None else {"group.instance.id": instance})
    peer = confluent_kafka.Consumer(options)
    try:
        expected = peer.consumer_group_metadata()
    finally:
        peer.close()
    found = GroupMetadata("grüppe", -1, "", instance)
    assert isinstance(found, bytes)
    assert expected == bytes(found)
    assert b"CGMDv2:\x02\x00\x00\x00" == GroupMetadata("g", 2, "m")[:11]


@pytest.mark.parametrize("fields", [("a\0b",), ("g", 1, "m\0"), ("g", 1, "m", "\0"), ("\ud800",)])
def test_text_that_librdkafka_cannot_have(fields: tuple[str, int, str, str]) -> None:
    """Ids with NUL or half a surrogate pair can be stored; librdkafka refuses those with NUL."""
    found = GroupMetadata(*fields)
    assert fields[0] == found.group_id
    assert found != GroupMetadata("other")
    assert ("\0" in "".join(map(str, fields))) == (not found.startswith(b"CGMDv2:"))


@kafka_python
def test_as_kafka_python_has_it() -> None:
    """kafka-python's producer accepts the object by isinstance() and reads the same field names."""
    from kafka.structs import ConsumerGroupMetadata

    found = GroupMetadata("g", 3, "m", "i")
    assert isinstance(found, ConsumerGroupMetadata)
    assert isinstance(found, GroupMetadata)
    names = ConsumerGroupMetadata._fields[:4]
    assert ("g", 3, "m", "i") == tuple(getattr(found, name) for name in names)
