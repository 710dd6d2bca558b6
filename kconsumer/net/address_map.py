"""Resolves the addresses to which `address_map` maps those of brokers, such as the local ends of port-forwards.

Only the connection changes: the broker keeps its name in errors, for TLS and for Kerberos.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kconsumer.net.transport import Address, Resolve


class MappedAddress(Address):
    """An address to which `address_map` maps the one of a broker."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.sockaddr[0]}:{self.sockaddr[1]}, by address_map"


class MappedResolve:
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
            target = None if mapped is None else (str(mapped[0]), int(mapped[1]))
        except Exception as error:
            raise ConnectionError(f"address_map failed with {type(error).__name__}: {error}") from error
        if target is None:
            return self._resolve(host, port)
        return [MappedAddress(*address) for address in self._resolve(*target)]
