"""Finds other addresses than those of a broker's name: those of a proxy, and those to which `address_map` maps brokers,
such as the local ends of port-forwards.

Only the connection changes: the broker keeps its name in errors, for TLS and for Kerberos.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kconsumer.config.kinds import Proxy, parse_proxy, parse_server, proxy_form
from kconsumer.errors import ConfigError
from kconsumer.net.describe import os_reason
from kconsumer.net.transport import Address, Resolve

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig


def redirect(config: ConsumerConfig, resolve: Resolve) -> Resolve:
    """Returns a function that finds the addresses to connect to: by `address_map` first, then by a proxy, else with
    `resolve`. Raises ConfigError if the option of a proxy refers to a wrong address."""
    for option, value in (("socks_proxy", config.socks_proxy), ("http_proxy", config.http_proxy)):
        if value is not None:
            resolve = ProxyResolve(_read(config, option), resolve)
    return resolve if config.address_map is None else MappedResolve(config.address_map, resolve)


def _read(config: ConsumerConfig, option: str) -> Proxy:
    try:
        return parse_proxy(option, config.secret(option))
    except ValueError:
        raise ConfigError(f"{option} must refer to {proxy_form(option)}") from None


class Redirect:
    """Base of the functions that find other addresses. They run in the background also for a numeric address."""


class MappedResolve(Redirect):
    """Maps an address before its name is resolved. Runs in the background, because a callable of the user may block."""

    def __init__(
        self, address_map: Mapping[tuple[str, int], tuple[str, int]] | Callable[..., Any], resolve: Resolve
    ) -> None:
        self._map: Callable[..., Any] = (
            (lambda host, port: address_map.get((host, port))) if isinstance(address_map, Mapping) else address_map
        )
        self._resolve = resolve

    def __call__(self, host: str, port: int) -> list[Address]:
        """Returns the addresses of the mapped host and port; those of `host` itself if the map has none. Raises OSError
        if a callable fails."""
        try:
            mapped = self._map(host, port)
            target = None if mapped is None else parse_server(mapped)
        except Exception as error:
            raise ConnectionError(f"address_map failed with {type(error).__name__}: {error}") from error
        if target is None:
            return self._resolve(host, port)
        return [
            address._replace(option=" and ".join(filter(None, ("address_map", address.option))))
            for address in self._resolve(*target)
        ]


class ProxyResolve(Redirect):
    """Finds the addresses of a proxy, from which connections request a tunnel to the broker."""

    def __init__(self, proxy: Proxy, resolve: Resolve) -> None:
        self._proxy = proxy
        self._resolve = resolve

    def __call__(self, host: str, port: int) -> list[Address]:
        """Returns the addresses of the proxy. Raises OSError if its name cannot be resolved."""
        from kconsumer.net.tunnel import Tunnel  # imported only if it is used

        proxy = self._proxy
        try:
            found = self._resolve(proxy.host, proxy.port)
        except (OSError, UnicodeError) as error:
            raise ConnectionError(f"{proxy.shown}: {os_reason(error)}") from error
        return [address._replace(option=proxy.option, tunnel=Tunnel(proxy, host, port)) for address in found]
