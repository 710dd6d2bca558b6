"""The definitions of message tables: version ranges, message classes, plans, APIs."""

from __future__ import annotations

import copy
import pickle
import sys
from functools import partial
from typing import Any

import pytest

from kconsumer._core.codec import install_constructor
from kconsumer.schema import APIS
from kconsumer.schema.dsl import (
    INT16,
    INT32,
    STRING,
    UUID,
    ZERO_UUID,
    Api,
    F,
    Field,
    Message,
    Versions,
    array,
    plan,
)
from kconsumer.schema.fetch import FETCH, FetchPartitionData, FetchRequest, FetchTopic
from kconsumer.schema.sasl import SASL_HANDSHAKE, SaslAuthenticateRequest


class Inner(Message):
    number: int = F(INT16, default=7)


class Outer(Message):
    name: str | None = F(STRING, null="2+", default=None)
    id: bytes = F(UUID, "1+")
    numbers: list[int] = F(array(INT32))
    inner: Inner = F(Inner)
    extra: Inner | None = F(Inner, "2+", tag=0)


class Pair(Message):
    numbers: list[int] = F(array(INT32))
    text: str = F(STRING, default="a default that no other message has")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("3+", [3, 32767], [2]), ("3-5", [3, 5], [2, 6]), ("", [], [0, 1, 2])],
)
def test_versions(text: str, inside: list[int], outside: list[int]) -> None:
    """A version range is one version, two versions, or a version and all later ones."""
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_defaults() -> None:
    """Fields that are not set have their defaults; that of a tagged struct is None."""
    message = Outer()
    assert [None, ZERO_UUID, [], Inner(number=7), None] == [getattr(message, f.name) for f in Outer.FIELDS]


def test_defaults_are_not_shared() -> None:
    """Two messages never share a list or a struct."""
    one, other = Outer(), Outer()
    one.numbers.append(1)
    one.inner.number = 8
    assert [] == other.numbers
    assert 7 == other.inner.number


def test_keywords() -> None:
    """Fields are set by keyword, and other keywords are refused."""
    anything: Any = Outer
    assert "x" == Outer(name="x").name
    with pytest.raises(TypeError, match="Outer has no field nam, numbr"):
        anything(nam="x", numbr=1)
    with pytest.raises(AttributeError):
        anything().other = 1


def test_keywords_in_any_order() -> None:
    """The order of the keywords does not matter, and a keyword need not be an interned string."""
    inner, extra = Inner(number=1), Inner(number=2)
    expected = [("x", ZERO_UUID, [3], inner, extra)]
    values: dict[str, Any] = {"extra": extra, "inner": inner, "numbers": [3], "name": "x"}
    not_interned = {"".join(list(name)): value for name, value in values.items()}
    for message in (
        Outer(extra=extra, numbers=[3], name="x", inner=inner),
        Outer(name="x", inner=inner, numbers=[3], extra=extra),
        Outer(**values),
        Outer(**not_interned),
        partial(Outer, numbers=[3], name="x")(extra=extra, inner=inner),
    ):
        assert expected == [tuple(getattr(message, field.name) for field in Outer.FIELDS)]
    positional: Any = Outer
    with pytest.raises(TypeError, match="Outer takes keyword arguments only"):
        positional("x")


def test_messages_hold_one_reference_to_each_value() -> None:
    """A message refers to its values once, also if the constructor fails, and gives the references up at its end."""
    value, default = object(), Pair.FIELDS[1].default
    anything: Any = Pair
    anything()  # the constructor keeps each default from its first call on
    before = sys.getrefcount(value), sys.getrefcount(default)
    kept = [anything(numbers=value) for _ in range(100)]
    assert before[0] + 100 == sys.getrefcount(value)
    assert before[1] + 100 == sys.getrefcount(default)
    del kept
    for _ in range(100):
        with pytest.raises(TypeError):
            anything(numbers=value, nothing=value)
    assert before == (sys.getrefcount(value), sys.getrefcount(default))


def test_a_default_that_cannot_be_created() -> None:
    """An exception of a default value's constructor ends the call."""

    def fail() -> None:
        raise OSError("no")

    class Broken(Message):
        number: int = F(INT16)
        numbers: Any = Field(array(INT32), Versions.parse("0+"), Versions.parse(""), None, fail, None, False)

    with pytest.raises(OSError, match="no"):
        Broken(number=1)


def test_a_field_without_a_slot() -> None:
    """A class whose slots do not have the names of its fields has no constructor."""

    class Wrong(Message):
        FIELDS = Inner.FIELDS

    with pytest.raises(TypeError, match="number is not a slot"):
        Wrong()


def test_only_classes_have_constructors() -> None:
    """A constructor is not installed in an object that is no class."""
    message: Any = Inner()
    with pytest.raises(TypeError, match="is not a class"):
        install_constructor(message)


def test_copies_and_subclasses() -> None:
    """Messages are copied and pickled with their fields. A subclass has the constructor of its base."""
    message = FetchRequest(topics=[FetchTopic(topic="t")])
    for made in (copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert message == made
        assert message.topics[0] is not made.topics[0]

    class Special(Inner):
        pass

    assert 5 == Special(number=5).number


def test_equality() -> None:
    """Messages are equal if they have the same class and equal fields."""
    assert Outer(numbers=[1]) == Outer(numbers=[1])
    assert Outer(numbers=[1]) != Outer(numbers=[2])
    assert Outer() != Inner()
    with pytest.raises(TypeError):
        hash(Outer())


def test_repr_shows_what_was_set() -> None:
    """The repr has the fields that differ from their defaults."""
    assert "FetchTopic(topic='t', partitions=[1])" == repr(FetchTopic(topic="t", partitions=[1]))
    assert "Outer()" == repr(Outer())


def test_repr_hides_secrets() -> None:
    """The repr of a message shows no password."""
    assert "SaslAuthenticateRequest(auth_bytes=...)" == repr(SaslAuthenticateRequest(auth_bytes=b"secret"))


def test_classes_know_their_module() -> None:
    """A message class has the module of its table."""
    assert "kconsumer.schema.fetch" == FetchRequest.__module__
    assert "FetchRequest" == FetchRequest.__name__


def test_plan_is_made_once() -> None:
    """Plans are cached per class, version and flexibility."""
    assert plan(Outer, 1, False) is plan(Outer, 1, False)
    assert plan(Outer, 1, False) is not plan(Outer, 2, False)
    assert plan(Outer, 1, False) is not plan(Outer, 1, True)


def test_plan_rows() -> None:
    """A plan has one row for each field that the version contains."""
    cls, flexible, *rows = plan(Outer, 2, True)
    assert (Outer, True) == (cls, flexible)
    inner = (Inner, True, ("number", "int16", None, False, -1, 7, None))
    assert [
        ("name", "string", None, True, -1, None, None),
        ("id", "uuid", None, False, -1, ZERO_UUID, None),
        ("numbers", "array", "int32", False, -1, None, list),
        ("inner", "struct", inner, False, -1, None, Inner),
        ("extra", "struct", inner, False, 0, None, None),
    ] == rows
    assert ["string", "absent", "array", "struct", "absent"] == [row[1] for row in plan(Outer, 0, False)[2:]]


def test_api_knows_its_versions() -> None:
    """An API returns plans for the versions that it declares, and for no other."""
    some = Api(Outer, Inner, key=999, versions="1-3", flexible=2, throttle=3)
    assert plan(Outer, 1, False) is some.request_plan(1)
    assert plan(Inner, 2, True) is some.response_plan(2)
    for version in (0, 4):
        with pytest.raises(ValueError, match=r"Outer v.: only 1-3 are supported"):
            some.request_plan(version)
    assert "<Api Outer v1-3>" == repr(some)


def test_header_versions() -> None:
    """Headers have tagged fields if messages have them, except for ApiVersions responses."""
    assert [(1, 0), (2, 1)] == [(FETCH.request_header_version(v), FETCH.response_header_version(v)) for v in (11, 12)]
    assert [1, 0] == [SASL_HANDSHAKE.request_header_version(1), SASL_HANDSHAKE.response_header_version(1)]
    assert [2, 0] == [APIS[18].request_header_version(3), APIS[18].response_header_version(3)]


def test_records_default_is_none() -> None:
    """A partition without records has None."""
    assert FetchPartitionData().records is None
