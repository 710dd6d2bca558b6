"""NodeConnection: how many bytes a selector waits for while a response arrives in parts."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kconsumer._core.net import MAX_LOW_WATER_BYTES, InFlight, RequestQueue
from kconsumer._core.wire import FrameBuffer
from kconsumer.net.node import NodeConnection
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import WOULD_BLOCK
from support.fakes.fake_network import NetworkHarness


class Socket:
    """A transport whose bytes the test gives."""

    plain = True
    low_water = 1

    def __init__(self) -> None:
        self.input = b""

    def recv_into(self, view: memoryview) -> int:
        size = min(len(view), len(self.input))
        view[:size], self.input = self.input[:size], self.input[size:]
        return size or WOULD_BLOCK

    def set_low_water(self, count: int) -> None:
        self.low_water = count


class Responses(RequestQueue):
    """A connection with requests in flight, which drops their responses."""

    def __init__(self) -> None:
        super().__init__("h", ConnectionState.READY, ConnectionState.READY, None, FrameBuffer())
        self.entries = [InFlight(0, None, 0, 0.0, 0.0)]

    @property
    def missing(self) -> int:
        return self._frames.missing

    def received(self, count: int, _now: float, _ended: object) -> int:
        return len(self._frames.received(count))


def frame(size: int) -> bytes:
    """Returns a response of this size."""
    return struct.pack(">i", size) + bytes(size)


HUGE = 2 * MAX_LOW_WATER_BYTES


@pytest.mark.parametrize(
    ("stream", "cuts", "expected"),
    [
        (frame(100), [104], [1]),
        (frame(100), [50, 104], [1, 1]),
        (frame(100), [50, 60, 70, 104], [1, 44, 34, 1]),
        (frame(100), [2, 4, 10, 104], [1, 100, 94, 1]),
        (frame(100) + frame(100), [50, 60, 104, 208], [1, 44, 1, 1]),
        (frame(100) + frame(100), [50, 60, 150, 160, 208], [1, 44, 1, 48, 1]),
        (frame(HUGE), [50, 60, HUGE - 16, HUGE + 4], [1, MAX_LOW_WATER_BYTES, 20, 1]),
    ],
    ids=["whole", "two parts", "four parts", "cut prefix", "two responses", "cut second response", "huge"],
)
def test_the_selector_waits_for_the_rest(stream: bytes, cuts: list[int], expected: list[int]) -> None:
    """From the second part of a response on, the selector waits for its rest. After it, it waits for any byte, although
    another request is in flight.
    """
    harness = NetworkHarness()
    node: Any = NodeConnection("1", "h", 9092, harness.client._loop, harness.client._setup)
    node.transport, node.connection = socket, connection = Socket(), Responses()
    found = []
    for begin, end in zip([0, *cuts], cuts, strict=False):
        socket.input += stream[begin:end]
        node.read(0.0)
        found.append(socket.low_water)
    assert expected == found
    assert 0 == connection.missing
