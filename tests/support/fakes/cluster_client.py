"""A client of the cluster model in virtual time: it sends encoded requests and decodes the responses."""

from __future__ import annotations

from typing import Any

from kconsumer._core.codec import decode_response, encode_request
from kconsumer.schema.dsl import Api, Message
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster


class ClusterClient:
    """One connection to a broker of the model. All clients of a test share its clock."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, broker: int = 1, client_id: str = "test") -> None:
        connection = cluster.connect(broker)
        assert connection is not None
        self.connection = connection
        self._cluster, self._clock, self._client_id = cluster, clock, client_id
        self._sent: dict[int, tuple[Api, int]] = {}  # by correlation id
        self._received = bytearray()
        self._responses: dict[int, Any] = {}

    def send(self, api: Api, version: int, message: Message) -> int:
        """Send a request. Returns its correlation id, by which `response` finds the response."""
        number = len(self._sent)
        self._sent[number] = (api, version)
        data = encode_request(api, version, number, self._client_id, message)
        self.connection.receive(data, self._clock.now())
        return number

    def response(self, number: int) -> Any:
        """Returns the response to a request, or None if it has not arrived."""
        self._received += self.connection.take_output()
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4])
            if len(self._received) < 4 + size:
                break
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            correlation_id = int.from_bytes(frame[:4])
            _, self._responses[correlation_id] = decode_response(*self._sent[correlation_id], frame)
        return self._responses.get(number)

    def call(self, api: Api, version: int, message: Message, *, wait_ms: float = 0) -> Any:
        """Send a request and return its response. Time advances by up to `wait_ms` until the response arrives."""
        number = self.send(api, version, message)
        end = self._clock.now() + wait_ms
        while (response := self.response(number)) is None:
            deadline = self._cluster.next_deadline()
            if deadline is None or deadline > end:
                raise AssertionError(f"{api.name} has no response after {wait_ms} ms")
            advance(self._cluster, self._clock, max(0.0, deadline - self._clock.now()))
        return response


def advance(cluster: Cluster, clock: VirtualClock, ms: float) -> None:
    """Advance the time by `ms`, and run each timer of the cluster at its deadline."""
    end = clock.now() + ms
    while (deadline := cluster.next_deadline()) is not None and deadline <= end:
        clock.advance(max(0.0, deadline - clock.now()))
        cluster.run_timers(clock.now())
    clock.advance(end - clock.now())
