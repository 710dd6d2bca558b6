"""Finds the likely cause of a disconnect by the broker.

Decides which error a connection ends with, and whether the next attempt is a probe (`probes.py`). The event loop closes
the connection.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.errors import BrokerConnectionError, KafkaError
from kconsumer.net.connection import Connection
from kconsumer.net.node import READY, NodeConnection

CLOSES_OF_A_REFUSAL = 3
"""A broker without SaslAuthenticate can refuse credentials only by a disconnect. This many disconnects in a row are
treated as a refusal, and fewer as network errors."""

CLOSES_IN_HANDSHAKE, CLOSES_AT_FIRST_REQUEST = 2, 3
"""The first probe follows after this many disconnects, during the TLS handshake or at the first request."""

CLOSED = "it closed the connection"


class DisconnectClassifier:
    """Finds the causes of disconnects. Uses what has happened on all connections of a client."""

    def __init__(self, nodes: Mapping[str, NodeConnection]) -> None:
        self._nodes = nodes
        self._any_ready = False  # a connection has been ready
        self._any_response = False  # a connection that has ended received a response to a request

    def on_ready(self) -> None:
        """Record that a connection became ready. This shows that `security_protocol` is right, so no TLS failure needs
        a plaintext probe any more."""
        self._any_ready = True

    def on_detach(self, connection: Connection) -> None:
        """Record that a connection ends, and whether the broker has responded to a request on it."""
        self._any_response |= connection.has_served_request

    def on_closed_in_handshake(self, node: NodeConnection) -> None:
        """Count a disconnect during the TLS handshake. If a probe is due, the next attempts to connect are probes
        without TLS."""
        if not self._any_ready and node.probe_due(CLOSES_IN_HANDSHAKE):
            from kconsumer.net.probes import PLAINTEXT_PROBE

            node.probe_next(PLAINTEXT_PROBE)

    def explain(self, node: NodeConnection, connection: Connection) -> KafkaError:
        """Returns the error for a disconnect by the broker, with its likely cause. Also counts the disconnect.
        If a probe is due, the next attempts to connect are probes."""
        refusal = connection.on_peer_closed()
        if refusal is not None:
            refusal = node.on_auth_refused_by_close(refusal, CLOSES_OF_A_REFUSAL)
            return refusal or connection_lost_error(node, connection, CLOSED)
        if connection.has_served_request:
            node.reset_closes()
        elif connection.state is READY and connection.oldest() is not None:
            # To a client without SASL, a SASL listener responds to ApiVersions and closes the connection at the next
            # request. But a broker that is shutting down may do the same.
            node.on_closed_before_use()
            may_need_auth = not (connection.requires_auth or self._any_request_served())
            if may_need_auth and node.probe_due(CLOSES_AT_FIRST_REQUEST):
                from kconsumer.net.probes import SASL_PROBE

                node.probe_next(SASL_PROBE)
        return connection_lost_error(node, connection, CLOSED)

    def _any_request_served(self) -> bool:
        """Returns whether any broker has ever responded to a request other than those of authentication and
        ApiVersions."""
        connections = (node.connection for node in self._nodes.values())
        return self._any_response or any(
            connection is not None and connection.has_served_request for connection in connections
        )


def connection_lost_error(node: NodeConnection, connection: Connection, reason: str) -> BrokerConnectionError:
    """Returns the error of a lost connection, with a hint if no request has had a response on it."""
    text = f"the connection to {node.name} ({node.address}) was lost: {reason}"
    if not connection.has_served_request and connection.requires_auth:
        text += " before the first response"
    elif not connection.has_served_request:
        text += (
            " before the first response; a TLS or SASL listener does so to a PLAINTEXT client (check security_protocol "
            "and the port)"
        )
    return BrokerConnectionError(text + node.record.hint)
