"""With read_committed, the compiled decoder and the slow one skip the same records of any history of transactions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer._core.decode import PartitionFetch
from kconsumer.deserializers import adapt
from kconsumer.errors import RecordDeserializationError
from kconsumer.testing.batches import (
    CODECS,
    abort_marker,
    build_batch,
    build_message_set,
    commit_marker,
    control_batch,
    empty_batch,
)
from support.harnesses.decoding import TP, assert_same, compiled
from support.oracles import reference

PRODUCERS = 4


@dataclass
class History:
    """A partition's log as a broker writes it, and its readable records: committed and non-transactional ones."""

    log: list[bytes] = field(default_factory=list)
    end: int = 0
    open: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)

    def write(self, batch: bytes, count: int) -> None:
        self.log.append(batch)
        self.end += count

    def produce(self, producer: int, count: int, codec: str, *, gap: int = 0) -> None:
        """Add a batch of a transaction, and begin the transaction if necessary. `gap` of its last offsets were
        compacted.
        """
        _, offsets = self.open.setdefault(producer, (self.end, []))
        offsets += range(self.end, self.end + count)
        batch = build_batch(
            [b"%d" % offset for offset in range(self.end, self.end + count)],
            base_offset=self.end,
            codec=codec,
            producer_id=producer,
            transactional=True,
            last_offset_delta=count + gap - 1,
            leader_epoch=1,
        )
        self.write(batch, count + gap)

    def finish(self, producer: int, *, abort: bool) -> None:
        """Add the producer's marker, with or without a transaction."""
        first, offsets = self.open.pop(producer, (self.end, []))
        if abort and offsets:
            self.aborted.append((producer, first))
        if not abort:
            self.visible += offsets
        self.write((abort_marker if abort else commit_marker)(self.end, producer), 1)

    def plain(self, kind: str) -> None:
        """Add a non-transactional batch."""
        at, value = self.end, b"%d" % self.end
        batches = {
            "numbered": lambda: build_batch([value], base_offset=at, producer_id=1),
            "v2": lambda: build_batch([value], base_offset=at),
            "v1": lambda: build_message_set([value], base_offset=at, codec="gzip"),
            "v0": lambda: build_message_set([value], magic=0, base_offset=at),
            "empty": lambda: empty_batch(at, at, producer_id=2),
            "leader change": lambda: control_batch("leader_change", at, producer_id=-1),
        }
        if kind in ("numbered", "v2", "v1", "v0"):
            self.visible.append(at)
        self.write(batches[kind](), 1)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Generates the batches of several producers, in and outside transactions, interleaved."""
    history = History()
    producer = st.integers(0, PRODUCERS - 1)
    for _ in range(draw(st.integers(0, 14))):
        match draw(st.sampled_from(("produce", "produce", "produce", "abort", "abort", "commit", "plain"))):
            case "produce":
                codec = draw(st.sampled_from(tuple(CODECS)))
                history.produce(draw(producer), draw(st.integers(1, 3)), codec, gap=draw(st.sampled_from((0, 0, 2))))
            case "plain":
                history.plain(draw(st.sampled_from(("numbered", "v2", "v1", "v0", "empty", "leader change"))))
            case kind:
                history.finish(draw(producer), abort=kind == "abort")
    return history


@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(1, 6), st.randoms(use_true_random=False))
def test_what_the_history_says(history: History, step: int, rng: random.Random) -> None:
    """Up to the last stable offset, exactly the committed and the non-transactional records are returned."""
    stable = min((first for first, _ in history.open.values()), default=history.end)
    parts, aborted = history.log, list(history.aborted)
    rng.shuffle(aborted)
    found = compiled(b"".join(parts), None, step, aborted=aborted)
    expected = sorted(offset for offset in history.visible if offset < stable)
    assert expected == [record[0] for record in found.records if int(str(record[0])) < stable]
    assert (history.end or None) == found.next_offset


@settings(max_examples=300, deadline=None)
@given(
    histories(),
    st.lists(st.tuples(st.integers(-1, PRODUCERS), st.integers(-5, 40)), max_size=6),
    st.none() | st.integers(0, 30),
    st.integers(1, 6),
    st.data(),
)
def test_any_list_of_aborted_transactions(
    history: History, aborted: list[tuple[int, int]], start: int | None, step: int, data: st.DataObject
) -> None:
    """With any list of aborted transactions, even one that no broker sends, from any offset and cut at any byte, both
    give the same records.
    """
    joined = b"".join(history.log)
    cut = joined[: data.draw(st.integers(0, len(joined)) | st.just(len(joined)))]
    expected = reference.decode(cut, start_offset=start, aborted=aborted)
    assert_same(expected, compiled(cut, start, step, aborted=aborted))


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(1, 30), st.sets(st.integers(0, 30), max_size=4))
def test_going_back_changes_nothing(history: History, step: int, failing: set[int]) -> None:
    """However often a deserializer fails and batches are read again, the same records are returned."""
    joined, left = b"".join(history.log), {b"%d" % offset for offset in failing}

    def convert(value: bytes) -> bytes:
        if value in left:
            left.remove(value)
            raise ValueError("once")
        return value

    fetch = PartitionFetch(TP, joined, 0, read_committed=True, aborted_transactions=history.aborted)
    seen: list[int] = []
    while not fetch.exhausted:
        run = fetch.take(step)
        try:
            run.deserialize(None, adapt(convert, "value"))
        except RecordDeserializationError:
            continue
        seen += [record.offset for record in run]
    assert [record[0] for record in reference.decode(joined, aborted=history.aborted).records] == seen
