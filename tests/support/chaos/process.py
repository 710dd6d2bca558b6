"""A running member of a chaos run: its event log, and what its owner knows of it meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from support.members.members import MemberProcess, Partition

SCRIPT = Path(__file__).with_name("member.py")


class ChaosMember(MemberProcess):
    """A member as a process. `owned_now` and `reached` follow its events."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.owned_now: set[Partition] = set()
        self.reached: dict[Partition, int] = {}  # the offset after the last record that was returned
        super().__init__(name, settings, SCRIPT)

    def _event(self, line: str) -> dict[str, Any] | None:
        event = super()._event(line)
        assert event is not None
        name, arguments = event["event"], event["arguments"]
        if name in ("assign", "take_away"):
            partitions = {(topic, partition) for topic, partition in arguments[1]}
            self.owned_now = self.owned_now | partitions if name == "assign" else self.owned_now - partitions
        elif name == "end":
            self.owned_now = set()
        elif name in ("deliver", "read_alone"):
            self._reach(*arguments[1:3])
        elif name == "receive":
            self._reach(*arguments[2])
        elif name == "handlers.start":
            self._reach(arguments[1]["tp"], arguments[1]["offset"])
        return event

    def _reach(self, partition: list[Any], offset: int) -> None:
        topic, number = partition
        self.reached[topic, number] = max(offset + 1, self.reached.get((topic, number), 0))

    def kill(self) -> None:
        """Kill the process by SIGKILL."""
        super().kill()
        self.owned_now = set()

    def freeze(self) -> None:
        """Suspend the process: its connections stay open and it sends no heartbeat."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the process."""
        os.kill(self.pid, signal.SIGCONT)
