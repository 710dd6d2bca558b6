"""Quotas: how many bytes per second a client may produce and fetch, and for how long it is throttled (KIP-219).

As in Kafka, the rate is measured over samples of one second: the last ten complete samples and the present one. If a
client exceeds its quota, the response contains a throttle time, and the connection is muted for this time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kconsumer.testing.cluster.requests import Request

SAMPLE_MS = 1000.0  # quota.window.size.seconds
SAMPLES = 11  # quota.window.num


@dataclass(frozen=True)
class Quota:
    """The bytes per second of a client. None: unlimited."""

    consumer_byte_rate: float | None = None
    producer_byte_rate: float | None = None


@dataclass
class Rate:
    """The rate of one client at one broker."""

    _samples: deque[list[float]] = field(default_factory=deque)  # of each: when it began (ms), and its bytes

    def throttle_ms(self, size: int, quota: float, now: float) -> int:
        """Record `size` bytes. Returns for how many ms the client must be throttled.

        After this time its rate is not above `quota` any more. Returns 0 if the rate is not above `quota` now.
        """
        self._record(size, now)
        window_ms = self._window_ms(now)
        rate = sum(count for _, count in self._samples) / window_ms * 1000
        return max(0, round((rate - quota) / quota * window_ms))

    def unrecord(self, size: int) -> None:
        """Subtract `size` bytes that were recorded last, because they were not sent."""
        self._samples[-1][1] -= size

    def _record(self, size: int, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= SAMPLES * SAMPLE_MS:
            self._samples.popleft()
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += size

    def _window_ms(self, now: float) -> float:
        """Returns the time in ms over which the rate is measured: at least ten seconds, even for a new client."""
        elapsed = now - self._samples[0][0]
        missing = max(0, SAMPLES - 1 - int(elapsed // SAMPLE_MS))
        return elapsed + missing * SAMPLE_MS


class Quotas:
    """The quotas of all clients, by client id."""

    def __init__(self) -> None:
        self._quotas: dict[str, Quota] = {}
        self._rates: dict[tuple[int, str, bool], Rate] = {}  # by broker, client id, and whether it produces

    def set(self, client_id: str, quota: Quota) -> None:
        self._quotas[client_id] = quota

    def fetched(self, request: Request, size: int, now: float) -> int:
        """Record a Fetch response with `size` bytes of records. Returns the throttle time of the consumer in ms, or 0.

        If the throttle time is not 0, the caller must not send the records, and they are not recorded.
        """
        quota = self._quota(request).consumer_byte_rate
        if quota is None:
            return 0
        rate = self._rate(request, produces=False)
        throttle_ms = rate.throttle_ms(size, quota, now)
        if throttle_ms:
            rate.unrecord(size)
        return throttle_ms

    def produced(self, request: Request, now: float) -> int:
        """Record the bytes of a Produce request. Returns the throttle time of the producer in ms, or 0."""
        quota = self._quota(request).producer_byte_rate
        return 0 if quota is None else self._rate(request, produces=True).throttle_ms(request.size, quota, now)

    def max_fetch_bytes(self, request: Request, limit: int) -> int:
        """Returns the maximum size of a Fetch response in bytes.

        This is `limit`, or the bytes that the quota allows in ten seconds if these are fewer.
        """
        quota = self._quota(request).consumer_byte_rate
        return limit if quota is None else min(limit, int(quota * (SAMPLES - 1) * SAMPLE_MS / 1000))

    def _quota(self, request: Request) -> Quota:
        return self._quotas.get(request.client_id or "", UNLIMITED)

    def _rate(self, request: Request, *, produces: bool) -> Rate:
        return self._rates.setdefault((request.broker.id, request.client_id or "", produces), Rate())


UNLIMITED = Quota()
