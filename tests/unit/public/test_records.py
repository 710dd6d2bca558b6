"""ConsumerRecords, runs, and the iterator: counts, order, and objects that are reused."""

from __future__ import annotations

import ctypes
import gc
import io
import sys
import sysconfig
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from kconsumer._core.decode import ConsumerRecord, PartitionFetch, RecordIterator, RecordRun
from kconsumer.decode import decode_batches
from kconsumer.deserializers import adapt
from kconsumer.errors import RecordDeserializationError
from kconsumer.records import ConsumerRecords
from kconsumer.testing.batches import CODECS, Rec, build_batch, control_batch
from kconsumer.types import OffsetAndMetadata, TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("c", 2)


def run_of(tp: TopicPartition, *values: bytes, base: int = 0) -> RecordRun:
    return PartitionFetch(tp, build_batch(values, base_offset=base), base).take(100)


# --- ConsumerRecord


def test_datetime() -> None:
    """The timestamp is a datetime in UTC, exact to the millisecond, and None without one."""
    times = {
        -1: None,
        0: datetime(1970, 1, 1, tzinfo=UTC),
        1_700_000_000_001: datetime(2023, 11, 14, 22, 13, 20, 1000, UTC),
    }
    assert times == {ms: ConsumerRecord("t", 0, 0, timestamp=ms).datetime for ms in times}
    with pytest.raises(OverflowError):
        _ = ConsumerRecord("t", 0, 0, timestamp=2**62).datetime


def test_header() -> None:
    """A header is found by its name, the last one of several, also if it is null."""
    record = ConsumerRecord("t", 0, 0, headers=[("a", b"1"), ("a", b"2"), ("null", None)])
    assert (b"2", None, None, b"x") == (
        record.header("a"),
        record.header("null", b"x"),
        record.header("b"),
        record.header("b", b"x"),
    )
    with pytest.raises(TypeError, match="the name of a header is a str, not b'a'"):
        record.header(b"a")  # type: ignore[call-overload]  # the mistake under test


# --- ConsumerRecords


def test_counts_iterates_and_groups() -> None:
    """All methods are right for several runs, two of them of one partition."""
    positions = {A: (3, 1), B: (1, None), C: (9, None)}
    records = ConsumerRecords.from_runs([run_of(A, b"1", b"2"), run_of(B, b"3"), run_of(A, b"4", base=2)], positions)
    assert (4, 4, True) == (len(records), records.count, bool(records))
    assert [(A, 0, b"1"), (A, 1, b"2"), (B, 0, b"3"), (A, 2, b"4")] == [
        (r.topic_partition, r.offset, r.value) for r in records
    ]
    assert {A, B} == records.partitions()
    assert [b"1", b"2", b"4"] == [r.value for r in records.records(A)]
    assert [] == records.records(C)
    assert {A: [0, 1, 2], B: [0]} == {tp: [r.offset for r in rs] for tp, rs in records.by_partition().items()}
    assert {
        A: OffsetAndMetadata(3, leader_epoch=1),
        B: OffsetAndMetadata(1),
        C: OffsetAndMetadata(9),
    } == records.next_offsets()
    assert "4 records of 2 partitions" in repr(records)


def test_empty() -> None:
    """The one shared result without records is falsy, and all its methods return empty values."""
    assert ConsumerRecords.EMPTY is ConsumerRecords.empty()
    records = ConsumerRecords.EMPTY
    assert (0, 0, False, [], frozenset(), {}, {}) == (
        len(records),
        records.count,
        bool(records),
        list(records),
        records.partitions(),
        records.by_partition(),
        records.next_offsets(),
    )


def test_positions_without_records() -> None:
    """A poll that returned only control records is falsy and has the next offsets."""
    records = decode_batches(control_batch("commit", 4), topic="a", start_offset=4)
    assert (False, frozenset(), {A: OffsetAndMetadata(5)}) == (
        bool(records),
        records.partitions(),
        records.next_offsets(),
    )


def test_next_offsets_returns_a_copy() -> None:
    """next_offsets() returns a copy."""
    records = ConsumerRecords.from_runs([], {A: (5, None)})
    records.next_offsets().clear()
    assert {A: OffsetAndMetadata(5)} == records.next_offsets()


def test_can_be_iterated_several_times_at_once() -> None:
    """Iterators do not share state."""
    records = ConsumerRecords.from_runs([run_of(A, b"1", b"2", b"3")])
    pairs = [(x.offset, y.offset) for x in records for y in records]
    assert [(x, y) for x in range(3) for y in range(3)] == pairs


# --- records that are used again


def test_a_record_that_is_kept_never_changes() -> None:
    """Whatever way a record is kept, it keeps its contents while the loop continues."""
    records = ConsumerRecords.from_runs([run_of(A, *(b"%d" % i for i in range(50)))])
    in_list, in_dict, nested, by_closure = [], {}, [], []
    for i, record in enumerate(records):
        if i % 4 == 0:
            in_list.append(record)
        elif i % 4 == 1:
            in_dict[i] = record
        elif i % 4 == 2:
            nested.append(({"r": record},))
        else:
            by_closure.append(lambda record=record: record)
    assert [(i, b"%d" % i) for i in range(0, 50, 4)] == [(r.offset, r.value) for r in in_list]
    assert all((i, b"%d" % i) == (r.offset, r.value) for i, r in in_dict.items())
    assert list(range(2, 50, 4)) == [n[0]["r"].offset for n in nested]
    assert list(range(3, 50, 4)) == [f().offset for f in by_closure]


def test_kept_for_a_few_steps() -> None:
    """A window over the last records contains the right ones."""
    records = ConsumerRecords.from_runs([run_of(A, *(b"%d" % i for i in range(40)))])
    for width in (1, 2, 3, 4):
        window: list[ConsumerRecord] = []
        for i, record in enumerate(records):
            window = [*window[-width + 1 :], record] if width > 1 else [record]
            first = max(0, i - width + 1)
            assert [(n, b"%d" % n) for n in range(first, i + 1)] == [(r.offset, r.value) for r in window]


def test_values_outlive_their_record() -> None:
    """Values, keys and headers are objects of their own."""
    data = build_batch([Rec(b"v%d" % i, b"k%d" % i, [(f"h{i}", b"x")]) for i in range(30)])
    kept = [(r.key, r.value, r.headers) for r in decode_batches(data)]
    assert [(b"k%d" % i, b"v%d" % i, ((f"h{i}", b"x"),)) for i in range(30)] == kept


@pytest.mark.parametrize(
    "use",
    [
        list,
        tuple,
        lambda rs: sorted(rs, key=lambda r: -r.offset),
        lambda rs: list(zip(rs, rs, strict=True)),
        lambda rs: dict(enumerate(rs)),
        lambda rs: list(map(lambda r: r, rs)),  # noqa: C417  (the call to map is the point)
        lambda rs: [*rs],
    ],
)
def test_builtins_that_keep_what_they_iterate(use: Callable[[ConsumerRecords], object]) -> None:
    """Sequences made from a result contain distinct record objects."""
    records = ConsumerRecords.from_runs([run_of(A, *(b"%d" % i for i in range(20)))])
    kept = use(records)
    flat: list[ConsumerRecord] = []
    for item in kept.values() if isinstance(kept, dict) else kept:  # type: ignore[attr-defined]  # several kinds
        flat.extend(item if isinstance(item, tuple) else [item])
    assert set(range(20)) == {r.offset for r in flat}
    assert all(b"%d" % r.offset == r.value for r in flat)


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="no object is reused without the GIL")
def test_a_loop_makes_two_records() -> None:
    """A loop that keeps nothing uses the same two records in turn, and the same two values, one for each of them."""
    run = run_of(A, *(b"value %03d" % n for n in range(100)))
    seen = [(id(record), id(record.value)) for record in ConsumerRecords.from_runs([run])]
    assert (2, 2, 2) == (len(set(seen)), *(len(set(each)) for each in zip(*seen, strict=True)))


def test_reused_records_forget_what_was_read() -> None:
    """A reused record has no cached value of the previous one."""
    data = build_batch(
        [Rec(b"v", b"k", [("h", b"x")]), Rec(), Rec(b"w"), Rec(key=b"l"), Rec(headers=[("i", None)])] * 3
    )
    seen = [(r.key, r.value, r.headers) for r in decode_batches(data)]
    assert [
        (b"k", b"v", (("h", b"x"),)),
        (None, None, ()),
        (None, b"w", ()),
        (b"l", None, ()),
        (None, None, (("i", None),)),
    ] * 3 == seen


# --- values whose bytes are used again


@pytest.mark.parametrize(
    "sizes", [[100], [100, 99, 80, 100], [3, 300, 30, 3_000], [0, 1, 2], [5_000, 100], [100, -1, 100]], ids=str
)
def test_values_of_any_size_follow_each_other(sizes: list[int]) -> None:
    """A reused value object has the right contents, length, hash and terminating byte."""
    expected = [None if size < 0 else bytes([65 + n % 26]) * size for n in range(30) for size in sizes]
    for record, value in zip(decode_batches(build_batch(list(expected))), expected, strict=True):
        assert value == record.value
        assert hash(value) == hash(record.value)
        if record.value is not None:
            assert value == bytes(bytearray(record.value))
            assert b"\0" == ctypes.string_at(record.value, len(record.value) + 1)[-1:]


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda value: value, id="itself"),
        pytest.param(memoryview, id="memoryview"),
        pytest.param(lambda value: memoryview(value)[3:], id="slice"),
        pytest.param(lambda value: {value: value}, id="dict"),
        pytest.param(io.BytesIO, id="BytesIO"),
    ],
)
def test_a_value_that_is_kept_never_changes(keep: Callable[[bytes], object]) -> None:
    """The bytes of a value that is kept are not reused; here every second one is kept."""
    values = [b"value %03d" % n for n in range(60)]
    kept = []
    for record in decode_batches(build_batch(values)):
        assert values[record.offset] == record.value
        if record.offset % 2:
            kept.append(keep(record.value))
    expected = [keep(value) for value in values[1::2]]
    if keep is io.BytesIO:
        assert [one.read() for one in expected] == [one.read() for one in kept]
    else:
        assert expected == kept


def test_large_values_are_freed() -> None:
    """A value that is too large to be reused is freed as soon as its record is reused."""
    large = 1 << 20
    records = iter(decode_batches(build_batch([b"x" * large, b"y", b"z", b"z"])))
    tracemalloc.start()
    try:
        for record in records:
            held = tracemalloc.get_traced_memory()[0] if record.offset == 3 else large + len(record.value or b"")
        assert held < large
    finally:
        tracemalloc.stop()


# --- memory


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_kept_record_keeps_its_bytes_alive(codec: str) -> None:
    """The buffer is freed with the last of its records, and not before."""
    data = bytearray(build_batch([b"%d" % i for i in range(5)], codec=codec))
    record = list(decode_batches(data))[3]
    assert b"3" == record.value
    if codec == "none":
        with pytest.raises(BufferError):
            data.clear()
    del record
    data.clear()


def test_references_are_balanced() -> None:
    """Decoding, reading and freeing records leaves the reference count of every shared object unchanged."""
    tp = TopicPartition("t", 0)
    data = build_batch([Rec(b"v" * 100, b"k" * 100, [("h", b"x" * 100)])] * 10)

    def use() -> None:
        fetch = PartitionFetch(tp, data, 0)
        records = ConsumerRecords.from_runs([fetch.take(3), fetch.take(100)])
        kept = [r for r in records if r.offset % 2]
        for record in records:
            assert (record.key, record.value, record.headers, record.topic) is not None
        iterator = iter(records)
        assert next(iterator) == records.records(tp)[0]
        assert 5 == len(kept)

    use()
    before = sys.getrefcount(tp), sys.getrefcount(data), sys.getrefcount(None) // 1000
    for _ in range(50):
        use()
    assert before[:2] == (sys.getrefcount(tp), sys.getrefcount(data))
    assert abs(before[2] - sys.getrefcount(None) // 1000) <= 1


def test_nothing_leaks() -> None:
    """Hundreds of iterations of every path use no more memory than ten.

    zstd is not included, because its library shrinks allocations in a way that tracemalloc does not follow.
    """
    import tracemalloc

    data = b"".join(build_batch([Rec(b"v" * 50, b"k", [("h", b"x")])] * 5, codec=c) for c in CODECS if c != "zstd")
    good, bad = adapt(bytes.hex, "value"), adapt(int, "value")

    def use() -> None:
        for record in decode_batches(data):
            repr(record)
        fetch = PartitionFetch(A, data, 0)
        run = fetch.take(3)
        run.deserialize(None, good)
        list(run)
        with pytest.raises(RecordDeserializationError):
            fetch.take(3).deserialize(None, bad)
        fetch.take(100)
        next(iter(decode_batches(data)))

    for _ in range(10):
        use()
    gc.collect()
    tracemalloc.start()
    try:
        use()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            use()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 5_000


def test_an_exhausted_iterator_holds_nothing() -> None:
    """An exhausted iterator does not keep a buffer alive."""
    data = bytearray(build_batch([b"a", b"b"]))
    records = decode_batches(data)
    iterator = iter(records)
    assert 2 == len(list(iterator))
    del records
    data.clear()
    assert [] == list(iterator)


def test_length_hint_is_what_is_left() -> None:
    """The length hint is the number of remaining records, so that list() allocates once."""
    iterator = iter(ConsumerRecords.from_runs([run_of(A, b"1", b"2"), run_of(B, b"3")]))
    assert 3 == iterator.__length_hint__()  # type: ignore[attr-defined]  # an iterator of ours
    next(iterator)
    assert 2 == iterator.__length_hint__()  # type: ignore[attr-defined]  # an iterator of ours
    list(iterator)
    assert 0 == iterator.__length_hint__()  # type: ignore[attr-defined]  # an iterator of ours


def test_iterators_want_runs() -> None:
    """The compiled iterator checks the types of its arguments."""
    for wrong in ((5,), (None,)):
        with pytest.raises(TypeError):
            list(RecordIterator(wrong))  # type: ignore[arg-type]  # wrong on purpose


# --- deserializing a run


def upper(data: bytes) -> str:
    return data.decode().upper()


def test_deserialized_objects_take_the_place_of_bytes() -> None:
    """Key and value are the results of the deserializers; sizes are those of the bytes."""
    fetch = PartitionFetch(A, build_batch([(b"k1", b"v1"), (None, None), (b"k3", b"v3")]), 0)
    run = fetch.take(10)
    run.deserialize(adapt(upper, "key"), adapt(len, "value"))
    assert [("K1", 2, 2, 2), (None, None, -1, -1), ("K3", 2, 2, 2)] == [
        (r.key, r.value, r.serialized_key_size, r.serialized_value_size) for r in run
    ]
    assert [("K1", 2), (None, None), ("K3", 2)] == [(r.key, r.value) for r in list(run)]


def test_one_side_may_stay_bytes() -> None:
    """With only a value deserializer, keys are bytes."""
    run = PartitionFetch(A, build_batch([(b"k", b"v")]), 0).take(1)
    run.deserialize(None, adapt(upper, "value"))
    assert [(b"k", "V")] == [(r.key, r.value) for r in run]


class Failing:
    """A deserializer that fails for some values until the test allows them."""

    def __init__(self, *refused: bytes, error: BaseException | None = None) -> None:
        self.refused = set(refused)
        self.error = error or ValueError("no")
        self.calls = 0

    def __call__(self, data: bytes) -> str:
        self.calls += 1
        if data in self.refused:
            raise self.error
        return data.decode()


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_good_records_come_before_a_failure_which_is_tried_again(codec: str) -> None:
    """The run ends before the record that failed. The next run begins with it and raises, or continues if it now
    succeeds.
    """
    data = build_batch([b"a", b"b"], leader_epoch=1, codec=codec) + build_batch(
        [b"c", b"d"], base_offset=2, leader_epoch=2, codec=codec
    )
    failing = Failing(b"d")
    fetch = PartitionFetch(A, data, 0)
    run = fetch.take(10)
    run.deserialize(None, adapt(failing, "value"))
    assert (["a", "b", "c"], 3, 2) == ([r.value for r in run], run.next_offset, run.leader_epoch)
    assert (3, 2, False) == (fetch.next_offset, fetch.next_leader_epoch, fetch.exhausted)
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="seek to offset 4 to skip"):
            fetch.take(10).deserialize(None, adapt(failing, "value"))
        assert (3, False) == (fetch.next_offset, fetch.exhausted)
    failing.refused.clear()
    run = fetch.take(10)
    run.deserialize(None, adapt(failing, "value"))
    assert (["d"], 4, True) == ([r.value for r in run], fetch.next_offset, fetch.exhausted)


def test_a_failure_at_the_first_record_of_a_batch() -> None:
    """After the failure the position is behind the last good record, with the epoch of that record."""
    data = build_batch([b"a"], leader_epoch=1) + build_batch([b"b"], base_offset=5, leader_epoch=2)
    fetch = PartitionFetch(A, data, 0)
    run = fetch.take(10)
    run.deserialize(None, adapt(Failing(b"b"), "value"))
    assert (1, 1, 1) == (len(run), run.next_offset, run.leader_epoch)
    assert [5] == [r.offset for r in fetch.take(10)]


@pytest.mark.parametrize("origin", ["key", "value"])
def test_the_failure_has_the_data_of_a_dead_letter(origin: str) -> None:
    """The error contains everything that a dead-letter queue needs."""
    data = build_batch([Rec(b"bad", b"bad", [("h", b"x")], 77)], base_offset=6)
    run = PartitionFetch(B, data, 6).take(1)
    failing = adapt(Failing(b"bad"), origin)
    with pytest.raises(
        RecordDeserializationError, match=rf"{origin} deserializer .*b-1 at offset 6 .*ValueError: no"
    ) as e:
        run.deserialize(*((failing, None) if origin == "key" else (None, failing)))
    error = e.value
    assert (B, 6, b"bad", b"bad", (("h", b"x"),), 77, origin) == (
        error.topic_partition,
        error.offset,
        error.key,
        error.value,
        error.headers,
        error.timestamp,
        error.origin,
    )
    assert isinstance(error.__cause__, ValueError)


def test_an_interrupt_loses_no_record() -> None:
    """After Ctrl-C in a deserializer the next poll returns all records of the interrupted one."""
    fetch = PartitionFetch(A, build_batch([b"a", b"b", b"c"]), 0)
    fetch.take(1)
    interrupted = Failing(b"c", error=KeyboardInterrupt())
    run = fetch.take(10)
    with pytest.raises(KeyboardInterrupt):
        run.deserialize(None, adapt(interrupted, "value"))
    assert (0, 1) == (len(run), fetch.next_offset)
    assert [1, 2] == [r.offset for r in fetch.take(10)]


def test_a_run_releases_its_fetch() -> None:
    """Returned records keep their own batch alive but not the fetch."""
    data = bytearray(build_batch([b"a"], codec="zstd"))
    records = ConsumerRecords.from_runs([PartitionFetch(A, data, 0).take(1)])
    data.clear()
    assert [b"a"] == [r.value for r in records]


def test_deserialized_records_are_known_to_the_garbage_collector() -> None:
    """The garbage collector finds a cycle in which a user's object refers to its record."""

    class Value:
        died = 0

        def __init__(self, data: bytes) -> None:
            self.record: ConsumerRecord | None = None

        def __del__(self) -> None:
            Value.died += 1

    run = PartitionFetch(A, build_batch([b"a"] * 4), 0).take(10)
    run.deserialize(None, adapt(Value, "value"))
    for record in list(run):
        record.value.record = record
    del record, run
    gc.collect()
    assert 4 == Value.died


def test_runs_are_not_made_by_hand() -> None:
    """A run cannot be created without a fetch."""
    with pytest.raises(TypeError, match="take"):
        RecordRun()
    assert "0 records" in repr(PartitionFetch(A, b"", 0).take(1))
