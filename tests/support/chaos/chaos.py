"""A chaos run: members of one group on real brokers while members, brokers and connections fail.

Decides how storms and calms follow each other. The members are those of the simulation (`real_world.py`), and its rules
judge the run (`judge.py`). To run it by hand, from the root of the project:

    KCONSUMER_CHAOS_SECONDS=600 KCONSUMER_CHAOS_SEED=7 pytest tests/integration/test_chaos.py -s
"""

from __future__ import annotations

import json
import pickle
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from kconsumer import TopicPartition, groups
from kconsumer.errors import KafkaError
from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.proxy import Proxy
from support.chaos.chaos_faults import FaultInjector, Kind, Strike, draw_storm
from support.chaos.judge import History, judge
from support.chaos.load import Load, stored_commits, stored_records
from support.chaos.process import ChaosMember
from support.members.share_groups import configure_group
from support.simulation.scenario import Member, Program, Scenario, Workers
from support.simulation.settings import GROUP
from support.simulation.share_scenario import LOCK_MS, ShareMember, ShareScenario

PLAIN, TRANSACTIONAL = "t", "u"
PARTITIONS = {PLAIN: 12, TRANSACTIONAL: 6}
MEMBERS = 6
SESSION_S = 8.0
STABLE_S = 2 * SESSION_S
SETTLE_S = 90.0  # processes start, on two cores that other tests use as well
CATCH_UP_S = 60.0
QUIET_S, LOOK_S = 2.0, 0.2  # a group that had one owner for each partition may move some again for balance
ENGINES = ("classic", "threaded", "asyncio")
PROGRAMS = (
    Program.AUTO_COMMIT,
    Program.COMMIT,
    Program.COMMIT_ASYNC,
    Program.COMMIT_IN_CALLBACK,
    Program.ITERATE,
    Program.SEEK_BACK,
    Program.PAUSE,
    Program.WAKE_UP,
)
WORKERS = Workers(slow_ms=3_000.0, drain_timeout_s=5.0, run_ms=30_000.0)
EXECUTORS = ("threads", "asyncio", "processes")
PROCESSES, PROCESSES_RUN_MS = 2, 120_000.0  # they import their modules on the same two cores
BATCH = (10, 0.05)  # of every other member with the same engine
BURST, SHARE_BURST = 20, 4  # records
DELIVERY_LIMIT = 5  # the default of brokers
SHARE_SCENARIO = ShareScenario(0, (), duration_ms=1e12, topics=2, delivery_limit=DELIVERY_LIMIT)
SHARE_MEMBERS = (
    ShareMember(explicit=True, releases=0.05, rejects=0.02, commits=0.5),
    ShareMember(iterates=0.3),
    ShareMember(explicit=True, renews=0.02, record_limit=True, max_poll_records=100),
    ShareMember(max_poll_records=100, reopens=0.02),
    ShareMember(explicit=True, workers=16),
    ShareMember(explicit=True, workers=16, executor="asyncio"),
)
SHARE = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.isolation.level": "read_committed",
}
#: Leaders and coordinators move only when a fault says so, and not because a busy machine keeps a broker silent.
BROKER = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "9000",
    "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
}


class Chaos:
    """One run. `protocol`: range, cooperative-sticky, consumer or share. `order`: members process in parallel."""

    def __init__(self, protocol: str, seed: int, order: str | None = None) -> None:
        self.protocol, self.seed, self.order = protocol, seed, order
        self.history = History()
        self.members: list[ChaosMember] = []  # in the group
        self.everyone: list[ChaosMember] = []  # with those that have ended
        self._random = random.Random(seed)
        self._numbers = count()
        self._origin_s, self._origin_ms = time.monotonic(), time.time() * 1000
        self._scenario = Scenario(
            seed, (), duration_ms=1e12, fetch_max_wait_ms=500, session_timeout_ms=round(SESSION_S * 1000),
            transactions=True, topics=2, max_callback_ms=500.0, keys=1,
        )  # fmt: skip

    @property
    def _is_share(self) -> bool:
        return self.protocol == "share"

    def run(self, seconds: float) -> dict[str, object]:
        """Inject faults for this long, and check everything. Returns numbers of the run."""
        self._log(f"{self.protocol} {self.order or ''}: chaos of {seconds:.0f} s, KCONSUMER_CHAOS_SEED={self.seed}")
        with ExitStack() as self._stack:
            proxy = self._stack.enter_context(Proxy())
            cluster = KafkaCluster(nodes=3, properties=BROKER, proxy=proxy.listen_for)
            self._cluster = self._stack.enter_context(cluster)
            for topic, partitions in PARTITIONS.items():
                self._cluster.create_topic(topic, partitions, 3, {"min.insync.replicas": "2"})
            self._cluster.coordinator_of(GROUP)
            if self._is_share:
                configure_group(self._cluster.bootstrap_servers, GROUP, SHARE)
                self.history.delivery_limit = DELIVERY_LIMIT
            # A share consumer that is behind reads one broker before another, so it must not be.
            burst = SHARE_BURST if self._is_share else BURST
            self._load = Load(self._cluster, PLAIN, TRANSACTIONAL, PARTITIONS, self.seed, burst)
            self._faults = FaultInjector(
                self._cluster, proxy, GROUP, PLAIN, self.members, self._replace, self._log, self.seed
            )
            with self._saving():
                self._storms(seconds)
                return self._judge()

    def _storms(self, seconds: float) -> None:
        self.members += [self._start() for _ in range(MEMBERS)]
        if self._is_share:
            self._storms_of_share_group(seconds)
            return
        alone = self._stack.enter_context(self._process(Member(Program.READ_ALONE)))
        with self._load.running():
            self._calm(SETTLE_S)
            began = time.monotonic()
            while time.monotonic() < began + seconds:
                self._blow(draw_storm(self._random, MEMBERS, SESSION_S))
                if self._random.random() < 0.3:
                    self._blow([Strike(Kind.STOP, self._random.randrange(MEMBERS), 0.0, 0.0)])
        self._catch_up()
        while self.members:  # one after the other, each when the group is stable
            self.members.pop().stop(60)
            if self.members:
                self._calm(SETTLE_S)
        alone.stop(60)

    def _storms_of_share_group(self, seconds: float) -> None:
        with self._load.running():
            self._catch_up(SETTLE_S)
            began = time.monotonic()
            while time.monotonic() < began + seconds:
                self._blow(draw_storm(self._random, MEMBERS, SESSION_S))
        wait_until(self._has_no_lag, SETTLE_S, "acknowledgements of all records")
        while self.members:
            self.members.pop().stop(60)

    def _has_no_lag(self) -> bool:
        """Returns whether the broker has an acknowledgement of every record."""
        with suppress(KafkaError):
            offsets = groups.offsets(GROUP, bootstrap_servers=self._cluster.bootstrap_servers)
            return all(tp in offsets and offsets[tp].lag == 0 for tp in self._load.ends)
        return False

    # --- members ---------------------------------------------------------------------------------------------------

    def _start(self) -> ChaosMember:
        number = next(self._numbers)
        if self._is_share:
            return self._stack.enter_context(self._process(SHARE_MEMBERS[number % len(SHARE_MEMBERS)]))
        engine = ENGINES[number % len(ENGINES)]
        plan = Member(
            Program.PARALLEL if self.order else PROGRAMS[(number + self.seed) % len(PROGRAMS)],
            engine,
            protocol="consumer" if self.protocol == "consumer" else "classic",
            assignor="cooperative-sticky" if self.protocol == "consumer" else self.protocol,
        )
        if self.order:
            executor = EXECUTORS[(number + number // len(ENGINES)) % len(EXECUTORS)]  # each one with each engine
            batch = BATCH if number // len(ENGINES) % 2 else None
            workers = replace(WORKERS, order=self.order, executor=executor, batch=batch)
            if executor == "processes" and engine != "asyncio":
                workers = replace(workers, number=PROCESSES, run_ms=PROCESSES_RUN_MS)
            plan = replace(plan, workers=workers)
        return self._stack.enter_context(self._process(plan))

    def _process(self, plan: Member | ShareMember) -> ChaosMember:
        name = f"m{len(self.everyone)}"
        settings = {
            "name": name,
            "member": repr(plan),
            "scenario": repr(SHARE_SCENARIO if self._is_share else self._scenario),
            "bootstrap_servers": self._cluster.proxied_servers,
            "origin_s": self._origin_s,
            "seed": self._random.getrandbits(32),
            "partitions": PARTITIONS,
        }
        self.everyone.append(ChaosMember(name, settings))
        return self.everyone[-1]

    def _replace(self, slot: int) -> None:
        self.members[slot] = member = self._start()
        wait_until(lambda: member.seen("started") or member.crashed, SETTLE_S, f"start of {member.name}")

    # --- storms and calms ------------------------------------------------------------------------------------------

    def _blow(self, strikes: list[Strike]) -> None:
        faults = self._faults.inject(strikes)
        self.history.faults += [
            replace(fault, began=self._since_begin(fault.began), ended=self._since_begin(fault.ended))
            for fault in faults
        ]
        if not self._is_share:
            self._calm(STABLE_S)
        self._catch_up()

    def _calm(self, longest_s: float) -> None:
        """Wait until the group is stable, and at most this long: then it must be."""
        deadline, quiet_since = time.monotonic() + longest_s, None
        while (now := time.monotonic()) < deadline and (quiet_since is None or now < quiet_since + QUIET_S):
            quiet_since = (quiet_since or now) if self._has_owners() else None
            time.sleep(LOOK_S)
        self.history.calms.append(self._since_begin(time.monotonic()))
        crashed = [member.name for member in self.members if member.crashed]
        if quiet_since is None or crashed:
            owned = {member.name: sorted(member.owned_now) for member in self.members}
            raise AssertionError(self._report(f"not stable after {longest_s} s: {owned}; crashed: {crashed}"))

    def _has_owners(self) -> bool:
        """Returns whether each partition has exactly one owner, and each member has partitions."""
        owned = [set(member.owned_now) for member in self.members]
        return all(owned) and sum(map(len, owned)) == sum(PARTITIONS.values()) == len(set().union(*owned))

    def _catch_up(self, longest_s: float = CATCH_UP_S) -> None:
        """Wait until the group has processed what was acknowledged up to now."""
        targets = dict(self._load.ends)
        deadline = time.monotonic() + longest_s
        while behind := self._behind(targets):
            if time.monotonic() > deadline:
                raise AssertionError(self._report(f"behind after {longest_s} s: {behind}"))
            time.sleep(LOOK_S)

    def _behind(self, targets: dict[TopicPartition, int]) -> list[str]:
        left = {
            tp: set(range(target)).difference(*(set(member.done.get(tp, ())) for member in self.everyone))
            for tp, target in targets.items()
        }
        return [f"{tp} at {min(offsets)} of {targets[tp]}" for tp, offsets in left.items() if offsets]

    # --- the end ---------------------------------------------------------------------------------------------------

    def _judge(self) -> dict[str, object]:
        history = self.history
        history.logs = {member.name: member.events for member in self.everyone}
        history.killed = {m.name: self._since_begin(m.killed_at) for m in self.everyone if m.killed_at is not None}
        history.records = stored_records(self._cluster, PARTITIONS, self._origin_ms)
        history.commits = () if self._is_share else stored_commits(self._cluster, GROUP, self._origin_ms)
        stored = {tp: rows[-1][1] + 1 for tp, rows in history.records.items() if rows}
        lost = {tp: end for tp, end in self._load.ends.items() if stored.get(tp, 0) < end}
        assert {} == lost, "the cluster lost records that it had acknowledged"
        journal = judge(history, LOCK_MS if self._is_share else SESSION_S * 1000)
        numbers: dict[str, object] = {
            "seed": self.seed,
            "protocol": self.protocol,
            "records": sum(map(len, history.records.values())),
            "returned": sum(journal.returned.values()) or journal.handlers.finished,
            "commits": len(history.commits),
            "members": len(history.logs),
            "calms": len(history.calms),
            "happened": dict(sorted(self._faults.happened.items())),
        }
        self._log(json.dumps(numbers, indent=2))
        listed = "\n".join(journal.violations[:20])
        assert not journal.violations, self._report(f"{len(journal.violations)} violations:\n{listed}")
        return numbers

    def _report(self, what: str) -> str:
        lines = [f"{self.protocol}, KCONSUMER_CHAOS_SEED={self.seed}: {what}"]
        lines += [f"--- {member.name}:\n{member.errors[-3000:]}" for member in self.members if member.crashed]
        return "\n".join(lines)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """When the block fails, write the events and the log of every member to files."""
        try:
            yield
        except BaseException:
            folder = Path(tempfile.mkdtemp(prefix="kconsumer-chaos-"))
            for member in self.everyone:
                (folder / f"{member.name}.events").write_text("".join(json.dumps(e) + "\n" for e in member.events))
                (folder / f"{member.name}.log").write_text(member.errors)
            (folder / "history").write_bytes(pickle.dumps(self.history))
            self._log(f"logs of all members are in {folder}")
            raise

    def _since_begin(self, moment_s: float) -> float:
        return (moment_s - self._origin_s) * 1000

    def _log(self, text: str) -> None:
        print(f"{time.monotonic() - self._origin_s:7.1f} {text}", file=sys.stderr, flush=True)
