"""What the members of a random model run did and saw: one log of events, in order of time.

`group_model.py` records, `group_model_checker.py` judges. Each kind of event has the data that is listed here:

opened         options, protocol ("classic" or "consumer"), static: whether it has a group_instance_id
subscribed     topics; recorded when subscribe() has returned
leaving        recorded before unsubscribe() and close()
left           recorded after them
assigned       partitions, raises: recorded when on_assign begins; `raises` says that the callback will raise
revoked, lost  partitions, raises: recorded when the callback ends
returned       runs: the records that a poll returned, as (partition, first offset, last offset)
finished       runs: the records that the application has processed; recorded before the next poll
sought         partition, offset: recorded before seek()
unknown        partitions: recorded before a call after which the position is unknown
position       partition, offset: what position() returned
commit         offsets: recorded before a commit of offsets that the application chose
acknowledged   called_at, offsets: recorded when a commit has succeeded
observed       began, offsets: committed offsets, as a client outside or committed() returned them
paused, resumed  partitions
states         partitions: what partition_states() said at the end
woken          recorded before wakeup()
call           name, bound_s, took_s, error, text: recorded when any call has ended
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Partition = tuple[str, int]
Run = tuple[Partition, int, int]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a member did or saw; `data` as the table above lists it."""

    at: float
    member: str
    kind: str
    data: Mapping[str, Any]

    def about(self, partition: Partition | None) -> str:
        """Returns the event as a line of text, limited to this partition unless that is None."""
        details = ", ".join(f"{name} {_about(partition, value)}" for name, value in self.data.items())
        return f"{self.at:9.3f} {self.member:11} {self.kind:12} {details}"

    def concerns(self, partition: Partition) -> bool:
        """Returns whether the event is about this partition, or about every partition of its member."""
        data = self.data
        if "runs" in data:
            return any(run[0] == partition for run in data["runs"])
        if "offsets" in data:
            return partition in data["offsets"]
        if "partitions" in data:
            return partition in data["partitions"]
        if "partition" in data:
            return bool(data["partition"] == partition)
        return self.kind in ("opened", "subscribed", "leaving", "left")


def _about(partition: Partition | None, value: Any) -> Any:
    if partition is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return value.get(partition, value)
    if isinstance(value, list) and value and isinstance(value[0], tuple) and len(value[0]) == 3:
        return ", ".join(f"{first} to {last}" for run_of, first, last in value if run_of == partition)
    if isinstance(value, tuple | list) and partition in value:
        return partition
    return value


class EventLog:
    """Events of all threads of a run, in the order in which they were recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def now(self) -> float:
        """Returns the seconds since the run began."""
        return time.monotonic() - self._began

    def add(self, member: str, kind: str, **data: Any) -> float:
        """Record an event. Returns its time."""
        with self._lock:
            at = self.now()
            self.events.append(Event(at, member, kind, data))
        return at


def runs_of(offsets: Iterable[tuple[Partition, int]]) -> list[Run]:
    """Group records into runs of consecutive offsets of one partition."""
    runs: list[Run] = []
    for partition, offset in offsets:
        if runs and runs[-1][0] == partition and runs[-1][2] + 1 == offset:
            runs[-1] = (partition, runs[-1][1], offset)
        else:
            runs.append((partition, offset, offset))
    return runs
