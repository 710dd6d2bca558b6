"""What it means that a connection ended: in words, and whether it is proof that a broker wants a login.

Decides which error is told. What then happens to the connection is the ConnectionLoop's.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError
from kconsumer.net.connection import Connection
from kconsumer.net.link import Link
from kconsumer.net.states import ConnectionState

CLOSED_UNUSED = 3
"""A broker that closes so many connections in a row at the first request wants a login."""

CLOSED = "it closed the connection"


class Hangups:
    """Remembers what all connections of a client have in common: whether any broker ever answered."""

    def __init__(self, security_protocol: str, links: Mapping[str, Link]) -> None:
        self._security_protocol = security_protocol
        self._links = links
        self._answered = False  # a connection that is gone answered a request

    def gone(self, connection: Connection) -> None:
        """A connection is given up."""
        self._answered |= connection.used

    def meaning(self, link: Link, connection: Connection) -> KafkaError:
        """The broker closed: why, as far as one can know."""
        refused = connection.hung_up()
        if refused is not None:
            return refused
        if connection.used:
            link.unused = 0
        if connection.state is not ConnectionState.READY or connection.used or connection.oldest() is None:
            return lost(link, connection, CLOSED)
        # Versions are told to everybody. A broker that is about to end closes then, too: once is no proof.
        link.unused += 1
        link.failures = link.unused
        if link.unused < CLOSED_UNUSED or connection.logs_in or self._has_been_answered():
            return lost(link, connection, CLOSED)
        return AuthenticationError(
            f"{link.name} closes connections at the first request: a listener with SASL does so to a client that does "
            f"not log in (security_protocol is {self._security_protocol}; check it and the port)"
        )

    def _has_been_answered(self) -> bool:
        """Whether any broker ever answered a request of the caller's."""
        connections = (link.connection for link in self._links.values())
        return self._answered or any(connection is not None and connection.used for connection in connections)


def lost(link: Link, connection: Connection, reason: str) -> BrokerConnectionError:
    """A lost connection in words, with a hint when it never worked."""
    text = f"the connection to {link.name} ({link.address}) was lost: {reason}"
    if not connection.used:
        text += (
            " before the first request was answered; a TLS or SASL listener does so to a PLAINTEXT "
            "client (check security_protocol and the port)"
        )
    return BrokerConnectionError(text)
