"""Names into addresses (and back) without waiting for the system's resolver, which may take half a minute.

Decides that each name is asked for once at a time, and that numeric addresses need nobody. Whose turn it is when the
answer comes, and how long is waited for it, is the ConnectionLoop's.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

from kconsumer.net.background import BackgroundExecutor, BackgroundTask, Start, in_thread
from kconsumer.net.transport import Address, Resolve, resolve_canonical


class Lookup(BackgroundTask[list[Address]]):
    """One question. When `done`, `found` are the addresses, or `error` says why there are none."""

    __slots__ = ()

    @property
    def found(self) -> list[Address]:
        """The addresses so far."""
        return self._found or []


class Resolver(BackgroundExecutor):
    """Asks the resolver it is given. One thread calls `look_up`; `ended` tells it that some lookups are done since it
    last reset it, and `wake` ends its waiting."""

    def __init__(self, wake: Callable[[], None], start: Start = in_thread) -> None:
        super().__init__(wake, start, inline=True)
        self._asked: dict[tuple[Resolve, str, int], Lookup] = {}

    def look_up(self, resolve: Resolve, host: str, port: int) -> Lookup:
        """Begin to ask, or go on waiting for whom was asked before. A numeric address is done at once, unless its name
        is wanted."""
        self._asked = {key: lookup for key, lookup in self._asked.items() if not lookup.completed}
        lookup = self._asked.get((resolve, host, port))
        if lookup is not None:
            return lookup
        lookup = Lookup(partial(resolve, host, port))
        if _numeric(host) and resolve is not resolve_canonical:
            lookup.run()
            return lookup
        self._asked[resolve, host, port] = lookup
        return self.start(lookup)


def _numeric(host: str) -> bool:
    """Whether the resolver need not ask anybody."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, UnicodeError):
            continue
        return True
    return False
