"""The bell that ends a blocking select."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from kconsumer.net.wakeup import Waker


@pytest.fixture(params=["eventfd", "pipe"])
def waker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waker]:
    """A waker of either kind."""
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has no eventfd")
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


def test_a_full_descriptor_still_rings(waker: Waker) -> None:
    """Ringing never blocks and never fails."""
    fd = waker.open()
    for _ in range(20_000):
        waker.ring()
    assert readable(fd)


def test_a_closed_waker_is_quiet(waker: Waker) -> None:
    """Ringing after close does nothing; closing twice is fine; the descriptors are given back."""
    fd = waker.open()
    waker.close()
    waker.ring()
    waker.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_forgotten_waker_gives_its_descriptors_back(waker: Waker) -> None:
    """A consumer that was never closed leaks nothing."""
    other = Waker()
    fd = other.open()
    del other
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
