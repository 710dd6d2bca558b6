"""Connections and their errors in words: broker names, the operating system's errors, reports.

Decides what users read. It does not decide which error a connection ends with.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import NamedTuple

from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError


class ConnectionReport(NamedTuple):
    """One connection as shown to people."""

    name: str
    """The broker's role, id and address."""
    state: str
    in_flight: int
    """Requests without a response."""
    oldest: str
    """The name of the oldest of these requests; empty without one."""
    oldest_ms: float
    """Its age."""
    error: str
    """Why the connection does not work; empty if it does."""


def broker_name(node_id: str, host: str, port: int) -> str:
    """Returns how errors name the broker behind a connection id."""
    if ":" in host:
        host = f"[{host}]"
    if node_id.startswith("+"):
        return f"group coordinator {node_id[1:]} at {host}:{port}"
    if node_id.startswith("-"):
        return f"bootstrap broker {host}:{port}"
    return f"broker {broker_id(node_id)} at {host}:{port}"


def broker_id(node_id: str) -> int:
    """Returns the id of the broker that a connection id belongs to: 3 for "3", "+3" and "*3"."""
    return int(node_id.lstrip("+*"))


_REASONS: Mapping[int, str] = {
    errno.ECONNREFUSED: "connection refused (is a broker listening there?)",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was reset",
    errno.ETIMEDOUT: "the connection timed out",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "no route to the network",
}


def os_reason(error: Exception) -> str:
    """Returns an operating system's error in words."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"the name could not be resolved ({getattr(error, 'strerror', None) or error})"
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    known = _REASONS.get(error.errno or 0)
    return known or error.strerror or str(error) or type(error).__name__


def refresh_error(name: str, error: Exception) -> KafkaError:
    """Returns the error of a connection attempt whose changed certificates could not be read.

    Of an exception that a callable of the user raised only the class is named: its text may quote a secret.
    """
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
