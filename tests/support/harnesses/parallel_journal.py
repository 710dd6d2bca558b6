"""Handlers that write down when they start and end, in any thread or process, and the rules for what they wrote."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kconsumer import ConsumerRecord


@dataclass(frozen=True)
class Entry:
    """A start or an end of a handler."""

    kind: str  # "start", "end" or "fail"
    member: str
    process: int
    partition: int
    offset: int
    key: str


@dataclass(frozen=True)
class Journal:
    """Handlers that take up to `longest_ms`, and append their start and end to a file. They can be pickled."""

    path: Path
    longest_ms: float = 2.0
    member: str = "-"
    fails: float = 0.0  # how many of the attempts raise an error

    def write(self, kind: str, record: ConsumerRecord) -> None:
        """Append an entry. Other processes append to the same file."""
        self.note(kind, record.partition, record.offset, "" if record.key is None else record.key.decode())

    def note(self, kind: str, partition: int, offset: int, key: str = "") -> None:
        """Append an entry of this member."""
        self._append(f"{kind} {self.member} {os.getpid()} {partition} {offset} {key}\n")

    def _append(self, line: str) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def process(self, record: ConsumerRecord) -> None:
        """The handler for threads and processes."""
        self.write("start", record)
        time.sleep(self._duration_s())
        self._end(record)

    async def process_async(self, record: ConsumerRecord) -> None:
        """The handler for an event loop."""
        self.write("start", record)
        await asyncio.sleep(self._duration_s())
        self._end(record)

    def _duration_s(self) -> float:
        return random.random() * self.longest_ms / 1000

    def _end(self, record: ConsumerRecord) -> None:
        failed = random.random() < self.fails
        self.write("fail" if failed else "end", record)
        if failed:
            raise ConnectionError("the service did not respond")

    def entries(self) -> list[Entry]:
        """Returns what was written."""
        found = []
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():  # a handler may be writing the last line
            kind, member, process, partition, offset, *key = line.split(" ")
            found.append(Entry(kind, member, int(process), int(partition), int(offset), key[0] if key else ""))
        return found

    def finished(self) -> Counter[tuple[int, int]]:
        """Returns how often each record, as (partition, offset), was finished."""
        return Counter((entry.partition, entry.offset) for entry in self.entries() if entry.kind == "end")


def shard_of(entry: Entry, order: str) -> object:
    """Returns what must be processed in order with this record."""
    if order == "none" or (order == "key" and not entry.key):
        return entry.partition, entry.offset
    return entry.partition if order == "partition" else (entry.partition, entry.key)


def overlaps(entries: list[Entry], order: str) -> list[str]:
    """Returns the records that were started while another one of their shard was running."""
    running: dict[object, Entry] = {}
    found = []
    for entry in entries:
        shard = shard_of(entry, order)
        if entry.kind != "start":
            running.pop(shard, None)
        elif shard in running:
            found.append(f"{entry} while {running[shard]}")
        else:
            running[shard] = entry
    return found


def out_of_order(entries: list[Entry], order: str) -> list[str]:
    """Returns the records whose first start came after the first start of a later record of the shard."""
    highest: dict[object, int] = {}
    seen: set[tuple[int, int]] = set()
    found = []
    for entry in entries:
        if entry.kind != "start" or (entry.partition, entry.offset) in seen:
            continue
        seen.add((entry.partition, entry.offset))
        shard = shard_of(entry, order)
        if entry.offset < highest.get(shard, -1):
            found.append(f"{entry} after offset {highest[shard]}")
        highest[shard] = max(entry.offset, highest.get(shard, -1))
    return found
