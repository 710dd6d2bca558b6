"""What FakeCluster accepts as records, partitions, APIs and errors."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.errors import GroupAuthorizationError, StaleMetadataError, error_for
from kconsumer.schema import all_apis
from kconsumer.schema.fetch import FETCH
from kconsumer.schema.offsets import OFFSET_COMMIT
from kconsumer.testing import FakeCluster
from kconsumer.testing.arguments import api_of, error_code_of, sasl_settings
from kconsumer.testing.batches import Rec
from kconsumer.testing.produce import Partitioner, as_records, check_compression, murmur2, split


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (b"a", [Rec(b"a", b"k", [("h", b"1")])]),
        ("ä", [Rec("ä".encode(), b"k", [("h", b"1")])]),
        ([b"a", None, bytearray(b"c")], [Rec(value, b"k", [("h", b"1")]) for value in (b"a", None, b"c")]),
        ([("key", "value")], [Rec(b"value", b"key", [("h", b"1")])]),
        ([Rec(b"a", headers=[("own", b"2")], timestamp=5)], [Rec(b"a", b"k", [("own", b"2")], 5)]),
        (None, [Rec(None, b"k", [("h", b"1")])]),
        ([], []),
    ],
)
def test_records(values: Any, expected: list[Rec]) -> None:
    """Values, pairs and `Rec` become records. The key and the headers of the call are those of records without."""
    assert expected == as_records(values, "k", [("h", b"1")])


@pytest.mark.parametrize("values", [5, [5], [("k", "v", "x")], [object()]])
def test_other_records(values: Any) -> None:
    """A value of another type raises TypeError."""
    with pytest.raises(TypeError):
        as_records(values, None, ())


def test_large_batches_are_split() -> None:
    """Records of more than one MiB are in several batches, in their order."""
    records = [Rec(bytes([i]) * 100_000) for i in range(20)]
    batches = list(split(records))
    assert len(batches) > 2
    assert max(sum(len(record.value or b"") for record in batch) for batch in batches) < 1 << 20
    assert records == [record for batch in batches for record in batch]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(key: bytes, expected: int) -> None:
    """The hash of a key is that of Java's producer; these values are from its unit tests."""
    assert expected % (1 << 32) == murmur2(key)


def test_partitions() -> None:
    """Records with equal keys go to one partition; those without a key to all partitions of the topic in turn."""
    partitioner = Partitioner()
    assert [0, 1, 2, 0] == [partitioner.partition("t", None, 3) for _ in range(4)]
    assert 0 == partitioner.partition("u", None, 3)
    assert {(murmur2(b"k") & 0x7FFF_FFFF) % 3} == {partitioner.partition("t", b"k", 3) for _ in range(4)}


def test_compressions() -> None:
    """None is no compression; an unknown name raises an error that lists the names."""
    assert ["none", "gzip"] == [check_compression(name) for name in (None, "gzip")]
    with pytest.raises(ValueError, match="'zip'; there are none, gzip"):
        check_compression("zip")


@pytest.mark.parametrize("name", ["OffsetCommit", "offset_commit", "OFFSET_COMMIT", 8, OFFSET_COMMIT])
def test_apis(name: Any) -> None:
    """An API is given by its name in any case, its key, or itself."""
    assert api_of(all_apis(), name) is OFFSET_COMMIT


def test_unknown_apis() -> None:
    """An unknown API raises an error that lists those that there are."""
    with pytest.raises(ValueError, match=f"no API 'Fetsh'; there are .*{FETCH.name}"):
        api_of(all_apis(), "Fetsh")


@pytest.mark.parametrize(
    "error", ["GROUP_AUTHORIZATION_FAILED", "group_authorization_failed", 30, GroupAuthorizationError, error_for(30)]
)
def test_errors(error: Any) -> None:
    """An error is given by its name, its code, or its exception."""
    assert error_code_of(error) == 30


@pytest.mark.parametrize("error", ["NO_SUCH_ERROR", 0, 9999, True, ValueError])
def test_unknown_errors(error: Any) -> None:
    """What is not an error of Kafka raises ValueError."""
    with pytest.raises(ValueError, match=r"not an error of Kafka|ValueError does not stand for one error code"):
        error_code_of(error)


def test_a_class_of_several_errors() -> None:
    """The class of several error codes raises an error that lists them."""
    with pytest.raises(ValueError, match=r"name one of its codes \(.*NOT_LEADER_OR_FOLLOWER"):
        error_code_of(StaleMetadataError)


@pytest.mark.parametrize(
    ("sasl", "message"),
    [
        ({"mechanism": "GSSAPI", "users": {"a": "b"}}, "one or several of PLAIN, SCRAM-SHA-256"),
        ({"mechanism": [], "users": {"a": "b"}}, "one or several"),
        ({"users": {}}, "at least one user"),
        ({"users": {"a": 1}}, "names and passwords"),
        ({"user": {"a": "b"}}, "no key 'user'"),
        ({"users": {"a": "b"}, "session_lifetime_ms": -1}, "session_lifetime_ms"),
    ],
)
def test_wrong_sasl(sasl: dict[str, Any], message: str) -> None:
    """A wrong `sasl` raises an error that says what is wrong."""
    with pytest.raises(ValueError, match=message):
        sasl_settings(sasl)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("a b", ()), ("..", ()), (5, ()), ("t.1", ()), ("new", (0,)), ("new", (-1,)), ("new", (1, 0)), ("new", (1, 2))],
)
def test_topics_that_no_broker_creates(name: Any, sizes: tuple[int, ...]) -> None:
    """A topic with an illegal name, the name of another one, or without partitions or replicas is refused."""
    with FakeCluster() as cluster:
        cluster.create_topic("t_1")
        with pytest.raises(ValueError, match=r"Topic|is a number above 0|replicas"):
            cluster.create_topic(name, *sizes)


@pytest.mark.parametrize(("port", "brokers"), [(-1, 1), (65_536, 1), (65_535, 2), (1.5, 1)])
def test_ports_that_do_not_exist(port: Any, brokers: int) -> None:
    """The ports of all brokers must exist."""
    with pytest.raises(ValueError, match="port is 0, or"):
        FakeCluster(brokers, port=port)


def test_a_cluster_runs_once() -> None:
    """A cluster that is entered again, inside its block or after it, raises RuntimeError, and runs on until the end."""
    with FakeCluster() as cluster:
        with pytest.raises(RuntimeError, match="make a new one"):
            cluster.__enter__()
        cluster.create_topic("t")
    with pytest.raises(RuntimeError, match="make a new one"):
        cluster.__enter__()
