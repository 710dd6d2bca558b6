"""Texts for users about connections: names of brokers, errors of the operating system, and reports.

Decides the wording only. `node.py` decides which error a connection ends with.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import NamedTuple

from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError


class ConnectionReport(NamedTuple):
    """The state of one connection, for state dumps and error messages."""

    name: str
    """The broker's role, id and address."""
    state: str
    in_flight: int
    """The number of requests without a response."""
    oldest: str
    """The API of the oldest of these requests, such as "Fetch". Empty if there are none."""
    oldest_ms: float
    """The time since the oldest request was sent, in ms."""
    error: str
    """Why the connection is not ready; empty if it is."""
    encryption: str = ""
    """The version of TLS, and whether OpenSSL is called directly or through Python's `ssl`. Empty without TLS."""
    role: str = ""
    """The broker's role and id, such as "group coordinator 1"."""
    address: str = ""
    """Host and port."""
    since_ms: float = 0.0
    """How long the state has lasted, in ms."""
    failure: KafkaError | None = None
    """The error whose text is `error`."""


def broker_name(node_id: str, host: str, port: int) -> str:
    """Returns the name of a broker for error messages, such as "broker 3 at kafka:9092"."""
    separator = "" if node_id.startswith("-") else "at "
    return f"{broker_role(node_id)} {separator}{address_text(host, port)}"


def broker_role(node_id: str) -> str:
    """Returns what a connection is for, and the id of the broker if it is known, such as "broker 3"."""
    if node_id.startswith("-"):
        return "bootstrap broker"
    return f"{'group coordinator' if node_id.startswith('+') else 'broker'} {broker_id(node_id)}"


def address_text(host: str, port: int) -> str:
    """Returns an address as users write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def broker_id(node_id: str) -> int:
    """Returns the broker id in a connection id: 3 for "3", "+3" and "*3". `NetworkClient` explains the prefixes."""
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
    """Returns the reason for a failed connection attempt, read or write, as text for users."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"the name could not be resolved ({getattr(error, 'strerror', None) or error})"
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    known = _REASONS.get(error.errno or 0)
    return known or error.strerror or str(error) or type(error).__name__


def refresh_error(name: str, error: Exception) -> KafkaError:
    """Returns the error of a connection attempt for which changed certificates could not be read.

    If a user's callable has raised `error`, the text contains only the class of `error`, because its message may
    contain a secret.
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
