"""Client telemetry (KIP-714): GetTelemetrySubscriptions and PushTelemetry.

A broker announces these APIs only if it has a plugin that receives the metrics of clients.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, BYTES, INT8, INT16, INT32, STRING, UUID, F, api, array, struct

# --- GetTelemetrySubscriptions ------------------------------------------------------------------------------
# The first request of a client has the zero id. The response then contains the id of this client.

GetTelemetrySubscriptionsRequest = struct("GetTelemetrySubscriptionsRequest", F("client_instance_id", UUID))

GetTelemetrySubscriptionsResponse = struct(
    "GetTelemetrySubscriptionsResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("client_instance_id", UUID),
    F("subscription_id", INT32),
    F("accepted_compression_types", array(INT8)),  # in the order in which the broker prefers them
    F("push_interval_ms", INT32),
    F("telemetry_max_bytes", INT32),
    F("delta_temporality", BOOL),
    F("requested_metrics", array(STRING)),  # prefixes of names; empty: no metrics; "*": all metrics
)

GET_TELEMETRY_SUBSCRIPTIONS = api(
    "GetTelemetrySubscriptions",
    key=71,
    versions="0",
    flexible=0,
    throttle=0,
    request=GetTelemetrySubscriptionsRequest,
    response=GetTelemetrySubscriptionsResponse,
)

# --- PushTelemetry ------------------------------------------------------------------------------------------

PushTelemetryRequest = struct(
    "PushTelemetryRequest",
    F("client_instance_id", UUID),
    F("subscription_id", INT32),
    F("terminating", BOOL),
    F("compression_type", INT8),
    F("metrics", BYTES),  # a MetricsData message of OpenTelemetry, compressed
)

PushTelemetryResponse = struct(
    "PushTelemetryResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
)

PUSH_TELEMETRY = api(
    "PushTelemetry",
    key=72,
    versions="0",
    flexible=0,
    throttle=0,
    request=PushTelemetryRequest,
    response=PushTelemetryResponse,
)
