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
    waker.ring()
    assert waker.rung
    fd = waker.open()
    assert fd == waker.open()
    assert not readable(fd)
    waker.ring()
    waker.ring()
    assert readable(fd)
    waker.drain()
    waker.drain()
    assert not readable(fd)
    waker.rest()
    assert not waker.rung


def test_a_full_socket_still_rings(waker: Waker) -> None:
    """Ringing never blocks and never fails, and one drain hears all rings."""
    fd = waker.open()
    for _ in range(2_000):
        waker.ring()
    assert readable(fd)
    waker.drain()
    assert not readable(fd)


def test_a_closed_waker_is_quiet(waker: Waker) -> None:
    """Ringing after close does nothing; closing twice is fine; the descriptors are given back."""
    fd = waker.open()
    writer = waker._writer
    waker.close()
    waker.ring()
    waker.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    waker._writer = writer  # what a thread saw that was about to ring while another closed
    waker.ring()


def test_a_forgotten_waker_gives_its_descriptors_back() -> None:
    """A consumer that was never closed leaks nothing."""
    waker = Waker()
    fd = waker.open()
    del waker
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
