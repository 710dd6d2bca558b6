"""Arguments of commit, commit_async and seek are accepted as offsets, or refused at once with advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import (
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    read_range,
    read_topic,
)
from kconsumer._client.offset_arguments import offsets_to_commit, seek_target
from support.harnesses.inside import parts_of

TP = TopicPartition("t", 0)
RECORD = ConsumerRecord("t", 0, 5, 0)


class Int64:
    """An integer that is not an int, like numpy.int64."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __lt__(self, other: int) -> bool:
        return self.value < other


@pytest.mark.parametrize(
    "offset",
    [
        5,
        Int64(5),
        OffsetAndMetadata(5),
        OffsetAndMetadata(Int64(5)),  # type: ignore[arg-type]
    ],
)
def test_integers_of_any_kind_are_offsets(offset: Any) -> None:
    """Objects with `__index__` are accepted as offsets and partition numbers, and become ints."""
    (found,) = offsets_to_commit({("t", Int64(0)): offset}).items()
    assert (TP, OffsetAndMetadata(5)) == found
    assert [int, int] == [type(found[0].partition), type(found[1].offset)]
    assert int is type(seek_target(offset).offset)


def test_limits_are_offsets() -> None:
    """The largest offset, epoch, partition and metadata that a request can contain are accepted."""
    largest = OffsetAndMetadata(2**63 - 1, "x" * (2**15 - 1), 2**31 - 1)
    tp = TopicPartition("t", 2**31 - 1)
    assert {tp: largest} == offsets_to_commit({tp: largest})
    assert OffsetAndMetadata(0, "ü", 3) == seek_target(OffsetAndMetadata(0, "ü", 3))


@pytest.mark.parametrize(
    ("offset", "error", "message"),
    [
        (5.0, TypeError, "must be an int or an OffsetAndMetadata, not 5.0"),
        ("5", TypeError, "must be an int or an OffsetAndMetadata, not '5'"),
        (None, TypeError, "must be an int or an OffsetAndMetadata, not None"),
        ((5, "note"), TypeError, "must be an int or an OffsetAndMetadata"),
        (RECORD, TypeError, r"record\.offset \+ 1"),
        (OffsetAndTimestamp(5, 0), TypeError, r"give its \.offset"),
        (-1, ValueError, "must be between 0 and"),
        (2**63, ValueError, "must be between 0 and"),
        (OffsetAndMetadata(5.0), TypeError, "must be an int, not 5.0"),  # type: ignore[arg-type]
        (OffsetAndMetadata(2**63), ValueError, "must be between 0 and"),
        (OffsetAndMetadata(5, b"note"), TypeError, "metadata of .* must be a str"),  # type: ignore[arg-type]
        (OffsetAndMetadata(5, 7), TypeError, "metadata of .* must be a str"),  # type: ignore[arg-type]
        (OffsetAndMetadata(5, "\udc80"), ValueError, "metadata of .* UTF-8"),
        (OffsetAndMetadata(5, "ü" * 2**14), ValueError, "metadata of .* 32767 bytes"),
        (OffsetAndMetadata(5, "", 1.5), TypeError, "leader_epoch of .* must be an int"),  # type: ignore[arg-type]
        (OffsetAndMetadata(5, "", 2**31), ValueError, "leader_epoch of .* must be between"),
    ],
)
def test_what_is_no_offset_is_refused(offset: Any, error: type[Exception], message: str) -> None:
    """commit and seek refuse other values, with advice; commit names the partition."""
    with pytest.raises(error, match=message):
        seek_target(offset)
    with pytest.raises(error, match=message) as caught:
        offsets_to_commit({TP: offset})
    assert "t-0" in str(caught.value)


@pytest.mark.parametrize(
    ("tp", "error"),
    [
        (("t", 2**31), ValueError),
        (("t", -1), ValueError),
        (("t", 0.0), TypeError),
        (("\udc80", 0), ValueError),
        (("t" * 2**15, 0), ValueError),
        (("", 0), ValueError),
        ("t-0", TypeError),
        (RECORD, TypeError),
    ],
)
def test_what_is_no_partition_is_refused(tp: Any, error: type[Exception]) -> None:
    """Invalid partitions are refused before a request is encoded."""
    with pytest.raises(error, match="not a topic-partition"):
        offsets_to_commit({tp: 5})


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([RECORD], r"for all records of a poll\(\) pass what it returned"),
        ([TP], r"consumer\.position\(tp\)"),
        (TP, r"consumer\.position\(tp\)"),
        (5, "not int"),
        ([], "not list"),
        (print, r"commit_async\(callback=…\)"),
    ],
)
def test_what_holds_no_offsets_is_refused(offsets: Any, message: str) -> None:
    """Records, partitions and callbacks in place of offsets are refused, and the message shows the call that was
    probably meant.
    """
    with pytest.raises(TypeError, match=message) as caught:
        offsets_to_commit(offsets)
    assert "a mapping {TopicPartition(topic, partition): next offset}" in str(caught.value)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """Returns a consumer without a connection, with one partition."""
    with Consumer(bootstrap_servers="localhost:1", group_id="g", enable_auto_commit=False) as made:
        made.assign([TP])
        yield made


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.commit({TP: 5.0}),
        lambda c: c.commit_async({TP: 5.0}),
        lambda c: c.commit_async(None, callback="not callable"),
        lambda c: c.seek(TP, 5.0),
    ],
)
def test_public_methods_refuse_before_anything_is_queued(consumer: Consumer, call: Callable[[Consumer], None]) -> None:
    """A refused value queues nothing that a later poll or close would process."""
    with pytest.raises(TypeError):
        call(consumer)
    group = parts_of(consumer).group
    assert group is not None
    assert not group.commits.pending_commits()


@pytest.mark.parametrize(("wrong", "error"), [("3", TypeError), (3.0, TypeError), (int, TypeError), (0, ValueError)])
@pytest.mark.parametrize("name", ["max_rows", "max_bytes", "threads"])
def test_limits_of_readers(name: str, wrong: Any, error: type[Exception]) -> None:
    """A limit that is not a positive int is refused by its name, before a reader connects."""
    with pytest.raises(error, match=rf"^{name} must be "):
        read_topic("t", bootstrap_servers="localhost:1", **{name: wrong})
    if name != "threads":
        with pytest.raises(error, match=rf"^{name} must be "):
            read_range(TP, 0, 1, bootstrap_servers="localhost:1", **{name: wrong})


def test_limits_beyond_any_memory(consumer: Consumer) -> None:
    """A limit that is larger than any container is no limit."""
    assert not consumer.poll(0, max_records=1 << 70)
    assert not consumer.poll_arrow(0, max_rows=1 << 70).num_rows
