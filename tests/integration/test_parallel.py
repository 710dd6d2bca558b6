"""kconsumer.parallel in a group whose members are killed, stopped and replaced: nothing is lost, and orders hold."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.harnesses.parallel_journal import Journal, out_of_order, overlaps
from support.members.members import MemberProcess, wait_for

SCRIPT = Path(__file__).parents[1] / "support" / "members" / "parallel_member.py"
PARTITIONS, KEYS, BATCH = 6, 40, 300
SESSION_MS = 6000


class Group:
    """A group of members that process one topic, and what was written to it."""

    def __init__(self, kafka: Kafka, topic: str, journal: Journal, settings: dict[str, Any], stack: ExitStack) -> None:
        self.kafka, self.topic, self.journal = kafka, topic, journal
        self.produced = 0
        self.members: list[MemberProcess] = []
        self._settings = settings
        self._names = (f"member-{number}" for number in count())
        self._stack = stack
        self.kafka.create_topic(topic, partitions=PARTITIONS)

    def produce(self) -> None:
        """Write a batch of records."""
        values = [b"%d" % (self.produced + n) for n in range(BATCH)]
        self.kafka.produce(self.topic, values, keys=[b"key-%d" % random.randrange(KEYS) for _ in values])
        self.produced += BATCH

    def start(self) -> None:
        """Start a member."""
        self.members.append(self._stack.enter_context(MemberProcess(next(self._names), self._settings, SCRIPT)))

    def kill(self) -> None:
        """Kill one of the older members, which own partitions, by SIGKILL."""
        member = self.members.pop(random.randrange(len(self.members) - 1))
        member.kill()
        self.journal.killed(str(member.pid))

    def stop(self) -> dict[str, Any]:
        """Stop the oldest member, which surely runs already, by SIGTERM. Returns its summary."""
        member = self.members.pop(0)
        os.kill(member.pid, signal.SIGTERM)
        member.stop()
        [summary] = member.seen("summary")
        return summary

    def process(self, records: int) -> None:
        """Wait until this number of records was processed."""
        wait_for(lambda: self.journal.has_finished(records), f"{records} processed records", self.members, 90)


@pytest.fixture
def new_group(kafka: Kafka, topic_name: str, engine: dict[str, Any], tmp_path: Path) -> Iterator[Callable[..., Group]]:
    """Returns a function that creates a group whose members have the given arguments of `process`."""
    with ExitStack() as stack:

        def create(**arguments: Any) -> Group:
            session = {} if engine.get("group_protocol") == "consumer" else {"session_timeout_ms": SESSION_MS}
            settings = {
                "bootstrap_servers": kafka.bootstrap_servers,
                "group_id": topic_name,
                "topics": [topic_name],
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "journal": str(tmp_path / "journal"),
                "longest_ms": 20.0,
                "arguments": {"workers": 4, "commit_interval_s": 0.3, **arguments},
                **session,
                **engine,
            }
            return Group(kafka, topic_name, Journal(tmp_path / "journal"), settings, stack)

        yield create


def run_storms(group: Group, order: str, storms: int) -> None:
    """Kill, stop and start members under load, and check what the journal contains at the end."""
    group.produce()
    for _ in range(3):
        group.start()
    group.process(BATCH // 3)
    for _ in range(storms):
        group.produce()
        group.process(group.produced - BATCH // 2)
        group.kill()
        group.start()
        group.produce()
        summary = group.stop()
        assert ("SIGTERM", 0) == (summary["reason"], summary["abandoned"])
        group.start()
        group.process(group.produced - BATCH)
    group.process(group.produced)
    while group.members:
        group.stop()
    finished, entries = group.journal.finished(), group.journal.entries()
    written = {(p, n) for p, end in group.kafka.end_offsets(group.topic).items() for n in range(end)}
    assert written == set(finished)
    assert ([], []) == (overlaps(entries, order), out_of_order(entries, order))
    assert group.kafka.end_offsets(group.topic) == group.kafka.committed(group.topic, group.topic)
    print(f"{group.produced} records, {sum(finished.values()) - len(finished)} repeated")


def test_members_are_killed_and_stopped(new_group: Callable[..., Group]) -> None:
    """With order="key", no record is lost, and those of a key are processed one after the other, by all members."""
    run_storms(new_group(order="key", executor="threads"), "key", storms=1)


@pytest.mark.long
@pytest.mark.parametrize("order", ["partition", "none"])
@pytest.mark.parametrize("executor", ["processes", "asyncio"])
def test_members_of_other_executors_are_killed(new_group: Callable[..., Group], executor: str, order: str) -> None:
    """The same holds for worker processes, which end with their parent, and for coroutines."""
    run_storms(new_group(order=order, executor=executor), order, storms=3)
