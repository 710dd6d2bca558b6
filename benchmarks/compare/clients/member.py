"""Runs a Python client as a member that joins and leaves on command, and records when each record was returned.

member.py CLIENT OPTIONS BROKER TOPIC GROUP, with OPTIONS in JSON

A line of standard input makes it join the group, the next one leave, and so on. It prints a line when the first record
of a membership was returned. At the end of the input it leaves and prints all records as JSON: partition, offset and
CLOCK_MONOTONIC in ns.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from peers import PEERS, Peer


class Orders:
    """Reads from standard input, in its own thread, whether the client shall be a member."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.member = self.ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for _ in sys.stdin:
            self._set(member=not self.member, ended=False)
        self._set(member=False, ended=True)

    def _set(self, *, member: bool, ended: bool) -> None:
        with self.changed:
            self.member, self.ended = member, ended
            self.changed.notify()

    def wait(self) -> bool:
        """Wait for the command to join. Returns False at the end of the input."""
        with self.changed:
            self.changed.wait_for(lambda: self.member or self.ended)
            return not self.ended


def read(peer: Peer, orders: Orders, seen: list[tuple[int, int, int]]) -> None:
    """Read until the command to leave."""
    silent = True
    while orders.member:
        records = peer.read(0.05)
        returned = time.monotonic_ns()
        if records and silent:
            print("reading", flush=True)
            silent = False
        seen += [(partition, offset, returned) for partition, offset, _ in records]


def main() -> None:
    """Join and leave until the end of the input."""
    name, options, bootstrap, topic, group = sys.argv[1:]
    orders, seen = Orders(), list[tuple[int, int, int]]()
    version = ""
    while orders.wait():
        peer = PEERS[name](bootstrap, **json.loads(options))
        peer.subscribe(topic, group, at_end=True)
        version = peer.version
        read(peer, orders, seen)
        peer.close()
    print(json.dumps({"seen": seen, "version": version}))


if __name__ == "__main__":
    main()
