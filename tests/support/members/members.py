"""Members of a group as processes, and the checks that every run of a group must pass."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

SCRIPT = Path(__file__).with_name("member.py")

Partition = tuple[str, int]


# Members import `support`. The package itself is the installed one.
PATHS = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))


class MemberProcess:
    """A running member; its events arrive while it runs."""

    LEADS = re.compile(r"joined generation (\d+) as \S+ \(leader\)")  # in its log, at the level of INFO

    def __init__(self, name: str, settings: Mapping[str, Any], script: Path = SCRIPT) -> None:
        self._start(name, [sys.executable, str(script), json.dumps(settings)])

    def _start(self, name: str, command: list[str]) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.killed_at: float | None = None
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": PATHS},
        )
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = self._event(line)
            if event is not None:
                with self._lock:
                    self.events.append(event)

    def _event(self, line: str) -> dict[str, Any] | None:
        """Returns an event from a line of output."""
        found: dict[str, Any] = json.loads(line)
        return found

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    @property
    def errors(self) -> str:
        """Returns what the member wrote to standard error."""
        return "".join(self._errors)

    @property
    def pid(self) -> int:
        """Returns the process id."""
        return self._process.pid

    @property
    def crashed(self) -> bool:
        """Returns whether it ended with an error."""
        return self.killed_at is None and self._process.poll() not in (None, 0)

    def seen(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of one kind so far."""
        with self._lock:
            return [event for event in self.events if event["event"] == kind]

    def generations_led(self) -> set[int]:
        """Returns the generations of a classic group that this member led, according to its log."""
        return {int(found) for found in self.LEADS.findall(self.errors)}

    def owned(self) -> set[Partition]:
        """Returns the partitions that the member owns, according to its callbacks."""
        with self._lock:
            events = list(self.events)
        partitions: set[Partition] = set()
        for event in events:
            named = {(topic, partition) for topic, partition in event.get("partitions", ())}
            if event["event"] == "assigned":
                partitions |= named
            elif event["event"] in ("revoked", "lost"):
                partitions -= named
        return partitions

    def consumed(self) -> int:
        """Returns the number of records that were returned to it."""
        return sum(len(event["offsets"]) for event in self.seen("records"))

    def _ask_to_stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self, timeout_s: float = 30) -> None:
        """Stop the process cleanly, so that it leaves the group."""
        self._ask_to_stop()
        code = self._process.wait(timeout_s)
        self._finish_reading()
        assert 0 == code, f"{self.name} ended with {code}:\n{self.errors}"

    def kill(self) -> None:
        """Kill the process by SIGKILL; the group detects it only by the session timeout."""
        self.killed_at = time.monotonic()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._finish_reading()

    def _finish_reading(self) -> None:
        for reader in self._readers:
            reader.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._finish_reading()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def wait_for(
    condition: Callable[[], Any], what: str, members: Iterable[MemberProcess] = (), timeout_s: float = 45
) -> None:
    """Wait until something is true of running members."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        crashed = [m.name for m in members if m.crashed]
        if crashed or time.monotonic() > deadline:
            states = "\n".join(
                f"{m.name}: owns {sorted(m.owned())}, {m.consumed()} records\n{m.errors}" for m in members
            )
            raise AssertionError(f"waited {timeout_s} s for {what}; crashed: {crashed}\n{states}")
        time.sleep(0.05)


def shared_out(members: Iterable[MemberProcess], partitions: Iterable[Partition]) -> bool:
    """Returns whether the members own these partitions between them, each at least one."""
    owned = [member.owned() for member in members]
    everything = set(partitions)
    return all(owned) and sum(map(len, owned)) == len(everything) and set().union(*owned) == everything


def offsets_seen(members: Iterable[MemberProcess]) -> dict[Partition, Counter[int]]:
    """Returns how often each offset of each partition was returned."""
    seen: dict[Partition, Counter[int]] = defaultdict(Counter)
    for member in members:
        for event in member.seen("records"):
            seen[tuple(event["partition"])].update(event["offsets"])
    return dict(seen)


def assert_all_seen(
    members: Sequence[MemberProcess], ends: Mapping[Partition, int], *, once: bool, lost_after: float = float("inf")
) -> None:
    """Check that every offset below each end was returned; with `once`, that none was returned twice.

    Records of a partition that a member lost after the given moment may be returned again: on_revoke was not called, so
    the member could not commit.
    """
    seen = offsets_seen(members)
    for partition, end in ends.items():
        counts = seen.get(partition, Counter())
        missing = [offset for offset in range(end) if offset not in counts]
        assert [] == missing[:10], f"{partition}: {len(missing)} of {end} records lost"
    if once:
        for partition, counts in _offsets_kept(members, lost_after).items():
            twice = [offset for offset, count in counts.items() if count > 1]
            assert [] == twice[:10], f"{partition}: {len(twice)} records returned twice"


def _offsets_kept(members: Iterable[MemberProcess], lost_after: float) -> dict[Partition, Counter[int]]:
    """Returns how often each offset was returned, without ownerships that were lost after that moment."""
    kept: dict[Partition, Counter[int]] = defaultdict(Counter)
    for member in members:
        owned: dict[Partition, list[int]] = defaultdict(list)
        for event in member.events:
            if event["event"] == "records":
                owned[tuple(event["partition"])] += event["offsets"]
            elif event["event"] == "revoked" or (event["event"] == "lost" and event["at"] <= lost_after):
                for partition in map(tuple, event["partitions"]):
                    kept[partition].update(owned.pop(partition, ()))
            elif event["event"] == "lost":
                for partition in map(tuple, event["partitions"]):
                    owned.pop(partition, None)
        for partition, offsets in owned.items():
            kept[partition].update(offsets)
    return kept


def assert_one_owner_at_a_time(members: Iterable[MemberProcess]) -> None:
    """Check that no partition has two owners at any moment: it is assigned after its last owner was notified."""
    for partition, spans in ownership(members).items():
        spans.sort()
        for (_, end, first), (start, _, second) in pairwise(spans):
            assert end <= start, f"{partition} given to {second} {end - start:.3f} s before {first} gave it up"


def ownership(members: Iterable[MemberProcess]) -> dict[Partition, list[tuple[float, float, str]]]:
    """Returns the ownerships of each partition: begin, end and member."""
    spans: dict[Partition, list[tuple[float, float, str]]] = defaultdict(list)
    for member in members:
        since: dict[Partition, float] = {}
        for event in member.events:
            named = [(topic, partition) for topic, partition in event.get("partitions", ())]
            if event["event"] == "assigned":
                since.update(dict.fromkeys(named, event["at"]))
            elif event["event"] in ("revoked", "lost"):
                for partition in named:
                    spans[partition].append((since.pop(partition), event["at"], member.name))
        end = member.killed_at or float("inf")
        for partition, start in since.items():
            spans[partition].append((start, end, member.name))
    return dict(spans)
