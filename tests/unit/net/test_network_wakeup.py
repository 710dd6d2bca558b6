"""The waker, which ends a blocking select."""

from __future__ import annotations

import os
import select
import socket
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
    """Wakeups before the waker is opened set a flag; later ones make the descriptor readable until it is drained."""
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
    """A wakeup never blocks or fails, and one drain clears all wakeups."""
    fd = waker.open()
    for _ in range(2_000):
        waker.wake()
        waker.clear()
    assert readable(fd)
    waker.drain()
    assert not readable(fd)


def test_repeated_wakeups_write_one_byte(waker: Waker) -> None:
    """Several wakeups write one byte; the first wakeup after a reset writes again, whether or not the
    socket was read.
    """
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
    """A thread that is about to write when the other side resets does not prevent the next wakeup from writing."""
    fd = waker.open()
    writer = waker._writer
    assert writer is not None

    class Slow:
        """A waker that is reset before its write returns."""

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
    """After close a wakeup does nothing, a second close is allowed, and the descriptors are closed."""
    fd = waker.open()
    writer = waker._writer
    waker.close()
    waker.wake()
    waker.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    waker._writer = writer  # the state in a thread that is about to write while another one closes
    waker.wake()


def test_a_forgotten_waker_gives_its_descriptors_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waker that was never closed closes its descriptors when it is freed, without a warning, also if a library has
    replaced the class of sockets.
    """
    monkeypatch.setattr(socket, "socket", type("Socket", (socket.socket,), {}))
    waker = Waker()
    fd = waker.open()
    waker._reader = waker._writer = None  # a garbage collector may finalize them before the waker
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
