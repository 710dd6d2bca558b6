"""A NetworkClient that runs in real time over sockets, and waits for what a test needs."""

from __future__ import annotations

from typing import Any

from kconsumer._core.lock import Clock
from kconsumer._internal.requests import UnsentRequest
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import KafkaError
from kconsumer.net.client import NetworkClient
from kconsumer.schema.metadata import METADATA
from support.fakes.fake_network import Response, request_to, responses_of, send


class ClientDriver:
    """A client of a server on the loopback interface."""

    def __init__(self, port: int, host: str = "127.0.0.1", **options: Any) -> None:
        self.clock = Clock()
        self.client = NetworkClient(ConsumerConfig(bootstrap_servers=f"{host}:{port}", **options), self.clock)
        self.began = 0.0  # the time of the last attempt

    def poll(self, timeout_ms: float = 10_000) -> list[Response]:
        """Returns the responses of one poll."""
        return responses_of(self.client.poll(timeout_ms, self.clock.now()))

    def connect(self) -> None:
        """Poll until the connection is ready. Raises the error of a failed attempt."""
        error = self.attempt()
        if error is not None:
            raise error

    def attempt(self, node: str = "-1") -> KafkaError | None:
        """Wait for the backoff, then poll until the connection is ready. Returns the error if it fails.

        The client is asked about the time at which the attempt began, because the backoff of a failed attempt may end
        before this thread runs again. Asked about a later time, the client would report no error and connect again.
        """
        deadline = self.clock.now() + 10_000
        while 0 < (wait_ms := self.client.delay_ms(node, self.clock.now())) < float("inf"):
            self.poll(wait_ms)
        self.began = self.clock.now()
        while not self.client.ready(node, self.began):
            error = self.client.connection_failed(node, self.began)
            if error is not None:
                return error
            assert self.clock.now() < deadline, "neither ready nor failed"
            self.poll()
        return None

    def send(self, api: Any = METADATA, timeout_ms: float = 10_000, **fields: Any) -> UnsentRequest:
        """Send a request, and return it."""
        request = request_to("-1", api, timeout_ms, **fields)
        send(self.client, request, self.clock.now())
        return request

    def take(self, count: int) -> list[Response]:
        """Returns the next `count` responses."""
        found: list[Response] = []
        while len(found) < count:
            taken = self.poll()
            assert taken
            found += taken
        return found
