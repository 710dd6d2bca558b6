"""Columns hold the same values as iterating over the records, for any batches, cut anywhere."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer._core.arrow import build
from kconsumer._core.decode import PartitionFetch
from kconsumer.arrow import COLUMNS, Table
from kconsumer.testing.batches import CODECS, Rec, build_batch
from kconsumer.types import TopicPartition

optional_bytes = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5) | st.binary(max_size=5), optional_bytes), max_size=3)
times = st.integers(-1, 2**41)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Generates a few batches with ascending offsets and gaps."""
    base, out = draw(st.integers(0, 50)), []
    for _ in range(draw(st.integers(0, 3))):
        offset, records = base, []
        for _ in range(draw(st.integers(0, 9))):
            offset += draw(st.integers(0, 3))
            records.append(Rec(draw(optional_bytes), draw(optional_bytes), draw(headers), draw(times), offset))
            offset += 1
        out.append(
            build_batch(
                records,
                base_offset=base,
                codec=draw(st.sampled_from(tuple(CODECS))),
                log_append_time=draw(st.booleans()),
                max_timestamp=draw(times),
                leader_epoch=draw(st.integers(-1, 9)),
                last_offset_delta=max(0, offset - base),
            )
        )
        base = offset + 1
    return b"".join(out)


@settings(deadline=None)
@given(logs(), st.integers(0, 60), st.integers(1, 30), st.integers(3000, 9000))
def test_columns_equal_iteration(data: bytes, start: int, step: int, max_bytes: int) -> None:
    """For any lengths of taken runs and of columns, the columns contain the records, each once and in order."""
    fetch, runs = PartitionFetch(TopicPartition("tøpic", 1), data, start, log_bytes=True), []
    while not fetch.exhausted:
        runs.append(fetch.take(step))
    table = Table(None, build(tuple(runs), COLUMNS, max_bytes=max_bytes)).to_pyarrow()
    table.validate(full=True)
    table = table.set_column(5, "timestamp", table["timestamp"].cast(pa.int64()))
    rows = [
        {**row, "headers": tuple((header["key"], header["value"]) for header in row["headers"])}
        for row in table.to_pylist()
    ]
    expected = [{name: getattr(r, name) for name in COLUMNS} for run in runs for r in run]
    assert expected == rows
