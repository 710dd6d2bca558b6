"""FrameBuffer splits a byte stream into frames, whatever the sizes of the receives."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer._core.wire import Frame, FrameBuffer
from kconsumer.errors import ProtocolError

LARGE = 200_000


def prefixed(*frames: bytes) -> bytes:
    """Return the bytes that a broker sends for these frames."""
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def feed(buffer: FrameBuffer, data: bytes, at_most: int = 1 << 30) -> list[bytes]:
    """Receive `data`, at most this many bytes at a time. Returns the completed frames."""
    frames = []
    while data:
        view = buffer.recv_view()
        size = min(len(view), len(data), at_most)
        view[:size] = data[:size]
        frames += buffer.received(size)
        data = data[size:]
    return [bytes(frame) for frame in frames]


@settings(deadline=None, max_examples=60)
@given(
    frames=st.lists(st.binary(max_size=300) | st.sampled_from([bytes(70_000), b"x" * LARGE]), max_size=6),
    chunk_size=st.sampled_from([1, 2, 3, 5, 1000, 65_536, 1 << 20]),
)
def test_frames_come_out_as_sent(frames: list[bytes], chunk_size: int) -> None:
    """Whatever the sizes of frames and of receives, frames are returned whole and in order."""
    if chunk_size < 1000:
        frames = [frame[:300] for frame in frames]
    buffer = FrameBuffer(1 << 20)
    assert frames == feed(buffer, prefixed(*frames), chunk_size)
    assert 0 == buffer.pending


def feed_in_background(buffer: FrameBuffer, data: bytes, at_most: int) -> list[bytes]:
    """Like `feed`, but as the background receiver does it, which receives a size and its frame in one job
    if possible.
    """
    frames = []
    while data:
        view = buffer.prefetch_view(1000)
        if view is None:
            frames += feed(buffer, data[:at_most])
            data = data[at_most:]
            continue
        prefix, size = data[:4], int.from_bytes(data[:4], "big")
        fits = len(prefix) == 4 and size <= len(view)
        body = data[4 : 4 + min(size, at_most)] if fits else b""
        view[: len(body)] = body
        frames += [bytes(frame) for frame in buffer.received_prefetched(prefix, len(body))]
        data = data[len(prefix) + len(body) :]
    return frames


@settings(deadline=None, max_examples=100)
@given(
    sizes=st.lists(st.integers(0, 5000) | st.sampled_from([70_000, LARGE, 2 * LARGE]), max_size=12),
    chunk_size=st.sampled_from([1, 3, 1000, 65_536, 1 << 20]),
)
def test_frames_received_ahead_come_out_as_sent(sizes: list[int], chunk_size: int) -> None:
    """Frames are the same if memory was allocated before their size was known, whether that memory is large enough, too
    small, too large, or has only the beginning of the frame.
    """
    if chunk_size < 1000:
        sizes = [size % 5000 for size in sizes]
    buffer = FrameBuffer(1 << 20)
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert frames == feed_in_background(buffer, prefixed(*frames), chunk_size)
    assert 0 == buffer.pending


def test_memory_ahead_is_for_large_frames_that_follow_each_other() -> None:
    """No memory is allocated ahead before the first large frame, in the middle of one, or after many small ones."""
    buffer = FrameBuffer()
    assert buffer.prefetch_view(1000) is None
    feed(buffer, prefixed(bytes(LARGE)))
    view = buffer.prefetch_view(1000)
    assert view is not None
    assert LARGE < len(view) < 2 * LARGE
    assert [] == buffer.received_prefetched(b"\0\0", 0)
    assert buffer.prefetch_view(1000) is None
    assert 2 == buffer.pending
    assert [b"x" * 10] == feed(buffer, b"\0\x0a" + b"x" * 10)
    for _ in range(20):
        feed(buffer, prefixed(b"small"))
    assert buffer.prefetch_view(1000) is None


def test_a_small_frame_does_not_keep_the_memory_of_a_large_one() -> None:
    """A frame that is much smaller than expected is copied to memory of its own size."""
    buffer = FrameBuffer()
    feed(buffer, prefixed(bytes(LARGE)))
    view = buffer.prefetch_view(1000)
    assert view is not None
    view[:5] = b"small"
    (frame,) = buffer.received_prefetched(b"\0\0\0\5", 5)
    assert b"small" == bytes(frame)
    assert frame.capacity < 1000


def test_an_impossible_size_of_a_frame_received_ahead() -> None:
    """A negative or too large size ends the stream, and a count of more bytes than were allocated is refused."""
    for prefix in (b"\xff\xff\xff\xff", (1 << 20).to_bytes(4, "big")):
        buffer = FrameBuffer(1 << 18)
        feed(buffer, prefixed(bytes(LARGE)))
        assert buffer.prefetch_view(1000) is not None
        with pytest.raises(ProtocolError, match="the limit is 262144"):
            buffer.received_prefetched(prefix, 0)
    buffer = FrameBuffer()
    with pytest.raises(ValueError, match="do not fit"):
        buffer.received_prefetched(b"", 0)


def test_several_frames_in_one_receive() -> None:
    """One receive may complete several frames and begin another."""
    buffer = FrameBuffer()
    assert [b"one", b"", b"three"] == feed(buffer, prefixed(b"one", b"", b"three") + b"\x00\x00\x00\x05fo")
    assert 6 == buffer.pending
    assert [b"fours"] == feed(buffer, b"urs")


def test_large_frame_is_received_in_place() -> None:
    """After its first bytes a large frame is received directly into its own memory, in one view."""
    buffer = FrameBuffer(LARGE)
    assert [] == feed(buffer, LARGE.to_bytes(4, "big") + b"ab")
    view = buffer.recv_view()
    assert LARGE - 2 == len(view)
    view[:] = bytes(LARGE - 2)
    (frame,) = buffer.received(len(view))
    assert b"ab" == bytes(frame)[:2]
    assert LARGE == len(frame)


def test_frames_are_read_only() -> None:
    """A complete frame cannot be written to, and its repr describes it."""
    buffer = FrameBuffer()
    view = buffer.recv_view()
    view[:7] = prefixed(b"abc")
    (frame,) = buffer.received(7)
    assert memoryview(frame).readonly
    assert "<Frame of 3 bytes>" == repr(frame)
    with pytest.raises(TypeError):
        memoryview(frame)[0] = 1


def test_frames_outlive_their_buffer() -> None:
    """A frame owns its bytes: later receives, and the end of the buffer, do not touch them."""
    buffer = FrameBuffer()
    view = buffer.recv_view()
    view[:7] = prefixed(b"abc")
    frames = buffer.received(7)
    feed(buffer, prefixed(*[bytes([n]) * 3 for n in range(50)]))
    del buffer, view
    assert b"abc" == bytes(frames[0])


def test_blocks_are_used_again() -> None:
    """Frames that are created and freed one after another use the same memory."""
    addresses = set()
    buffer = FrameBuffer()
    for n in range(20):
        data = prefixed(bytes(LARGE + n))
        while data:
            view = buffer.recv_view()
            size = min(len(view), len(data))
            view[:size] = data[:size]
            if size > LARGE // 2:
                addresses.add(ctypes.addressof(ctypes.c_char.from_buffer(view)))
            assert [LARGE + n] * (size == len(data)) == [len(frame) for frame in buffer.received(size)]
            data = data[size:]
            del view
    assert len(addresses) <= 2


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 0x48545450])
def test_impossible_sizes(size: int) -> None:
    """A size below zero or above the limit is an error before any memory is taken for it."""
    buffer = FrameBuffer(1000)
    with pytest.raises(ProtocolError, match=str(size)):
        feed(buffer, size.to_bytes(4, "big", signed=True))


def test_largest_size() -> None:
    """The limit itself is allowed."""
    assert [bytes(1000)] == feed(FrameBuffer(1000), prefixed(bytes(1000)))


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x09abc"])
def test_received_checks_its_count(data: bytes) -> None:
    """A count that is negative, or larger than the view, is refused."""
    buffer = FrameBuffer()
    feed(buffer, data)
    for count in (-1, len(buffer.recv_view()) + 1):
        with pytest.raises(ValueError, match="do not fit"):
            buffer.received(count)


def test_frames_are_not_made_by_hand() -> None:
    """Only a FrameBuffer makes frames."""
    with pytest.raises(TypeError, match="FrameBuffer"):
        Frame()
