"""What goes into a NetworkClient and what comes out of it, and how errors speak of a broker.

Both are written out: `@dataclass` would compile them anew in each process.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError
from kconsumer.schema.dsl import Api


class ClientRequest:
    """A request for the connection `node`. `timeout_ms` runs from `send`; the highest version that both
    sides know, within `min_version` and `max_version`, is spoken. `tag` is the caller's and comes back
    untouched."""

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
        self.node, self.api, self.message = node, api, message
        self.timeout_ms = timeout_ms
        self.min_version, self.max_version = min_version, max_version
        self.tag = tag

    def __repr__(self) -> str:
        return f"<ClientRequest to {self.node}: {self.message!r}>"


class ClientResponse:
    """The end of a request: the answer, or the client-side error in its place.

    `now` is when that was known and `sent_at` when the request was sent, both in ms.
    """

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
        self.request, self.message, self.error = request, message, error
        self.version = version
        self.now, self.sent_at = now, sent_at

    def __repr__(self) -> str:
        return f"<ClientResponse of {self.request.node}, v{self.version}: {self.error or self.message!r}>"


class NetworkMetrics(Protocol):
    """What a client tells whoever measures it; called on the client's thread, moments in ms."""

    def connected(self, node: str, now: float) -> None:
        """A connection became ready."""
        ...

    def disconnected(self, node: str, now: float) -> None:
        """A connection ended, or an attempt failed."""
        ...

    def authenticated(self, again_ms: float | None, now: float) -> None:
        """A broker took us for who we say we are; `again_ms`: over a connection in use, and how long that took."""
        ...

    def refused(self, again: bool, now: float) -> None:
        """A broker, or we, refused a TLS handshake or a login; `again`: over a connection in use."""
        ...

    def sent(self, node: str, size: int, request: int, now: float) -> None:
        """Bytes left; `request` is the whole size of the request that they complete, 0 if they complete none."""
        ...

    def received(self, node: str, size: int, answers: int) -> None:
        """Bytes came and completed so many answers. Often many times for one answer; `polled` follows."""
        ...

    def polled(self, selects: int, waited_ms: float, busy_ms: float, now: float) -> None:
        """A poll ended: so many selects, the time they waited, and the time spent on what they found."""
        ...

    def answered(self, response: ClientResponse) -> None:
        """A request ended, well or not."""
        ...


class ConnectionReport(NamedTuple):
    """One connection for people: its id and address, its state, requests without an answer with the name and age of the
    oldest, and why it does not work, if it does not."""

    name: str
    state: str
    in_flight: int
    oldest: str
    oldest_ms: float
    error: str


def broker_name(node: str, host: str, port: int) -> str:
    """How errors name the broker behind a connection id."""
    if ":" in host:
        host = f"[{host}]"
    if node.startswith("+"):
        return f"group coordinator {node[1:]} at {host}:{port}"
    if node.startswith("-"):
        return f"bootstrap broker {host}:{port}"
    return f"broker {broker_id(node)} at {host}:{port}"


_REASONS: Mapping[int, str] = {
    errno.ECONNREFUSED: "connection refused (is a broker listening there?)",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was reset",
    errno.ETIMEDOUT: "the connection timed out",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "no route to the network",
}


def os_reason(error: Exception) -> str:
    """An operating system's error in words."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"the name could not be resolved ({getattr(error, 'strerror', None) or error})"
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    known = _REASONS.get(error.errno or 0)
    return known or error.strerror or str(error) or type(error).__name__


def refresh_error(name: str, error: Exception) -> KafkaError:
    """Return the error of a connection attempt whose changed certificates could not be read. The text of what a user's
    callable raised may quote a secret, so only its class is named."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, OSError):
        return BrokerConnectionError(
            f"{name} cannot be reached: changed certificates cannot be read: {os_reason(error)}"
        )
    return AuthenticationError(
        f"TLS with {name} failed: changed certificates cannot be read: a callable such as ssl_password failed with "
        f"{type(error).__name__}"
    )


def broker_id(node: str) -> int:
    """Returns the id of the broker that a connection id belongs to: 3 for "3", "+3" and "*3"."""
    return int(node.lstrip("+*"))
