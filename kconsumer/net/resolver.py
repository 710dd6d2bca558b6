"""DNS lookups as background tasks, because the system's resolver may block for half a minute.

For each name at most one lookup is in progress. Numeric addresses need no lookup. The event loop handles completed
lookups and timeouts.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

from kconsumer.net.address_map import Redirect
from kconsumer.net.background import BackgroundExecutor, BackgroundTask, Start, in_thread
from kconsumer.net.transport import Address, Resolve, resolve_canonical


class Lookup(BackgroundTask[list[Address]]):
    """The lookup of one name. After it has `completed`, either `found` contains the addresses, or `error` is set."""

    __slots__ = ()

    @property
    def found(self) -> list[Address]:
        """The addresses that were found. Empty before the lookup is completed, and after a failed lookup."""
        return self._found or []


class Resolver(BackgroundExecutor):
    """Runs lookups in the background. Only one thread may call `look_up`. When a lookup completes, `completed_tasks` is
    set and `wake` is called."""

    def __init__(self, wake: Callable[[], None], start: Start = in_thread) -> None:
        super().__init__(wake, start, inline=True)
        self._lookups: dict[tuple[Resolve, str, int], Lookup] = {}  # in progress

    def look_up(self, resolve: Resolve, host: str, port: int) -> Lookup:
        """Returns the lookup of the name `host`. If no lookup of this name is in progress, starts one.

        The lookup of a numeric address is returned completed, unless `resolve` must find a canonical name or another
        address.
        """
        self._lookups = {key: lookup for key, lookup in self._lookups.items() if not lookup.completed}
        lookup = self._lookups.get((resolve, host, port))
        if lookup is not None:
            return lookup
        lookup = Lookup(partial(resolve, host, port))
        if _numeric(host) and resolve is not resolve_canonical and not isinstance(resolve, Redirect):
            lookup.run()
            return lookup
        self._lookups[resolve, host, port] = lookup
        return self.start(lookup)


def _numeric(host: str) -> bool:
    """Returns whether a host is a numeric IPv4 or IPv6 address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):  # such as of a null character
            continue
        return True
    return False
