"""The network between the clients and a broker, which can be interrupted or slow.

While the network is interrupted, it holds the bytes of both directions. On a slow network, a response arrives in parts.
"""

from __future__ import annotations

from collections.abc import Callable

from kconsumer.testing.cluster.timers import NO_TIMER, Timer, Timers

PART_MS = 20.0  # the time that each part of a response takes on a slow network


class Network:
    """The state of the network between a broker and its clients."""

    def __init__(self) -> None:
        self.interrupted = False
        self.bytes_per_second: float | None = None  # of each connection, from the broker to the client; None: unlimited


class Link:
    """The network of one connection.

    Calls `on_request(data, now)` with bytes of the client that reach the broker, and `on_response(data)` with bytes of
    the broker that reach the client, each in the order in which they were sent.
    """

    def __init__(
        self,
        network: Network,
        timers: Timers,
        on_request: Callable[[bytes, float], None],
        on_response: Callable[[bytes], None],
    ) -> None:
        self._network = network
        self._timers = timers
        self._on_request = on_request
        self._on_response = on_response
        self._requests = bytearray()  # sent by the client while the network was interrupted
        self._responses = bytearray()  # sent by the broker; they have not yet reached the client
        self._timer: Timer = NO_TIMER  # when the next part of the responses arrives

    @property
    def empty(self) -> bool:
        """True if all responses have reached the client."""
        return not self._responses

    def receive(self, data: bytes, now: float) -> None:
        """Pass bytes of the client to the broker, or hold them while the network is interrupted."""
        if self._network.interrupted:
            self._requests += data
        else:
            self._on_request(data, now)

    def send(self, data: bytes, now: float) -> None:
        """Pass bytes of the broker to the client. If the network is interrupted or slow, they arrive later."""
        if not self._responses and not self._network.interrupted and self._network.bytes_per_second is None:
            self._on_response(data)
            return
        self._responses += data
        self.resume(now)

    def resume(self, now: float) -> None:
        """Pass on the held bytes after the state of the network has changed, unless it is interrupted."""
        if self._network.interrupted:
            return
        if self._requests:
            data = bytes(self._requests)
            self._requests.clear()
            self._on_request(data, now)
        if not self._timer.active:
            self._send_part(now)

    def close(self) -> None:
        """Drop the bytes that have not arrived."""
        self._requests.clear()
        self._responses.clear()
        self._timer.cancel()

    def _send_part(self, now: float) -> None:
        """Set the timer that delivers the next part of the responses. If the rate is not limited, deliver all bytes at
        once.

        Does nothing if there are no bytes, or if the network is interrupted.
        """
        rate = self._network.bytes_per_second
        if not self._responses or self._network.interrupted:
            return
        if rate is None:
            self._deliver(len(self._responses))
            return
        size = min(len(self._responses), max(1, int(rate * PART_MS / 1000)))
        self._timer = self._timers.add(now + size * 1000 / rate, lambda at: self._part_arrived(size, at))

    def _part_arrived(self, size: int, now: float) -> None:
        if not self._network.interrupted:
            self._deliver(size)
            self._send_part(now)

    def _deliver(self, size: int) -> None:
        data = bytes(self._responses[:size])
        del self._responses[:size]
        self._on_response(data)
