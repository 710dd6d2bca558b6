"""A soak: three brokers, a load, readers behind a proxy, and faults; nothing lost or repeated, memory flat.

Decides how storms and calms follow each other and which checks the readers must pass at the end. Faults are in
`soak_faults.py`, the load in `soak_load.py`, the reports of readers in `soak_journal.py`. To run it by hand, from the
root of the project:

    KCONSUMER_SOAK_SECONDS=300 KCONSUMER_SOAK_SEED=7 pytest tests/integration/test_soak.py -s
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from itertools import count
from typing import Any

from confluent_kafka import KafkaException

from support.brokers.kafka import DEFAULT_VERSION, KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.proxy import Proxy
from support.soak.soak_faults import BrokerFaults, ConnectionFaults
from support.soak.soak_journal import DOUBT_S, ReaderProcess, check_group, check_numbers, check_plain, report
from support.soak.soak_load import PlainLoad, TransactionalLoad, running
from support.soak.soak_use import check_use, use

PLAIN, TRANSACTIONAL, GROUP = "plain", "transactional", "group"
PLAIN_PARTITIONS, TRANSACTIONAL_PARTITIONS = 6, 3
PER_SECOND = 900
MEMBERS = 3
COMMITS = ("auto", "sync", "async")
RACK_OF_MEMBER = ("rack-2", "")

# How soon readers must have read what was written before the faults ended. A session of a dead member or a request
# without a response has to time out first (6 s and 5 s), and the machine may be busy with other tests.
CATCH_UP_S = 60
CALM_S = 2

BUFFER_MEMORY = 8 << 20

# Readers that name a rack read from its broker, though another one leads (KIP-392).
RACKS = {
    "broker.rack": "rack-{node}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
READER = {
    "auto_offset_reset": "earliest",
    "buffer_memory": BUFFER_MEMORY,
    "request_timeout_ms": 5_000,
    "retry_backoff_ms": 50,
    "metadata_max_age_ms": 20_000,
    "connections_max_idle_ms": 30_000,
}
MEMBER = {
    "group_id": GROUP,
    "topics": [PLAIN],
    "assignors": ["cooperative-sticky"],
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
    "max_poll_interval_ms": 15_000,
    "auto_commit_interval_ms": 500,
}


class Soak:
    """One run. `readers` read by `assign`, `members` belong to the group; those that were killed are `gone`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.happened: Counter[str] = Counter()
        self.slowest_catch_up_s = 0.0
        self.readers: list[ReaderProcess] = []
        self.members: list[ReaderProcess] = []
        self.gone: list[ReaderProcess] = []
        self._random = random.Random(seed)
        self._numbers = count(1)
        self._began = time.monotonic()
        self._stack = ExitStack()

    def run(self, seconds: float) -> dict[str, Any]:
        """Run for this long and check everything. Returns numbers of the run."""
        self._log(f"soak of {seconds:.0f} s, KCONSUMER_SOAK_SEED={self.seed}")
        with self._stack:
            proxy = self._stack.enter_context(Proxy())
            self._cluster = self._stack.enter_context(KafkaCluster(DEFAULT_VERSION, 3, RACKS, proxy=proxy.listen_for))
            self._log("brokers run")
            self._start(proxy)
            with running(self.plain, self.transactional):
                time.sleep(CALM_S)
                self._catch_up("before the first storm")
                began = time.monotonic()
                while time.monotonic() < began + seconds:
                    self._storm()
                    self._catch_up("after a storm")
                    self._calm()
            self._catch_up("at the end")
            for process in (*self.readers, *self.members):
                process.stop(60)
            wrong = self._check()
            numbers = self._summary()
            self._log(json.dumps(numbers, indent=2))
            assert [] == wrong[:20], f"seed {self.seed}: {len(wrong)} things are wrong"
            return numbers

    def _start(self, proxy: Proxy) -> None:
        cluster, durable = self._cluster, {"min.insync.replicas": "2"}
        cluster.create_topic(PLAIN, PLAIN_PARTITIONS, 3, durable)
        cluster.create_topic(TRANSACTIONAL, TRANSACTIONAL_PARTITIONS, 3, durable)
        cluster.coordinator_of(GROUP)
        self.plain = PlainLoad(cluster, PLAIN, PLAIN_PARTITIONS, PER_SECOND, self.seed)
        self.transactional = TransactionalLoad(cluster, TRANSACTIONAL, TRANSACTIONAL_PARTITIONS, self.seed)
        self._targets = (self.plain.acknowledged, [0] * TRANSACTIONAL_PARTITIONS)
        ports = [node.behind_port for node in cluster.nodes if node.behind_port]
        self._links = ConnectionFaults(proxy, ports, self.seed, self.happened)
        topics = {PLAIN: PLAIN_PARTITIONS, TRANSACTIONAL: TRANSACTIONAL_PARTITIONS}
        self._brokers = BrokerFaults(cluster, topics, GROUP, self.seed, self.happened)
        self._proxy = proxy
        self.readers = [
            self._process("plain reader", assign={PLAIN: PLAIN_PARTITIONS}, restless=True, client_rack="rack-1"),
            self._process(
                "committed reader",
                assign={TRANSACTIONAL: TRANSACTIONAL_PARTITIONS},
                isolation_level="read_committed",
                max_partition_fetch_bytes=20_000,
                fetch_min_bytes=10_000,
                buffer_memory=500_000,
            ),
        ]
        self.members = [self._member() for _ in range(MEMBERS)]

    def _process(self, name: str, **settings: Any) -> ReaderProcess:
        chosen = {"bootstrap_servers": self._cluster.proxied_servers, "client_id": name, **READER, **settings}
        return self._stack.enter_context(ReaderProcess(name, chosen))

    def _member(self) -> ReaderProcess:
        number = next(self._numbers)
        own = {"commits": COMMITS[number % len(COMMITS)], "client_rack": RACK_OF_MEMBER[number % len(RACK_OF_MEMBER)]}
        return self._process(f"member-{number}", **own, **MEMBER)

    # --- storms ----------------------------------------------------------------------------------------------------

    def _storm(self) -> None:
        """Inject a fault of a broker, a member or both, while connections have faults, too."""
        with self._links.blowing() if self._random.random() < 0.85 else nullcontext():
            if self._random.random() < 0.4:
                self._strike_member()
            if self._random.random() < 0.85:
                self._brokers.strike(self._log)
            else:
                time.sleep(self._random.uniform(5, 15))

    def _strike_member(self) -> None:
        member = self._random.choice(self.members)
        draw = self._random.random()
        if draw < 0.4:
            self._log(f"kill {member.name}")
            self.happened["members killed"] += 1
            member.kill()
            self._replace(member)
        elif draw < 0.7:
            self._log(f"freeze {member.name}")
            self.happened["members frozen"] += 1
            member.freeze()
            time.sleep(self._random.uniform(1, 12))
            member.thaw()
        else:
            self._log(f"stop {member.name}")
            self.happened["members stopped"] += 1
            member.stop(60)
            self._replace(member)

    def _replace(self, member: ReaderProcess) -> None:
        self.gone.append(member)
        self.members[self.members.index(member)] = self._member()

    # --- calms -----------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """A moment of peace; now and then a longer one in which a member goes and another comes, all committed."""
        time.sleep(CALM_S)
        if self._random.random() < 0.3:
            time.sleep(DOUBT_S)
            member = self._random.choice(self.members)
            self._log(f"stop {member.name} between faults")
            self.happened["members replaced in calm"] += 1
            member.stop(60)
            self._replace(member)
            self._catch_up("after a calm rebalance")

    def _catch_up(self, when: str) -> None:
        """Wait until every reader has read what was acknowledged up to now."""
        plain = list(self.plain.acknowledged)
        committed = [len(offsets) for offsets in self.transactional.committed]
        began = time.monotonic()
        deadline = began + CATCH_UP_S
        while behind := list(self._behind(plain, committed)):
            crashed = [process.name for process in self._running() if process.crashed]
            if crashed or time.monotonic() > deadline:
                raise AssertionError(self._report(f"{when}, {CATCH_UP_S} s of calm; crashed: {crashed}", behind))
            time.sleep(0.1)
        wrong = [*self.plain.wrong, *self.transactional.wrong]
        wrong += [line for process in (*self._running(), *self.gone) for line in process.journal.wrong]
        assert [] == wrong[:20], self._report(f"{when}: {len(wrong)} things are wrong", wrong[:20])
        took = time.monotonic() - began
        self.slowest_catch_up_s = max(self.slowest_catch_up_s, took)
        self._log(f"{when}: caught up with {sum(plain)} + {sum(committed)} records in {took:.1f} s")

    def _behind(self, plain: Sequence[int], committed: Sequence[int]) -> Iterable[str]:
        plain_reader, committed_reader = self.readers
        for partition, target in enumerate(plain):
            tp = (PLAIN, partition)
            if (reached := plain_reader.journal.reached(tp)) < target:
                yield f"{plain_reader.name}: {tp} at {reached} of {target}"
            readers = (*self.members, *self.gone)
            if (reached := max(member.journal.reached(tp) for member in readers)) < target:
                yield f"group: {tp} at {reached} of {target}"
        for partition, target in enumerate(committed):
            tp = (TRANSACTIONAL, partition)
            if (reached := committed_reader.journal.reached(tp)) < target:
                yield f"{committed_reader.name}: {tp} at {reached} of {target}"

    def _running(self) -> list[ReaderProcess]:
        return [*self.readers, *self.members]

    def _report(self, what: str, behind: Sequence[str]) -> str:
        return report("\n".join([f"seed {self.seed}, {what}", *behind]), self._running())

    # --- the end ---------------------------------------------------------------------------------------------------

    def _check(self) -> list[str]:
        """Returns the errors that the checks found."""
        plain_reader, committed_reader = (reader.journal for reader in self.readers)
        members = [member.journal for member in (*self.members, *self.gone)]
        ends = wait_until(self._ends, CATCH_UP_S, "end offsets")
        assert dict(enumerate(self.plain.acknowledged)) == ends, "acknowledged records and log ends differ"
        in_group, self._repeated = check_group(members, PLAIN, self.plain.acknowledged)
        wrong = [
            *check_plain(plain_reader, PLAIN, self.plain.acknowledged),
            *check_numbers(committed_reader, TRANSACTIONAL, self.transactional.committed),
            *in_group,
        ]
        for reader in self.readers:
            wrong += check_use(reader.name, reader.journal.statuses)
        return wrong

    def _ends(self) -> dict[int, int] | None:
        """Returns the end offsets according to another client, or None while leaders change."""
        try:
            return self._cluster.end_offsets(PLAIN)
        except KafkaException:
            return None

    def _summary(self) -> dict[str, Any]:
        spans = [s for m in (*self.members, *self.gone) for each in m.journal.spans.values() for s in each if s.runs]
        return {
            "seed": self.seed,
            "records": sum(self.plain.acknowledged),
            "committed in transactions": sum(map(len, self.transactional.committed)),
            "transactions": (self.transactional.transactions, self.transactional.aborted),
            "repeated in the group": self._repeated,
            "ownerships": Counter("committed" if s.committed else f"{s.ended}, in doubt" for s in spans),
            "slowest catch-up": round(self.slowest_catch_up_s, 1),
            "connections": self._proxy.accepted(),
            "happened": dict(sorted(self.happened.items())),
            # A member that came at the very end may not have reported anything yet.
            **{reader.name: use(reader.journal.statuses) for reader in self._running() if reader.journal.statuses},
        }

    def _log(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} {text}", file=sys.stderr, flush=True)
