"""Decides when it is an error that no name in `bootstrap_servers` can be resolved (KIP-909).

Java resolves the names in the constructor, or, with a positive `bootstrap.resolve.timeout.ms`, for this time in `poll`.
Its client then cannot be used any more. Here the constructor does no I/O. The first call that waits raises the error,
and the client continues to try: the next call raises it only if all names have failed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from kconsumer.errors import BootstrapResolutionError
from kconsumer.net.describe import os_reason


class BootstrapResolution:
    """The lookups of the bootstrap servers, until the first of them succeeds."""

    def __init__(self, servers: Sequence[tuple[str, int]], timeout_ms: float) -> None:
        """Begin without lookups. `timeout_ms` is `bootstrap_resolve_timeout_ms`."""
        self._servers = list(dict.fromkeys(servers))
        self._timeout_ms = timeout_ms
        self._due: float | None = None  # when unresolved names become an error (ms); None before the first lookup
        self._failed: dict[tuple[str, int], str] = {}  # why lookups have failed since the last error
        self._raised = False
        self._resolved = False

    def began(self, now: float) -> None:
        """Record that a lookup begins. The timeout counts from the first one."""
        if self._due is None:
            self._due = now + self._timeout_ms

    def completed(self, host: str, port: int, error: Exception | None) -> None:
        """Record the end of a lookup. `error` is None if it has found addresses."""
        if error is None:
            self._resolved = True
        else:
            self._failed[host, port] = os_reason(error)

    def take_error(self, now: float) -> BootstrapResolutionError | None:
        """Returns the error that the user's call must raise, or None. Each error is returned once."""
        if self._resolved or self._due is None or now < self._due:
            return None
        all_failed = len(self._failed) == len(self._servers)
        if not all_failed and (self._raised or not self._timeout_ms):
            return None
        error = self._error()
        self._raised = True
        self._failed.clear()
        return error

    def _error(self) -> BootstrapResolutionError:
        names = ", ".join(
            f"{host}:{port}: {self._failed.get((host, port), 'the name server has not responded')}"
            for host, port in self._servers
        )
        waited = f" within {self._timeout_ms:.0f} ms (bootstrap_resolve_timeout_ms)" if self._timeout_ms else ""
        return BootstrapResolutionError(
            f"no name in bootstrap_servers could be resolved{waited}: {names}; check the names, and the name server "
            "of this machine"
        )
