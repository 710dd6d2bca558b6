"""Client telemetry (KIP-714): GetTelemetrySubscriptions, PushTelemetry and ListConfigResources.

A broker announces the first two only if it has a plugin that receives the metrics of clients.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, BYTES, INT8, INT16, INT32, STRING, UUID, Api, F, Message, array

# --- GetTelemetrySubscriptions ------------------------------------------------------------------------------
# The first request of a client has the zero id. The response then contains the id of this client.


class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: bytes = F(UUID)


class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    client_instance_id: bytes = F(UUID)
    subscription_id: int = F(INT32)
    accepted_compression_types: list[int] = F(array(INT8))  # in the order in which the broker prefers them
    push_interval_ms: int = F(INT32)
    telemetry_max_bytes: int = F(INT32)
    delta_temporality: bool = F(BOOL)
    requested_metrics: list[str] = F(array(STRING))  # prefixes of names; empty: no metrics; "*": all metrics


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, key=71, versions="0", flexible=0, throttle=0
)

# --- PushTelemetry ------------------------------------------------------------------------------------------


class PushTelemetryRequest(Message):
    client_instance_id: bytes = F(UUID)
    subscription_id: int = F(INT32)
    terminating: bool = F(BOOL)
    compression_type: int = F(INT8)
    metrics: bytes = F(BYTES)  # a MetricsData message of OpenTelemetry, compressed


class PushTelemetryResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)


PUSH_TELEMETRY = Api(PushTelemetryRequest, PushTelemetryResponse, key=72, versions="0", flexible=0, throttle=0)

# --- ListConfigResources ------------------------------------------------------------------------------------
# v0 lists the subscriptions for metrics of clients. v1 lists resources of any type.

CLIENT_METRICS = 16  # the type of resource


class ListConfigResourcesRequest(Message):
    resource_types: list[int] = F(array(INT8), "1+")


class ConfigResource(Message):
    resource_name: str = F(STRING)
    resource_type: int = F(INT8, "1+", default=CLIENT_METRICS)


class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    config_resources: list[ConfigResource] = F(array(ConfigResource))


LIST_CONFIG_RESOURCES = Api(
    ListConfigResourcesRequest, ListConfigResourcesResponse, key=74, versions="0-1", flexible=0, throttle=0
)
