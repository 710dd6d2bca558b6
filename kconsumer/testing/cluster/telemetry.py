"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): which metrics brokers request, and what clients have pushed.

Follows Kafka's `ClientMetricsManager`. Brokers announce these APIs if they have a plugin for the metrics of clients,
which the setting `metric_reporters` stands for.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from kconsumer._common.error_codes import Errors
from kconsumer._internal.compression import DecompressionError, decompress
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.requests import Request, handles
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.otlp import Labels, MetricPoint, decode_metrics

TELEMETRY_APIS = (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY)
ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 100, 3_600_000
METRICS, INTERVAL, MATCH, CLIENT_ID = "metrics", "interval.ms", "match", "client_id"
CODECS = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: in the order in which brokers prefer them


class ClientMetrics(NamedTuple):
    """The settings of one subscription, a resource of the type CLIENT_METRICS."""

    metrics: tuple[str, ...]
    interval_ms: int
    client_id: re.Pattern[str] | None  # None: all clients

    def settings(self) -> dict[str, str]:
        """Returns the settings by Kafka's names."""
        match = "" if self.client_id is None else f"{CLIENT_ID}={self.client_id.pattern}"
        return {METRICS: ",".join(self.metrics), INTERVAL: str(self.interval_ms), MATCH: match}


DEFAULTS = ClientMetrics((), DEFAULT_INTERVAL_MS, None)


@dataclass(frozen=True)
class PushedMetrics:
    """One PushTelemetry request that brokers have accepted."""

    client_instance_id: str
    client_id: str
    terminating: bool  # the client was being closed
    resource: dict[str, str]  # the labels of the client, such as `group_id`
    points: dict[tuple[str, Labels], MetricPoint]  # by name and labels

    def value(self, name: str, **labels: str) -> float:
        """Returns the value of the metric with this name and these labels. Raises KeyError if it was not pushed."""
        return self.points[name, frozenset(labels.items())].value


@dataclass
class _Instance:
    """A client, as one broker knows it. It is forgotten when the connection is closed."""

    connection: Connection
    version: int  # of the subscriptions
    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int
    last_get: float = field(default=float("-inf"))
    last_push: float = field(default=float("-inf"))
    terminating: bool = False

    def accepts_get(self, now: float) -> bool:
        """Returns False, so that the client is throttled, before the end of the interval after its last request."""
        if now - max(self.last_get, self.last_push) < self.interval_ms:
            return False
        self.last_get = now
        return True

    def accepts_push(self, now: float) -> bool:
        """Returns False, so that the client is throttled, before the end of the interval after its last push.

        The first push after a GetTelemetrySubscriptions request is always accepted.
        """
        if self.last_get <= self.last_push and now - self.last_push < self.interval_ms:
            return False
        self.last_push = now
        return True


class InvalidRequestError(ValueError):
    """A setting for which brokers respond with INVALID_REQUEST; for others that are not valid, with INVALID_CONFIG."""


def subscription_of(settings: Mapping[str, str]) -> ClientMetrics:
    """Returns the subscription with these settings. Raises ValueError if one is not valid."""
    interval = settings[INTERVAL]
    if not interval.isdigit():
        raise ValueError(f"Invalid value {interval} for {INTERVAL}")
    if not MIN_INTERVAL_MS <= int(interval) <= MAX_INTERVAL_MS:
        raise InvalidRequestError(f"{interval} for {INTERVAL} is not within {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS}")
    selector, equals, pattern = settings[MATCH].partition("=")
    if settings[MATCH] and (selector != CLIENT_ID or not equals):
        raise ValueError(f"Illegal client matching pattern: {settings[MATCH]}")
    metrics = tuple(filter(None, settings[METRICS].split(",")))
    try:
        return ClientMetrics(metrics, int(interval), re.compile(pattern) if pattern else None)
    except re.error:
        raise ValueError(f"Illegal client matching pattern: {settings[MATCH]}") from None


class Telemetry:
    """The subscriptions of the cluster, and what clients have pushed."""

    def __init__(self, cluster: ClusterState) -> None:
        self.pushed: list[PushedMetrics] = []
        self._cluster = cluster
        self._subscriptions: dict[str, ClientMetrics] = {}
        self._version = 0  # of the subscriptions
        self._instances: dict[tuple[int, bytes], _Instance] = {}  # by broker and client instance id

    @property
    def enabled(self) -> bool:
        """True if brokers have a plugin that receives the metrics of clients."""
        return bool(self._cluster.settings.metric_reporters)

    def subscribe(self, name: str, subscription: ClientMetrics | None) -> None:
        """Set or remove a subscription. Raises ValueError for an interval that Kafka refuses."""
        if subscription is None:
            self._subscriptions.pop(name, None)
        elif not MIN_INTERVAL_MS <= subscription.interval_ms <= MAX_INTERVAL_MS:
            raise ValueError(f"interval_ms is {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}, not {subscription.interval_ms}")
        else:
            self._subscriptions[name] = subscription
        self._version += 1

    @property
    def subscriptions(self) -> Mapping[str, ClientMetrics]:
        """The subscriptions by name."""
        return self._subscriptions

    def configure(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Change settings of a subscription; None restores a default. Raises ValueError for one that is not valid.

        Of the patterns that select clients, the model knows only `client_id`.
        """
        present = self._subscriptions.get(name, DEFAULTS).settings()
        for key, value in changes.items():
            if key not in present:
                raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
            present[key] = DEFAULTS.settings()[key] if value is None else value
        found = subscription_of(present)
        if not validate_only:
            self.subscribe(name, None if found == DEFAULTS else found)

    @handles(GET_TELEMETRY_SUBSCRIPTIONS)
    def _get(self, request: Request, now: float) -> GetTelemetrySubscriptionsResponse:
        instance_id = request.message.client_instance_id
        if instance_id == ZERO_UUID:
            instance_id = self._cluster.random.randbytes(16)
        instance = self._instance(instance_id, request)
        if not instance.accepts_get(now):
            return GetTelemetrySubscriptionsResponse(error_code=Errors.THROTTLING_QUOTA_EXCEEDED)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(CODECS),
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self._cluster.settings.telemetry_max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.metrics),
        )

    @handles(PUSH_TELEMETRY)
    def _push(self, request: Request, now: float) -> PushTelemetryResponse:
        message: PushTelemetryRequest = request.message
        if message.client_instance_id == ZERO_UUID:
            return PushTelemetryResponse(error_code=Errors.INVALID_REQUEST)
        instance = self._instance(message.client_instance_id, request)
        error = self._push_error(message, instance, now)
        instance.terminating = message.terminating
        return PushTelemetryResponse(error_code=error or self._export(request))

    def _push_error(self, message: PushTelemetryRequest, instance: _Instance, now: float) -> int:
        if instance.terminating:
            return Errors.INVALID_REQUEST
        if not instance.accepts_push(now) and not message.terminating:
            return Errors.THROTTLING_QUOTA_EXCEEDED
        if message.subscription_id != instance.subscription_id:
            return Errors.UNKNOWN_SUBSCRIPTION_ID
        if message.compression_type not in (0, *CODECS):
            return Errors.UNSUPPORTED_COMPRESSION_TYPE
        if len(message.metrics) > self._cluster.settings.telemetry_max_bytes:
            return Errors.TELEMETRY_TOO_LARGE
        return Errors.NONE

    def _export(self, request: Request) -> int:
        """Keep the metrics of a request. Returns INVALID_RECORD if they cannot be decoded."""
        message: PushTelemetryRequest = request.message
        data, limit = message.metrics, self._cluster.settings.telemetry_max_bytes
        try:
            if message.compression_type:
                data = bytes(decompress(message.compression_type, data, limit))
            resource, points = decode_metrics(data)
        except (DecompressionError, ValueError, KeyError):
            return Errors.INVALID_RECORD
        text = urlsafe_b64encode(message.client_instance_id).decode().rstrip("=")
        self.pushed.append(PushedMetrics(text, request.client_id or "", message.terminating, resource, points))
        return Errors.NONE

    def _instance(self, instance_id: bytes, request: Request) -> _Instance:
        """Returns the client. If subscriptions have changed, finds again those that match the client."""
        key = request.broker.id, instance_id
        known = self._instances.get(key)
        if known is not None and known.version == self._version and not known.connection.closed:
            return known
        client_id = request.client_id or ""
        found = [s for s in self._subscriptions.values() if s.client_id is None or s.client_id.fullmatch(client_id)]
        metrics = tuple(sorted({name for subscription in found for name in subscription.metrics}))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        interval_ms = min([DEFAULT_INTERVAL_MS, *(subscription.interval_ms for subscription in found)])
        number = crc32(f"{metrics}{interval_ms}".encode() + instance_id) & 0x7FFF_FFFF
        instance = _Instance(request.connection, self._version, number, metrics, interval_ms)
        self._instances[key] = instance
        return instance
