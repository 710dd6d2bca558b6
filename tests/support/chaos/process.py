"""A running member of a chaos run: its event log, and what its owner knows of it meanwhile."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kconsumer import TopicPartition
from support.members.members import MemberProcess, Partition

SCRIPT = Path(__file__).with_name("member.py")
#: Lines after which a commit may contain a record.
PROCESSED = ("process", "handlers.finish", "handlers.bury")


class ChaosMember(MemberProcess):
    """A member as a process. `owned_now` and `done` follow its events."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.owned_now: set[Partition] = set()
        #: The records of the group that it has processed, or received as a member of a share group.
        self.done: dict[TopicPartition, set[int]] = defaultdict(set)
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
        elif name == "receive" or name in PROCESSED:
            tp, offset = record_of(arguments[2] if name == "receive" else arguments)
            self.done[tp].add(offset)
        return event

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


def record_of(arguments: Sequence[Any]) -> tuple[TopicPartition, int]:
    """Returns the record that a line about a processed record names."""
    named = next((argument for argument in arguments if isinstance(argument, dict)), None)
    tp, offset = arguments if named is None else (named["tp"], named["offset"])
    return TopicPartition(*tp), offset
