"""`kconsumer dump`: its output for a log segment, and its error for a file that is not one."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from kconsumer import cli
from kconsumer.testing.batches import (
    Rec,
    abort_marker,
    build_batch,
    build_message_set,
    commit_marker,
    control_batch,
    empty_batch,
)

NAME = "00000000000000000000.log"

LOG = [
    build_message_set([b"a", b"b"], magic=0, codec="gzip"),
    build_message_set([(b"k", b"c")], magic=1, base_offset=2, timestamp=1000),
    build_batch(
        [Rec(b"d", b"k", [("h", b"x"), ("n", None)]), Rec(b"\xff", offset=5)],
        base_offset=3,
        codec="zstd",
        timestamp=1_700_000_000_000,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=1,
        base_sequence=7,
        transactional=True,
    ),
    abort_marker(6, 9, producer_epoch=1),
    commit_marker(7, 9),
    control_batch(99, 8),
    empty_batch(9, 20),
]

TEXT = """\
offset 0-1, 2 records, position 0, {p1} bytes, format 0, gzip, no timestamp
offset 2-2, 1 record, position {p1}, 36 bytes, format 1, none, create time 1000
offset 3-5, 2 records, position {p2}, {zstd} bytes, format 2, zstd, create time 1700000000000, leader epoch 4, \
producer 9 epoch 1 sequence 7, transactional
offset 6-6, 1 record, position {p6}, 78 bytes, format 2, none, create time 0, producer 9 epoch 1 sequence -1, \
transactional, control abort
offset 7-7, 1 record, position {p7}, 78 bytes, format 2, none, create time 0, producer 9 epoch 0 sequence -1, \
transactional, control commit
offset 8-8, 1 record, position {p8}, 78 bytes, format 2, none, create time 0, producer 0 epoch 0 sequence -1, \
transactional, control type 99
offset 9-20, 0 records, position {p9}, 61 bytes, format 2, none, create time -1
"""


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """The path of a segment of partition 3 of orders."""
    folder = tmp_path / "orders-3"
    folder.mkdir()
    return folder / NAME


def test_a_line_for_each_batch(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All formats are printed with the fields of their headers, including control batches and emptied ones."""
    segment.write_bytes(b"".join(LOG))
    assert 0 == cli.main(["dump", str(segment)])
    at = [sum(map(len, LOG[:i])) for i in range(len(LOG))]
    expected = TEXT.format(zstd=len(LOG[2]), p1=at[1], p2=at[2], p6=at[3], p7=at[4], p8=at[5], p9=at[6])
    out, err = capsys.readouterr()
    assert (expected, "") == (out, err)


def test_a_line_for_each_record(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records are printed below their batch, with bytes as Python literals, including control records."""
    segment.write_bytes(LOG[2] + LOG[3])
    assert 0 == cli.main(["dump", "--records", str(segment)])
    lines = capsys.readouterr().out.splitlines()
    assert "  3 1700000000000 b'k' b'd' h=b'x' n=None" == lines[1]
    assert "  5 1700000000000 None b'\\xff'" == lines[2]
    assert "  6 0 b'\\x00\\x00\\x00\\x00' b'\\x00\\x00\\x00\\x00\\x00\\x00'" == lines[4]


def test_json(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A JSON object is printed for each batch and record, with the partition from the name of the folder."""
    segment.write_bytes(b"".join(LOG))
    assert 0 == cli.main(["dump", "-f", "json", "--records", str(segment)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    batches = [row for row in rows if row["type"] == "batch"]
    assert [0, 2, 3, 6, 7, 8, 9] == [row["base_offset"] for row in batches]
    assert [None, None, None, ["abort"], ["commit"], ["type 99"], None] == [row.get("control") for row in batches]
    assert {"codec": "zstd", "timestamp_type": "CREATE_TIME", "transactional": True, "producer_id": 9}.items() <= (
        batches[2].items()
    )
    records = [row for row in rows if row["type"] == "record"]
    assert [0, 1, 2, 3, 5, 6, 7, 8] == [row["offset"] for row in records]
    assert ("orders", 3, "d", [["h", "x"], ["n", None]]) == tuple(
        records[3][name] for name in ("topic", "partition", "value", "headers")
    )
    assert {"base64": "/w=="} == records[4]["value"]


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (LOG[3][:-1], "the last 77 bytes, from position {at}, are the beginning of a batch of 78 bytes"),
        (LOG[3][:20], "the last 20 bytes, from position {at}, are the beginning of a batch of 78 bytes"),
        (LOG[3][:12], "the last 12 bytes, from position {at}, are the beginning of a batch\n"),
        (bytes(5000), "the last 5000 bytes, from position {at}, are zeros"),
    ],
    ids=["cut", "cut in its header", "no format yet", "zeros"],
)
def test_an_incomplete_batch_at_the_end(
    segment: Path, capsys: pytest.CaptureFixture[str], tail: bytes, said: str
) -> None:
    """A batch that was being written, or preallocated zeros, is reported on stderr and is no error."""
    segment.write_bytes(LOG[0] + tail)
    assert 0 == cli.main(["dump", str(segment)])
    out, err = capsys.readouterr()
    assert 1 == out.count("\n")
    assert said.format(at=len(LOG[0])) in err


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            build_batch([b"x"], base_offset=2, crc=1),
            "position {at}: corrupt record data in orders-3 at offset 2: its checks",
        ),
        (build_batch([b"x"], attributes=1), "position {at}: corrupt record data in orders-3 at offset 0: gzip"),
        (
            b"this is a text, and not a log",
            "is not a log segment at position {at}: the header there has batch size 1629516901 and message format 97",
        ),
        (
            b"\0" * 11 + b"\x05" + bytes(20),
            "is not a log segment at position {at}: the header there has batch size 5 and message format 0",
        ),
    ],
    ids=["checksum", "gzip", "text", "size"],
)
def test_a_segment_that_is_corrupt(segment: Path, capsys: pytest.CaptureFixture[str], bad: bytes, said: str) -> None:
    """Batches before the damage are printed; one line on stderr names file, position and offset; the exit code is 1."""
    segment.write_bytes(LOG[0] + bad + LOG[1])
    assert 1 == cli.main(["dump", str(segment)])
    out, err = capsys.readouterr()
    assert (1, 1) == (out.count("\n"), err.count("\n"))
    assert said.format(at=len(LOG[0])) in err
    assert str(segment) in err
    assert "seek" not in err


def test_a_large_file_is_not_read_as_a_whole(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 MB of batches of a megabyte take a few megabytes of memory; a wrong size in a header takes none."""
    with segment.open("wb") as file:
        for offset in range(200):
            file.write(build_batch([bytes(1 << 20)], base_offset=offset))
        file.write(b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 4 + b"\x02" + bytes(100))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 == cli.main(["dump", str(segment)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    out, err = capsys.readouterr()
    assert 200 == out.count("\n")
    assert "the beginning of a batch of 2147483659 bytes" in err
