"""Requests and replies: what managers give to the network, and what they receive from it.

The classes are not dataclasses, because `@dataclass` would generate their methods again in each process, which makes
the import slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kconsumer.errors import KafkaError
from kconsumer.schema.dsl import Api


class Reply:
    """The result of a request: the response, or the error of the client if there is no response."""

    __slots__ = ("concerns_others", "error", "message", "node", "now", "sent_at", "version")

    def __init__(
        self,
        message: Any,
        error: KafkaError | None,
        now: float,
        version: int = -1,
        node: str = "",
        sent_at: float = 0.0,
    ) -> None:
        self.message = message  # the response; it may contain error codes
        self.error = error  # an error of the client, such as a disconnect, a timeout or no common version
        self.now = now  # when the request ended (ms)
        self.version = version  # the version of the request
        self.node = node  # the connection id
        self.sent_at = sent_at  # when the request was sent (ms)
        self.concerns_others = True  # other managers may have to be polled; the handler may set it to False

    def __repr__(self) -> str:
        return f"<Reply from {self.node or 'no node'}, v{self.version}: {self.error or self.message!r}>"


class Exchange(Protocol):
    """Handles ordinary responses where they are received, and creates the next request."""

    def receive(self, connection: Any, entry: Any, frame: Any, now: float) -> bytes | None:
        """Handle a response. Returns the next request, or b"" if it is not known yet.

        Returns None, without a change, if the response is not ordinary. It is then decoded, and passed to the handler
        of the request.
        """
        ...

    def notify(self) -> None:
        """Notify those who wait for what `receive` has handled. Called after the next request was sent."""
        ...


class UnsentRequest:
    """A request that a manager has created, for the engine to send."""

    __slots__ = ("api", "exchange", "handler", "max_version", "message", "min_version", "needs", "node", "timeout_ms")

    def __init__(
        self,
        api: Api,
        message: Any,
        handler: Callable[[Reply], None],
        node: str | None = None,
        timeout_ms: float | None = None,
        min_version: int = 0,
        max_version: int = 32767,
        needs: str = "",
        exchange: Exchange | None = None,
    ) -> None:
        self.exchange = exchange  # handles the response where it is received, if it is ordinary
        self.api, self.message, self.handler = api, message, handler
        self.needs = needs  # what needs `min_version`, and what to change; for the error of a broker without it
        self.node = node  # the connection id: "3", or "+3" for the coordinator connection to broker 3; None: any broker
        self.timeout_ms = timeout_ms  # None: the option `request_timeout_ms` applies
        self.min_version, self.max_version = min_version, max_version

    def send_over(self, connection: str) -> None:
        """Choose another connection for this request, which was not sent yet."""
        self.node = connection

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` after the handler has returned. It is not called if the handler raises."""
        handler = self.handler

        def handle(reply: Reply) -> None:
            handler(reply)
            callback()

        self.handler = handle

    def __repr__(self) -> str:
        return f"<UnsentRequest to {self.node or 'any broker'}: {self.message!r}>"


Ended = tuple[UnsentRequest, Reply]
"""A request that has ended, and its reply."""
