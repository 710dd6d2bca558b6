"""The states of a connection; `connection.py` changes them."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class ConnectionState(enum.Enum):
    """The steps of a connection, from the connect to the close. Requests are sent in READY only."""

    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    CHECKING_VERSIONS = "checking versions"
    PROBING = "probing"
    READY = "ready"
    REAUTHENTICATING = "authenticating again"
    CLOSED = "closed"


S = ConnectionState
#: For each state the states that may follow it.
TRANSITIONS: Mapping[ConnectionState, frozenset[ConnectionState]] = {
    S.CONNECTING: frozenset({S.AUTHENTICATING, S.CHECKING_VERSIONS, S.PROBING, S.CLOSED}),
    S.AUTHENTICATING: frozenset({S.CHECKING_VERSIONS, S.CLOSED}),
    S.CHECKING_VERSIONS: frozenset({S.READY, S.CLOSED}),
    S.PROBING: frozenset({S.CLOSED}),
    S.READY: frozenset({S.REAUTHENTICATING, S.CLOSED}),
    S.REAUTHENTICATING: frozenset({S.READY, S.CLOSED}),
    S.CLOSED: frozenset(),
}
