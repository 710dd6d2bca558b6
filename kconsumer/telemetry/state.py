"""The states of client telemetry, and the actions for error codes of brokers (KIP-714).

The states are those of Java's `ClientTelemetryState`, and the actions those of `ClientTelemetryUtils`. The manager
decides when the state changes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kconsumer._common.error_codes import Errors
from kconsumer._common.error_tables import ErrorAction, ErrorTable


class TelemetryState(enum.Enum):
    """What the client does next for its telemetry."""

    SUBSCRIPTION_NEEDED = "GetTelemetrySubscriptions is due, now or at the end of an interval"
    SUBSCRIPTION_IN_PROGRESS = "GetTelemetrySubscriptions is in flight"
    PUSH_NEEDED = "PushTelemetry is due at the end of the interval"
    PUSH_IN_PROGRESS = "PushTelemetry is in flight"
    TERMINATING_PUSH_NEEDED = "the consumer is being closed: the last PushTelemetry is due"
    TERMINATING_PUSH_IN_PROGRESS = "the last PushTelemetry is in flight"
    TERMINATED = "no further request is sent"


S = TelemetryState
TRANSITIONS: Mapping[TelemetryState, frozenset[TelemetryState]] = {
    S.SUBSCRIPTION_NEEDED: frozenset({S.SUBSCRIPTION_IN_PROGRESS, S.TERMINATED}),
    S.SUBSCRIPTION_IN_PROGRESS: frozenset({S.SUBSCRIPTION_NEEDED, S.PUSH_NEEDED, S.TERMINATED}),
    S.PUSH_NEEDED: frozenset({S.SUBSCRIPTION_NEEDED, S.PUSH_IN_PROGRESS, S.TERMINATING_PUSH_NEEDED, S.TERMINATED}),
    S.PUSH_IN_PROGRESS: frozenset({S.SUBSCRIPTION_NEEDED, S.PUSH_NEEDED, S.TERMINATING_PUSH_NEEDED, S.TERMINATED}),
    S.TERMINATING_PUSH_NEEDED: frozenset({S.TERMINATING_PUSH_IN_PROGRESS, S.TERMINATED}),
    S.TERMINATING_PUSH_IN_PROGRESS: frozenset({S.TERMINATED}),
    S.TERMINATED: frozenset(),
}


class TelemetryErrorAction(ErrorAction):
    """The reaction to an error code; the value describes it. No error is raised to the caller of a poll."""

    SUBSCRIBE_NOW = "request the subscription again at once"
    SUBSCRIBE_LATER = "request the subscription again after the push interval"
    TERMINATE = "log a warning, and send nothing more"


SUBSCRIBE_NOW, SUBSCRIBE_LATER, TERMINATE = TelemetryErrorAction
Table = ErrorTable[TelemetryErrorAction]

SUBSCRIPTION_ACTIONS: Table = ErrorTable(
    {
        Errors.THROTTLING_QUOTA_EXCEEDED: SUBSCRIBE_LATER,  # the request came before the end of the interval
        Errors.INVALID_REQUEST: TERMINATE,
        Errors.UNSUPPORTED_VERSION: TERMINATE,
    },
    default=TERMINATE,
)

PUSH_ACTIONS: Table = ErrorTable(
    {
        Errors.UNKNOWN_SUBSCRIPTION_ID: SUBSCRIBE_NOW,  # the subscription has changed
        Errors.UNSUPPORTED_COMPRESSION_TYPE: SUBSCRIBE_NOW,
        Errors.TELEMETRY_TOO_LARGE: SUBSCRIBE_LATER,
        Errors.THROTTLING_QUOTA_EXCEEDED: SUBSCRIBE_LATER,
        Errors.INVALID_REQUEST: TERMINATE,
        Errors.INVALID_RECORD: TERMINATE,  # the plugin of the broker has failed
        Errors.UNSUPPORTED_VERSION: TERMINATE,
    },
    default=TERMINATE,
)
