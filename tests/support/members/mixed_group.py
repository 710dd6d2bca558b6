"""A group whose members are processes of several clients, a load that writes meanwhile, and the checks of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from support.brokers.kafka_admin import Kafka
from support.members import clients
from support.members.group_load import PARTITIONS, all_offsets, drained, everything, load
from support.members.group_watch import GroupWatch
from support.members.members import MemberProcess, assert_all_seen, assert_one_owner_at_a_time, shared_out, wait_for

SETTLE_S = 120  # on a busy machine a JVM alone takes a minute to start


class MixedGroup:
    """A group whose methods start and stop members; `finish` checks the whole run."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self.topic = kafka.create_topic(topic, PARTITIONS)
        self.watch = GroupWatch(kafka, topic)
        self.everyone: list[MemberProcess] = []
        self.live: list[MemberProcess] = []
        self.last_leave = 0.0  # when the latest member to leave was asked to
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.watch.running())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Write records while the block runs."""
        with load(self._kafka, self.topic):
            yield

    def join(self, client: str, assignors: clients.Assignors) -> MemberProcess:
        """Start another member, which may join some time later. Returns its process."""
        name = f"{client} {len(self.everyone) + 1}"
        member = clients.start(client, name, self._kafka, self.topic, assignors)
        self.everyone.append(self._stack.enter_context(member))
        self.live.append(member)
        return member

    def settle(self) -> None:
        """Wait until the live members share all partitions, and after that each of them has read something."""
        live = self.live
        wait_for(lambda: shared_out(live, everything(self.topic)), "the members to share", live, SETTLE_S)
        before = {member.name: member.consumed() for member in live}
        wait_for(lambda: all(m.consumed() > before[m.name] for m in live), "every member to read", live, SETTLE_S)

    def leader(self) -> MemberProcess:
        """Returns the leader of the newest generation of a classic group."""
        return max(self.everyone, key=lambda member: max(member.generations_led(), default=0))

    def leave(self, member: MemberProcess) -> None:
        """Stop a member cleanly."""
        self.live.remove(member)
        self.last_leave = time.monotonic()
        member.stop()

    def kill(self, member: MemberProcess) -> None:
        """Kill a member; the coordinator detects it by the session timeout."""
        self.live.remove(member)
        member.kill()

    def finish(self, *, once: bool = False, lost_after: float = float("inf")) -> None:
        """Read to the end and leave. Check that no record is lost, owners are single, and all is committed; with
        `once`, that no record is read twice except those that a member lost after the given moment.
        """
        ends = drained(self._kafka, self.topic, self.everyone)
        wait_for(lambda: all_offsets(self.everyone, ends), "every record to be read by someone", self.live)
        for member in self.live:
            member.stop()
        assert_all_seen(self.everyone, ends, once=once, lost_after=lost_after)
        assert_one_owner_at_a_time(self.everyone)
        self.watch.assert_one_owner()
        leaders = [generation for member in self.everyone for generation in member.generations_led()]
        assert len(leaders) == len(set(leaders)), "a generation has one leader"
        assert {p[1]: end for p, end in ends.items()} == self._kafka.committed(self.topic, self.topic)
