"""The member processes: starts them, reads their reports, and ends them whatever happens."""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

MEMBER = Path(__file__).with_name("member.py")
RATE_OVER_S = 1.0
LEAVE_S = 20.0


@dataclass
class Member:
    """One member process, and what it has reported."""

    name: str
    process: subprocess.Popen[str]
    errors: IO[str]
    state: str = "joining"
    partitions: set[int] = field(default_factory=set)
    records: int = 0
    lag: int | None = None
    cents: int = 0
    seen: bytes | None = None
    history: list[tuple[float, int]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Return the records per second, measured over about the last second."""
        if len(self.history) < 2:
            return 0.0
        (earlier, before), (later, after) = self.history[0], self.history[-1]
        return (after - before) / max(later - earlier, 1e-3)

    def progressed(self, records: int) -> None:
        """Set the number of records that the member has read since it started."""
        now = time.monotonic()
        self.records = records
        self.history = [entry for entry in self.history if now - entry[0] <= RATE_OVER_S] + [(now, records)]

    def last_words(self) -> str:
        """Return the last line that the process wrote to stderr. For a traceback, this line contains the error."""
        self.errors.seek(0)
        return next(iter(self.errors.read().splitlines()[-1:]), "it ended without a message")


class Crew:
    """All members. It is a context manager; at the end, it kills the member processes that still run."""

    def __init__(self, arguments: list[str]) -> None:
        self.members: list[Member] = []
        self._arguments = arguments
        self._reports: queue.Queue[tuple[Member, dict[str, Any] | None]] = queue.Queue()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
            member.process.wait()
            member.errors.close()

    def start(self, name: str) -> Member:
        """Start a member process with this name. Returns the member."""
        errors = tempfile.TemporaryFile("w+", prefix=f"kconsumer-demo-{name}-")  # noqa: SIM115 - closed with the member
        process = subprocess.Popen(
            [sys.executable, str(MEMBER), "--client-id", name, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for the runner, which then lets the members leave
        )
        member = Member(name, process, errors)
        self.members.append(member)
        threading.Thread(target=self._listen, args=(member,), name=f"{name} reports", daemon=True).start()
        return member

    def reports(self, wait_s: float) -> Iterator[tuple[Member, dict[str, Any]]]:
        """Yield the reports that have arrived. Wait at most `wait_s` seconds for the first one.

        Raises RuntimeError if a member failed, or ended without its last report.
        """
        try:
            member, report = self._reports.get(timeout=wait_s)
            while True:
                if report is not None:
                    yield member, report
                elif member.process.wait() or member.seen is None:
                    raise RuntimeError(f"{member.name} failed: {member.last_words()}")
                member, report = self._reports.get_nowait()
        except queue.Empty:
            return

    def leave(self, *members: Member) -> None:
        """Ask members to leave the group and end."""
        for member in members:
            member.state = "leaving"
            member.process.terminate()

    def leave_all(self) -> Iterator[tuple[Member, dict[str, Any]]]:
        """Let all members leave, and yield their last reports. Raises RuntimeError if one does not end in time."""
        self.leave(*(member for member in self.members if member.state not in ("leaving", "left")))
        deadline = time.monotonic() + LEAVE_S
        while any(member.seen is None for member in self.members):
            if time.monotonic() > deadline:
                late = ", ".join(member.name for member in self.members if member.seen is None)
                raise RuntimeError(f"{late} did not leave within {LEAVE_S:.0f} s")
            yield from self.reports(0.2)

    def _listen(self, member: Member) -> None:
        assert member.process.stdout is not None
        with member.process.stdout as lines:
            for line in lines:
                self._reports.put((member, json.loads(line)))
        self._reports.put((member, None))


def unpack(seen: str) -> bytes:
    """Return how often each event was seen: the decoded field `seen` of a member's last report."""
    return zlib.decompress(base64.b64decode(seen))
