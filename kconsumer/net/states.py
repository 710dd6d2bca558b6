"""The life of a connection as a table; `connection.py` tells its story."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class ConnectionState(enum.Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    CHECKING_VERSIONS = "checking versions"
    PROBING = "probing"
    READY = "ready"
    REAUTHENTICATING = "authenticating again"
    CLOSED = "closed"


class ConnectionEvent(enum.Enum):
    """What moves a connection on."""

    TRANSPORT_READY = "transport ready"
    PROBE_BEGINS = "probe begins"
    AUTH_STARTED = "login begins"
    AUTHENTICATED = "logged in"
    VERSIONS_KNOWN = "versions known"
    CLOSE = "close"


TRANSITIONS: Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (ConnectionState.CONNECTING, ConnectionEvent.TRANSPORT_READY): ConnectionState.CHECKING_VERSIONS,
    (ConnectionState.CONNECTING, ConnectionEvent.PROBE_BEGINS): ConnectionState.PROBING,
    (ConnectionState.CONNECTING, ConnectionEvent.AUTH_STARTED): ConnectionState.AUTHENTICATING,
    (ConnectionState.AUTHENTICATING, ConnectionEvent.AUTHENTICATED): ConnectionState.CHECKING_VERSIONS,
    (ConnectionState.CHECKING_VERSIONS, ConnectionEvent.VERSIONS_KNOWN): ConnectionState.READY,
    (ConnectionState.READY, ConnectionEvent.AUTH_STARTED): ConnectionState.REAUTHENTICATING,
    (ConnectionState.REAUTHENTICATING, ConnectionEvent.AUTHENTICATED): ConnectionState.READY,
    (ConnectionState.CONNECTING, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.AUTHENTICATING, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.CHECKING_VERSIONS, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.PROBING, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.READY, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.REAUTHENTICATING, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
}
