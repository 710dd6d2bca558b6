"""Names into addresses without waiting for the system's resolver, which may take half a minute.

Decides who asks: short-lived threads, few of them, each name once at a time. Whose turn it is when the answer comes,
and how long is waited for it, is the ConnectionLoop's.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable

from kconsumer.net.transport import Address, Resolve

MOST_THREADS = 4
"""A name server that does not answer keeps as many of one consumer; further names wait for their turn."""

Start = Callable[[Callable[[], None]], None]
"""Runs something beside the caller."""


def in_thread(work: Callable[[], None]) -> None:
    """On a daemon thread: nobody waits for it, whatever the resolver does."""
    threading.Thread(target=work, name="kconsumer-resolver", daemon=True).start()


class Lookup:
    """One question. When `done`, `found` are the addresses, or `error` says why there are none."""

    __slots__ = ("done", "error", "found", "host", "port")

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.found: list[Address] = []
        self.error: Exception | None = None
        self.done = False

    def run(self, resolve: Resolve) -> None:
        """Ask; what goes wrong is kept."""
        try:
            self.found = resolve(self.host, self.port)
        except Exception as error:  # UnicodeError, too: a name that no name server knows
            self.error = error
        self.done = True


class Resolver:
    """Asks `resolve`. One thread calls `look_up`; `ended` tells it that some lookups are done since it last reset it,
    and `wake` ends its waiting."""

    def __init__(self, resolve: Resolve, wake: Callable[[], None], start: Start = in_thread) -> None:
        self.ended = False
        self._resolve = resolve
        self._wake = wake
        self._start = start
        self._asked: dict[tuple[str, int], Lookup] = {}
        self._lock = threading.Lock()  # guards these two
        self._waiting: deque[Lookup] = deque()
        self._threads = 0

    def look_up(self, host: str, port: int) -> Lookup:
        """Begin to ask, or go on waiting for whom was asked before. A numeric address is done at once."""
        self._asked = {key: lookup for key, lookup in self._asked.items() if not lookup.done}
        lookup = self._asked.get((host, port))
        if lookup is not None:
            return lookup
        lookup = Lookup(host, port)
        if _numeric(host):
            lookup.run(self._resolve)
            return lookup
        self._asked[host, port] = lookup
        with self._lock:
            self._waiting.append(lookup)
            another = self._threads < MOST_THREADS
            self._threads += another
        if another:
            try:
                self._start(self._work)
            except RuntimeError:  # no thread is to be had
                self._work()
        return lookup

    def close(self) -> None:
        """Ask for nothing more; what is under way ends unheard. Takes no lock: a forked child may call it."""
        self._waiting.clear()

    def _work(self) -> None:
        """Ask for one after the other, until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                lookup = self._waiting.popleft()
            lookup.run(self._resolve)
            self.ended = True
            self._wake()


def _numeric(host: str) -> bool:
    """Whether the resolver need not ask anybody."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, UnicodeError):
            continue
        return True
    return False
