"""The bounded readers of wire.pxd and the Slice class, value by value."""

from __future__ import annotations

import pytest

from kconsumer._core.wire import Slice, read_one

FITTING = [
    ("i8", b"\xff", -1),
    ("i16", b"\x80\x00", -(2**15)),
    ("u16", b"\xff\xfe", 65534),
    ("i32", b"\x00\x00\x01\x00", 256),
    ("u32", b"\xff\xff\xff\xff", 2**32 - 1),
    ("i64", b"\x80" + bytes(7), -(2**63)),
    ("uvarint", b"\x00", 0),
    ("uvarint", b"\x7f", 127),
    ("uvarint", b"\x80\x01", 128),
    ("uvarint", b"\xff\xff\xff\xff\x0f", 2**32 - 1),
    ("uvarlong", b"\xff" * 9 + b"\x01", 2**64 - 1),
    ("varint", b"\x01", -1),
    ("varint", b"\x02", 1),
    ("varint", b"\xac\x02", 150),
    ("varint", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
    ("varint", b"\xff\xff\xff\xff\x0f", -(2**31)),
    ("varlong", b"\xfe" + b"\xff" * 8 + b"\x01", 2**63 - 1),
    ("varlong", b"\xff" * 9 + b"\x01", -(2**63)),
]


@pytest.mark.parametrize(("kind", "data", "value"), FITTING)
def test_reads_a_value(kind: str, data: bytes, value: int) -> None:
    """A reader consumes the bytes of its value and leaves the bytes after it."""
    assert (value, len(data)) == read_one(kind, data)
    assert (value, len(data)) == read_one(kind, data + b"\xaa")


@pytest.mark.parametrize(("kind", "data", "value"), FITTING)
def test_refuses_a_cut_value(kind: str, data: bytes, value: int) -> None:
    """A value that is cut by the end of the buffer is refused, whatever is behind the end in memory."""
    for size in range(len(data)):
        assert read_one(kind, memoryview(data)[:size]) is None


@pytest.mark.parametrize(("kind", "size"), [("uvarint", 5), ("varint", 5), ("uvarlong", 10), ("varlong", 10)])
def test_refuses_an_endless_varint(kind: str, size: int) -> None:
    """A varint with more than the maximum number of bytes is refused, even if it ends later."""
    assert read_one(kind, b"\x80" * size + b"\x00") is None


def test_accepts_an_overlong_varint() -> None:
    """A value written in more bytes than it needs is accepted up to five bytes, as Java does."""
    assert (1, 5) == read_one("uvarint", b"\x81\x80\x80\x80\x00")


def test_drops_bits_beyond_the_type() -> None:
    """Bits of a fifth byte that do not fit in 32 are dropped, as Java does."""
    assert (2**32 - 1, 5) == read_one("uvarint", b"\xff\xff\xff\xff\x7f")


def test_unknown_reader() -> None:
    """The function that gives tests access to the readers refuses unknown names."""
    with pytest.raises(ValueError, match="read_f64"):
        read_one("f64", b"")


def test_slice_shows_its_source() -> None:
    """A Slice shows another object's bytes without copying them, and read-only."""
    source = bytearray(b"abcdef")
    view = Slice(memoryview(source)[1:4])
    assert b"bcd" == bytes(view)
    assert 3 == len(view)
    source[1] = ord("x")
    assert b"xcd" == bytes(view)
    assert memoryview(view).readonly


def test_slice_keeps_its_source_in_place() -> None:
    """While a Slice refers to a bytearray, the bytearray cannot be resized."""
    source = bytearray(b"abc")
    view = Slice(source)
    with pytest.raises(BufferError):
        source.extend(b"d")
    del view
    source.extend(b"d")


def test_slice_equality() -> None:
    """A Slice equals any object with the same bytes, and cannot be hashed because its bytes may change."""
    assert Slice(b"ab") == Slice(bytearray(b"ab"))
    assert Slice(b"ab") == b"ab"
    assert b"ab" == Slice(b"ab")
    assert Slice(b"ab") != b"abc"
    assert Slice(b"ab") != "ab"
    with pytest.raises(TypeError):
        hash(Slice(b"ab"))
    assert "<Slice of 2 bytes>" == repr(Slice(b"ab"))


def test_slice_needs_bytes_in_a_row() -> None:
    """Only contiguous buffers can be wrapped."""
    with pytest.raises(TypeError):
        Slice("text")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(BufferError):
        Slice(memoryview(b"abcdef")[::2])


def test_empty_slice() -> None:
    """A Slice may be empty."""
    assert b"" == bytes(Slice(b"")) == bytes(Slice())
