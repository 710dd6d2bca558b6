"""A chaos run: a group of six and sixty partitions while members and coordinators are killed, suspended and cut off.

Decides how storms and calms follow each other and which checks the group must pass. Faults are in `chaos_faults.py`,
rules in `chaos_checker.py`. Load, members and journals are those of the soak. To run it by hand, from the root of the
project:

    KCONSUMER_CHAOS_SECONDS=600 KCONSUMER_CHAOS_SEED=7 pytest tests/integration/test_chaos.py -s
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import count
from operator import le
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Message

from support.brokers.kafka import DEFAULT_VERSION, KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.proxy import Proxy
from support.soak.chaos_checker import (
    STABLE_SESSIONS,
    Fault,
    check_calms,
    check_generations,
    check_owners,
    stable_since,
)
from support.soak.chaos_faults import GroupFaults, Kind, Strike, draw_storm
from support.soak.soak import COMMITS, READER
from support.soak.soak_journal import Journal, ReaderProcess, check_group, report
from support.soak.soak_load import PlainLoad, running

TOPIC, GROUP = "chaos", "chaos-group"
PARTITIONS, MEMBERS = 60, 6
# Of the load: three records per partition each time. One record ten times a second made brokers and members work half
# as much again.
TICK_S, PER_SECOND = 0.25, 720
# Half of what a group gets to be stable may go by until a dead member is missed; the rest is for brokers and processes
# that start, on two cores that other tests use as well.
ALL_ASYNCIO = os.environ.get("KCONSUMER_CHAOS_ENGINE") == "asyncio"  # every member has an AsyncConsumer, not only half
SESSION_S = 8.0
SETTLE_S = 60.0  # six processes start
CATCH_UP_S = 30.0
QUIET_S, LOOK_S = 2.0, 0.2  # a group that had one owner for each partition may move some again for balance

# Leaders and coordinators move only when a fault says so, not because brokers move them back of their own accord or
# a busy machine keeps one silent for the 3 s that other tests allow.
BROKER = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "9000",
    "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
}
MEMBER = {
    **READER,
    "group_id": GROUP,
    "topics": [TOPIC],
    "by_offset": True,
    "max_poll_interval_ms": 15_000,
    "auto_commit_interval_ms": 500,
}
CLASSIC = {"session_timeout_ms": round(SESSION_S * 1000), "heartbeat_interval_ms": 500}
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "cooperative-sticky": {**CLASSIC, "assignors": ["cooperative-sticky"]},
    "range": {**CLASSIC, "assignors": ["range"]},
    "consumer": {"group_protocol": "consumer"},
}


class LogLoad(PlainLoad):
    """A load that is checked by its log and not by the numbers of its records.

    When a leader died, librdkafka's idempotent producer was seen to write a record twice, about once in twenty kills.
    """

    def __init__(self, cluster: KafkaCluster, seed: int) -> None:
        super().__init__(cluster, TOPIC, PARTITIONS, PER_SECOND, seed, TICK_S)
        self.ends = [0] * PARTITIONS  # the offset after the last that was acknowledged

    def _delivered(self, error: object, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        if error is not None:
            self.wrong.append(f"{TOPIC}-{partition}: {error}")
        if offset is not None:
            self.ends[partition] = max(self.ends[partition], offset + 1)
        self.acknowledged[partition] += 1


class ChaosMember(ReaderProcess):
    """A member that keeps its whole event log, for the report of a failure."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.event_lines: list[str] = []
        super().__init__(name, settings)

    def _event(self, line: str) -> dict[str, Any] | None:
        self.event_lines.append(line)
        return super()._event(line)

    def save(self, folder: Path) -> None:
        """Write its events and its log to files."""
        (folder / f"{self.name}.events").write_text("".join(self.event_lines))
        (folder / f"{self.name}.log").write_text(self.errors)


class Chaos:
    """One run of a protocol (a name in PROTOCOLS). `members` are in the group; those that went are `gone`."""

    def __init__(self, protocol: str, seed: int) -> None:
        self.protocol, self.seed = protocol, seed
        self.members: list[ReaderProcess] = []
        self.gone: list[ReaderProcess] = []
        self.faults: list[Fault] = []
        self.calms: list[tuple[float, float]] = []
        self._random = random.Random(seed)
        self._numbers = count(1)
        self._began = time.monotonic()
        self._partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]

    def run(self, seconds: float) -> dict[str, Any]:
        """Inject faults for this long and check everything. Returns numbers of the run."""
        self._log(f"{self.protocol}: chaos of {seconds:.0f} s, KCONSUMER_CHAOS_SEED={self.seed}")
        with ExitStack() as self._stack:
            proxy = self._stack.enter_context(Proxy())
            cluster = KafkaCluster(DEFAULT_VERSION, 3, BROKER, proxy=proxy.listen_for)
            self._cluster = self._stack.enter_context(cluster)
            self._cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
            self._cluster.coordinator_of(GROUP)
            self._load = LogLoad(self._cluster, self.seed)
            self._faults = GroupFaults(self._cluster, proxy, GROUP, self.members, self._replace, self._log)
            with self._saving():
                return self._run(seconds)

    def _run(self, seconds: float) -> dict[str, Any]:
        self.members += [self._member() for _ in range(MEMBERS)]
        with running(self._load):
            self._calm(time.monotonic(), SETTLE_S)
            began = time.monotonic()
            while time.monotonic() < began + seconds:
                self._blow(draw_storm(self._random, MEMBERS, SESSION_S))
                if self._random.random() < 0.5:
                    self._blow([Strike(Kind.STOP, self._random.randrange(MEMBERS), 0.0, 0.0)])
            self._catch_up()
        self._catch_up()
        until = time.monotonic()
        self._stop_members()
        wrong, numbers = self._check(until)
        self._log(json.dumps(numbers, indent=2))
        listed = "\n".join(wrong[:20])
        assert not wrong, f"{self.protocol}, seed {self.seed}: {len(wrong)} things are wrong:\n{listed}"
        return numbers

    # --- members ---------------------------------------------------------------------------------------------------

    def _member(self) -> ReaderProcess:
        number = next(self._numbers)
        chosen = {
            **MEMBER,
            **PROTOCOLS[self.protocol],
            "bootstrap_servers": self._cluster.proxied_servers,
            "client_id": f"member-{number}",
            "commits": COMMITS[number % len(COMMITS)],
            "asyncio": ALL_ASYNCIO or number % 2 == 0,  # with each of COMMITS, as there are three
        }
        return self._stack.enter_context(ChaosMember(f"member-{number}", chosen))

    def _replace(self, slot: int) -> ReaderProcess:
        self.gone.append(self.members[slot])
        self.members[slot] = self._member()
        return self.members[slot]

    def _stop_members(self) -> None:
        """Stop one member after the other, each when the group is stable.

        The broker refuses commits between JoinGroup and SyncGroup. So a member that closes then commits nothing, and
        its last records are read again by the next owner. Here there would be none if it closed at the same time.
        """
        while self.members:
            began = time.monotonic()
            self.gone.append(member := self.members.pop(0))
            member.stop(60)
            if self.members:
                wait_until(partial(self._quiet, began), CATCH_UP_S, f"a stable group without {member.name}")

    # --- storms and calms ------------------------------------------------------------------------------------------

    def _blow(self, strikes: list[Strike]) -> None:
        faults = self._faults.inject(strikes)
        self.faults += faults
        self._calm(max(fault.ended for fault in faults))

    def _calm(self, began: float, longest_s: float = STABLE_SESSIONS * SESSION_S) -> None:
        """Wait until the group is stable and for a short or the whole remaining time. Check that it stayed stable."""
        deadline = began + longest_s
        if longest_s < SETTLE_S and self._random.random() < 0.3:
            time.sleep(longest_s)
        while True:
            while not self._quiet(began) and time.monotonic() < deadline + QUIET_S:
                time.sleep(LOOK_S)
            calm = (began, time.monotonic())
            time.sleep(LOOK_S)  # the events until then must have arrived
            wrong, took = check_calms(self._journals(), self._partitions, [calm], longest_s / STABLE_SESSIONS)
            if not wrong or time.monotonic() > deadline:
                break
        crashed = [member.name for member in self.members if member.crashed]
        idle = [member.name for member in self.members if not member.owned()]
        if wrong or crashed or idle:
            raise AssertionError(self._report(f"{wrong}; crashed: {crashed}; without a share: {idle}"))
        self._log(f"stable after {took[0]:.1f} s")
        self._catch_up()
        if longest_s < SETTLE_S:
            self.calms.append(calm)

    def _quiet(self, began: float) -> bool:
        """Returns whether every member has partitions, and no partition has changed its owner for a while."""
        now = time.monotonic()
        since = stable_since(self._journals(), self._partitions, began, now)
        return since is not None and now - since > QUIET_S and all(member.owned() for member in self.members)

    def _catch_up(self) -> None:
        """Wait until the group has read what was acknowledged up to now."""
        targets = list(self._load.ends)
        deadline = time.monotonic() + CATCH_UP_S
        while behind := list(self._behind(targets)):
            if time.monotonic() > deadline:
                raise AssertionError(self._report(f"{CATCH_UP_S} s of calm, and still behind: {behind}"))
            time.sleep(0.1)

    def _behind(self, targets: list[int]) -> Iterator[str]:
        journals = self._journals()
        for tp, target in zip(self._partitions, targets, strict=True):
            if (reached := max(journal.reached(tp) for journal in journals)) < target:
                yield f"{tp} at {reached} of {target}"

    def _journals(self) -> list[Journal]:
        return [member.journal for member in (*self.gone, *self.members)]

    # --- the end ---------------------------------------------------------------------------------------------------

    def _check(self, until: float) -> tuple[list[str], dict[str, Any]]:
        """Returns the errors that the checks found, and numbers of the run."""
        journals, acknowledged = self._journals(), sum(self._load.acknowledged)
        actual = wait_until(self._ends, CATCH_UP_S, "end offsets")
        ends = [actual[partition] for partition in range(PARTITIONS)]
        assert all(map(le, self._load.ends, ends)), "the cluster lost records that it had acknowledged"
        wrong, repeated = check_group(journals, TOPIC, ends)
        wrong += check_owners(journals, self.faults, SESSION_S, until)
        wrong += check_generations(journals)
        unstable, took = check_calms(journals, self._partitions, self.calms, SESSION_S)
        committed = self._cluster.committed(GROUP, TOPIC)
        if committed != actual:
            wrong.append(f"all left, and {committed} is committed of {actual}")
        ended = Counter(span.ended for journal in journals for spans in journal.spans.values() for span in spans)
        numbers = {
            "protocol": self.protocol,
            "seed": self.seed,
            "records": acknowledged,
            "written twice": sum(ends) - acknowledged,
            "read again": repeated,
            "ownerships": dict(ended),
            "stable after s": f"{sum(took) / max(1, len(took)):.1f}, at most {max(took, default=0):.1f}",
            "calms": len(took),
            "happened": dict(sorted(self._faults.happened.items())),
        }
        return wrong + unstable, numbers

    def _ends(self) -> dict[int, int] | None:
        """Returns the end offsets according to another client, or None while leaders change."""
        try:
            return self._cluster.end_offsets(TOPIC)
        except KafkaException:
            return None

    def _report(self, what: str) -> str:
        return report(f"{self.protocol}, seed {self.seed}: {what}", self.members)

    def _saving(self) -> ExitStack:
        """When the block fails, write the events of every member to files."""
        stack = ExitStack()

        def save(kind: type[BaseException] | None, *_: object) -> None:
            if kind is not None:
                folder = Path(tempfile.mkdtemp(prefix="kconsumer-chaos-"))
                for member in (*self.gone, *self.members):
                    assert isinstance(member, ChaosMember)
                    member.save(folder)
                (folder / "faults").write_text("".join(f"{fault}\n" for fault in self.faults))
                self._log(f"logs of all members are in {folder}")

        stack.push(save)
        return stack

    def _log(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} {text}", file=sys.stderr, flush=True)
