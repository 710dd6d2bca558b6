"""The functions that start connections as configured, over plain TCP or with TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kconsumer.net.background import BackgroundExecutor, BackgroundTask
from kconsumer.net.transport import Connect, connect_tcp

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

Refresh = Callable[[BackgroundExecutor], BackgroundTask[Any] | None]
"""Checks whether certificates have changed on disk. Returns the background task that reads them again, or None if they
are unchanged. New connections wait for the task, and fail if it fails."""


class Connector(NamedTuple):
    """Starts connections and checks for changed certificates."""

    connect: Connect
    refresh: Refresh = lambda _background: None


def make_connector(config: ConsumerConfig) -> Connector:
    """Returns the connector for a configuration. With TLS, reads the certificates and keys, and raises ConfigError if
    they cannot be used."""
    if config.security_protocol.endswith("SSL"):  # SASL_SSL, too
        from kconsumer.net.tls.transport import TlsConnector  # imported on demand: it loads Python's ssl

        tls = TlsConnector(config)
        return Connector(tls, tls.refresh)
    return Connector(connect_tcp)
