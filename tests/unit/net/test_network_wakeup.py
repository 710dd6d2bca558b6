"""The bell that ends a blocking select."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from kconsumer.net.wakeup import Waker

pytestmark = pytest.mark.network_thread


@pytest.fixture
def waker() -> Iterator[Waker]:
    waker = Waker()
    yield waker
    waker.close()


def readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def test_a_ring_is_readable_until_drained(waker: Waker) -> None:
    """Rings before opening set the flag; later ones make the descriptor readable, until drained."""
    waker.wake()
    assert waker.is_set
    fd = waker.open()
    assert fd == waker.open()
    assert not readable(fd)
    waker.wake()
    waker.wake()
    assert readable(fd)
    waker.drain()
    waker.drain()
    assert not readable(fd)
    waker.clear()
    assert not waker.is_set


def test_a_full_socket_still_rings(waker: Waker) -> None:
    """Ringing never blocks and never fails, and one drain hears all rings."""
    fd = waker.open()
    for _ in range(2_000):
        waker.wake()
        waker.clear()
    assert readable(fd)
    waker.drain()
    assert not readable(fd)


def test_who_rings_before_he_was_heard_writes_nothing(waker: Waker) -> None:
    """One byte for many rings; the first one after a rest is written again, whether or not the socket was read."""
    waker.open()
    reader = waker._reader
    assert reader is not None
    for rings in (3, 2):
        for _ in range(rings):
            waker.wake()
        assert b"\0" == reader.recv(10)
        waker.clear()
    waker.wake()
    waker.clear()
    waker.wake()
    assert waker.is_set
    assert b"\0\0" == reader.recv(10)


def test_a_ring_that_a_rest_overtakes_is_not_the_last(waker: Waker) -> None:
    """Who was about to write when the other side rested does not keep the next ring from being written."""
    fd = waker.open()
    writer = waker._writer
    assert writer is not None

    class Slow:
        """Writes, and is heard before it can say so."""

        def send(self, data: bytes) -> int:
            sent = writer.send(data)
            waker.drain()
            waker.clear()
            return sent

        def close(self) -> None:
            writer.close()

    waker._writer = Slow()  # type: ignore[assignment]  # stands in for a socket
    waker.wake()
    assert not readable(fd)
    waker._writer = writer
    waker.wake()
    assert readable(fd)


def test_a_closed_waker_is_quiet(waker: Waker) -> None:
    """Ringing after close does nothing; closing twice is fine; the descriptors are given back."""
    fd = waker.open()
    writer = waker._writer
    waker.close()
    waker.wake()
    waker.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    waker._writer = writer  # what a thread saw that was about to ring while another closed
    waker.wake()


def test_a_forgotten_waker_gives_its_descriptors_back() -> None:
    """A consumer that was never closed leaks nothing."""
    waker = Waker()
    fd = waker.open()
    del waker
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_waker_whose_constructor_was_interrupted_is_collected() -> None:
    """An object without attributes, as an exception in __init__ leaves it, raises nothing when it is collected."""
    Waker.__new__(Waker).__del__()
