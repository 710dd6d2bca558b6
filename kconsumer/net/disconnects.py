"""What it means that a connection was closed: in words, and whether the next attempt is a probe that shows why.

Decides which error is told. What then happens to the connection is the ConnectionLoop's.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.errors import BrokerConnectionError, KafkaError
from kconsumer.net.connection import Connection
from kconsumer.net.node import NodeConnection
from kconsumer.net.states import ConnectionState

CLOSES_OF_A_REFUSAL = 3
"""A broker that takes tokens without SaslAuthenticate can refuse a login by closing only; so many times in a row it has
refused."""

CLOSES_IN_HANDSHAKE, CLOSES_AT_FIRST_REQUEST = 2, 3
"""So many in a row before the first probe."""

CLOSES_BETWEEN_PROBES = 4

CLOSED = "it closed the connection"


class DisconnectClassifier:
    """Remembers what all connections of a client have in common: whether any was ready, and any request answered."""

    def __init__(self, links: Mapping[str, NodeConnection]) -> None:
        self.worked = False  # a connection has been ready
        self._links = links
        self._answered = False  # a connection that is gone answered a request

    def record(self, connection: Connection) -> None:
        """A connection is given up."""
        self._answered |= connection.has_served_request

    def in_handshake(self, link: NodeConnection) -> None:
        """The peer closed when TLS was offered."""
        if not self.worked and _probe_due(link, CLOSES_IN_HANDSHAKE):
            from kconsumer.net.probes import PLAINTEXT_PROBE

            link.next_probe = PLAINTEXT_PROBE

    def explain(self, link: NodeConnection, connection: Connection) -> KafkaError:
        """The broker closed: why, as far as one can know."""
        refused = connection.on_peer_closed()
        if refused is not None:
            link.closed_before_use += 1
            return (
                refused
                if link.closed_before_use >= CLOSES_OF_A_REFUSAL
                else connection_lost_error(link, connection, CLOSED)
            )
        if connection.has_served_request:
            link.closed_before_use = link.closes = 0
        if (
            connection.state is ConnectionState.READY
            and not connection.has_served_request
            and connection.oldest() is not None
        ):
            # Versions are told to everybody. A broker that is about to end closes then, too.
            link.closed_before_use += 1
            link.failures = link.closed_before_use
            wants_login = not (connection.requires_auth or self._has_been_answered())
            if wants_login and _probe_due(link, CLOSES_AT_FIRST_REQUEST):
                from kconsumer.net.probes import SASL_PROBE

                link.next_probe = SASL_PROBE
        return connection_lost_error(link, connection, CLOSED)

    def _has_been_answered(self) -> bool:
        """Whether any broker ever answered a request of the caller's."""
        connections = (link.connection for link in self._links.values())
        return self._answered or any(
            connection is not None and connection.has_served_request for connection in connections
        )


def _probe_due(link: NodeConnection, closes: int) -> bool:
    """Count one more close. Returns True if the next round of attempts is to be a probe: after `closes`, and then
    after every `CLOSES_BETWEEN_PROBES`."""
    link.closes += 1
    due = link.closes >= closes
    if due:
        link.closes = closes - CLOSES_BETWEEN_PROBES
    return due


def connection_lost_error(link: NodeConnection, connection: Connection, reason: str) -> BrokerConnectionError:
    """A lost connection in words, with a hint when it never worked."""
    text = f"the connection to {link.name} ({link.address}) was lost: {reason}"
    if not connection.has_served_request and connection.requires_auth:
        text += " before the first request was answered"
    elif not connection.has_served_request:
        text += (
            " before the first request was answered; a TLS or SASL listener does so to a PLAINTEXT "
            "client (check security_protocol and the port)"
        )
    return BrokerConnectionError(text)
