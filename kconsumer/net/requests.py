"""The requests that managers give to the NetworkClient, and the responses that it returns.

Neither class is a dataclass, because `@dataclass` generates and compiles methods at each import.
"""

from __future__ import annotations

from typing import Any

from kconsumer.errors import KafkaError
from kconsumer.schema.dsl import Api


class ClientRequest:
    """A request to send over one connection."""

    __slots__ = ("api", "max_version", "message", "min_version", "node", "tag", "timeout_ms")

    def __init__(
        self,
        node: str,
        api: Api,
        message: Any,
        timeout_ms: float,
        min_version: int = 0,
        max_version: int = 32767,
        tag: object = None,
    ) -> None:
        self.node = node  # the connection id
        self.api, self.message = api, message
        self.timeout_ms = timeout_ms  # counted from `NetworkClient.send`
        self.min_version, self.max_version = min_version, max_version  # the highest that the broker supports is used
        self.tag = tag  # belongs to the caller; the client does not read it

    def __repr__(self) -> str:
        return f"<ClientRequest to {self.node}: {self.message!r}>"


class ClientResponse:
    """The result of a request: either the broker's response (`message`) or an `error`."""

    __slots__ = ("error", "message", "now", "request", "sent_at", "version")

    def __init__(
        self,
        request: ClientRequest,
        message: Any,
        error: KafkaError | None,
        version: int,
        now: float,
        sent_at: float = 0.0,
    ) -> None:
        self.request = request
        self.message = message  # None if there is an `error`
        self.error = error
        self.version = version  # of request and response
        self.now = now  # when the request ended, in ms
        self.sent_at = sent_at  # when it was sent, in ms

    def __repr__(self) -> str:
        return f"<ClientResponse of {self.request.node}, v{self.version}: {self.error or self.message!r}>"
