"""Groups of members that run `kconsumer.parallel`, and storms in which members are killed, stopped and replaced."""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from support.brokers.kafka import Kafka
from support.brokers.processes import children, command
from support.harnesses.parallel_journal import Entry, Journal, out_of_order, overlaps
from support.members.members import MemberProcess, wait_for

SCRIPT = Path(__file__).with_name("parallel_member.py")
PARTITIONS, KEYS, BATCH = 6, 40, 300
SESSION_MS = 6000
RESPONSE_S = 90.0


class ParallelGroup:
    """A group of members that process one topic, and what was written to it."""

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        folder: Path,
        stack: ExitStack,
        *,
        order: str,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Create the topic. `options` are those of the consumers, and `arguments` those of `process`."""
        self.kafka, self.topic, self.order = kafka, topic, order
        self.journal = Journal(folder / "journal")
        self.produced = 0
        self.members: list[MemberProcess] = []
        self._settings = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "group_id": topic,
            "topics": [topic],
            "journal": str(self.journal.path),
            "longest_ms": 20.0,
            "arguments": {"workers": 4, "commit_interval_s": 0.3, "order": order, **arguments},
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **(options or {}),
        }
        self._names = (f"member-{number}" for number in count())
        self._stack = stack
        kafka.create_topic(topic, partitions=PARTITIONS)

    def produce(self) -> None:
        """Write a batch of records."""
        values = [b"%d" % (self.produced + n) for n in range(BATCH)]
        self.kafka.produce(self.topic, values, keys=[b"key-%d" % random.randrange(KEYS) for _ in values])
        self.produced += BATCH

    def start(self) -> None:
        """Start a member."""
        self.members.append(self._stack.enter_context(MemberProcess(next(self._names), self._settings, SCRIPT)))

    def kill(self) -> None:
        """Kill one of the older members, which process records, by SIGKILL."""
        member = self.members.pop(random.randrange(len(self.members) - 1))
        workers = children(member.pid)
        member.kill()
        wait_for(lambda: not any(map(command, workers)), f"the end of the processes of {member.name}")
        self.journal.killed(str(member.pid))

    def stop(self) -> None:
        """Stop the oldest member, when it runs, by SIGTERM. Check that it has abandoned nothing."""
        member = self.members[0]
        wait_for(lambda: member.seen("running"), f"the run of {member.name}", self.members, RESPONSE_S)
        self.members.remove(member)
        os.kill(member.pid, signal.SIGTERM)
        member.stop()
        [summary] = member.seen("summary")
        assert ("SIGTERM", 0) == (summary["reason"], summary["abandoned"])

    def process(self, records: int) -> None:
        """Wait until this number of records was processed."""
        wait_for(lambda: self.journal.has_finished(records), f"{records} processed records", self.members, RESPONSE_S)

    def run_storms(self, storms: int) -> None:
        """Kill, stop and start members under load, this number of times. Then check."""
        self.produce()
        for _ in range(3):
            self.start()
        self.process(BATCH // 3)
        for _ in range(storms):
            self.produce()
            self.process(self.produced - BATCH // 2)
            self.kill()
            self.start()
            self.produce()
            self.stop()
            self.start()
            self.process(self.produced - BATCH)
        self.process(self.produced)
        while self.members:
            self.stop()
        finished = self.journal.finished()
        print(f"{self.produced} records, {sum(finished.values()) - len(finished)} repeated")
        assert self.written() == set(finished)
        self.check(self.journal.entries())

    def written(self) -> set[tuple[int, int]]:
        """Returns the partition and the offset of each record."""
        return {(p, n) for p, end in self.kafka.end_offsets(self.topic).items() for n in range(end)}

    def check(self, entries: list[Entry]) -> None:
        """Check the order of records, and what is committed at the end."""
        assert ([], []) == (overlaps(entries, self.order), out_of_order(entries, self.order))
        assert self.kafka.end_offsets(self.topic) == self.kafka.committed(self.topic, self.topic)
