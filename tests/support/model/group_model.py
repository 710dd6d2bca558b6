"""A random model run: consumers of one group make random calls while records are written, and everything is recorded.

Decides which calls are drawn, and when the run ends: after a time of random calls all members poll in peace, until
everything that was written is committed. The calls are in `group_model_calls.py`, what is recorded of them in
`group_model_member.py`, what must hold in `group_model_checker.py`. A seed draws the same calls again; how they
interleave depends on brokers and threads.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import Any

import confluent_kafka

from kconsumer import TopicPartition
from support.brokers.kafka_admin import Kafka
from support.harnesses.threads import meanwhile
from support.model.group_model_calls import CALLS, fail_in_body, subscribe, take
from support.model.group_model_checker import Finding, check, history
from support.model.group_model_events import EventLog, Partition
from support.model.group_model_load import Load
from support.model.group_model_member import SHORT_POLL_INTERVAL_MS, Member, Processed, deserialize

WORKERS = 3
STATIC_WORKER = "worker-0"
PARTITIONS = (3, 2, 3)  # of each topic
GROWN = 2  # partitions that the first topic has more from the middle of the run on
CALM_S = 40.0
OBSERVE_S = 0.4
CLOSE_S = 30.0
FINDINGS_SHOWN = 5

CLASSIC = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6_000}
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "range": {**CLASSIC, "assignors": ["range"]},
    "cooperative-sticky": {**CLASSIC, "assignors": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


class Worker:
    """A thread that opens one consumer after the other and makes random calls."""

    def __init__(self, name: str, run: GroupModel) -> None:
        self.name = name
        self.crash = ""
        self.is_calm = False  # makes no random calls any more
        self.member: Member | None = None
        self._run = run
        self._random = random.Random(f"{run.seed} {name}")
        self._opened = 0
        # One member is static in every other run: it keeps its partitions while it closes and opens again.
        is_static = name == STATIC_WORKER and run.seed % 2
        self._own = {"group_instance_id": name} if is_static else {}
        self._weights = [weight for weight, _ in CALLS]
        self._calls = [call for _, call in CALLS]

    def work(self) -> None:
        """Make random calls until the run is calm, then poll in peace until it is over."""
        try:
            while not self._run.calm.is_set():
                self._random_life()
            self._calm_life()
        except BaseException:
            self.crash = traceback.format_exc()
            self._run.calm.set()
            self._run.over.set()

    def _open(self, options: Mapping[str, Any]) -> Member:
        self._opened += 1
        name = f"{self.name}.{self._opened}"
        chosen = {**self._run.options, **self._own, **options}
        return Member(name, chosen, self._run.log, self._run.processed, self._random)

    def _random_life(self) -> None:
        drawn = self._random
        self.member = member = self._open(draw_options(drawn, self._run.protocol))
        member.patterns = drawn.random() < 0.2
        subscribe(member, self._run.topics)
        raises = False
        for _ in range(drawn.randint(10, 120)):
            if raises or self._run.calm.is_set():
                break
            (call,) = drawn.choices(self._calls, self._weights)
            raises = bool(call(member, self._run.topics))
        if raises:
            member.leave("body", lambda: fail_in_body(member), CLOSE_S)
        else:
            # Without time a static member cannot notify the coordinator that its successor may come.
            timeout = drawn.choices([CLOSE_S, 1.0, 0.0], [8, 2, 0 if self._own else 0.5])[0]
            timeout = CLOSE_S if self._run.calm.is_set() else timeout
            member.leave("close", lambda: member.consumer.close(timeout), timeout)

    def _calm_life(self) -> None:
        self.is_calm = True
        self.member = member = self._open({"enable_auto_commit": True, "auto_commit_interval_ms": 100})
        member.subscribe(self._run.topics)
        while not self._run.over.is_set():
            take(member, member.poll("poll", partial(member.consumer.poll, 0.2), 0.2))
        states = {tp: str(state) for tp, state in member.consumer.partition_states().items()}
        self._run.log.add(member.name, "states", partitions=states)
        member.leave("close", lambda: member.consumer.close(CLOSE_S), CLOSE_S)


def draw_options(drawn: random.Random, protocol: str) -> dict[str, Any]:
    """Returns random options of one consumer, without those of its group."""
    options: dict[str, Any] = {
        "enable_auto_commit": drawn.random() < 0.65,
        "auto_commit_interval_ms": drawn.choice([10, 50, 300]),
        "max_poll_records": drawn.choice([1, 3, 10, 50, 500]),
        "consumer_timeout_ms": drawn.choice([50, 200]),
    }
    if protocol != "consumer":
        options["engine"] = drawn.choice(["classic", "classic", "threaded"])
    if drawn.random() < 0.1:
        options["max_poll_interval_ms"] = SHORT_POLL_INTERVAL_MS
    return options


class GroupModel:
    """One run of a protocol (a name in PROTOCOLS)."""

    def __init__(self, kafka: Kafka, protocol: str, topic: str, seed: int) -> None:
        self.protocol, self.seed = protocol, seed
        self.topics = [f"{topic}-{n}" for n in range(len(PARTITIONS))]
        self.log = EventLog()
        self.processed = Processed()
        self.calm, self.over = threading.Event(), threading.Event()
        self._kafka, self._group = kafka, f"{topic}-group"
        drawn = random.Random(seed)
        isolation = drawn.choice(["read_committed", "read_uncommitted"])
        self.options: Mapping[str, Any] = {
            **PROTOCOLS[protocol],
            "bootstrap_servers": kafka.bootstrap_servers,
            "group_id": self._group,
            "auto_offset_reset": "earliest",
            "isolation_level": isolation,
            "metadata_max_age_ms": 1000,
            "value_deserializer": deserialize,
        }
        self._partitions = [
            TopicPartition(topic, partition)
            for topic, count in zip(self.topics, PARTITIONS, strict=True)
            for partition in range(count)
        ]
        self._grown = [TopicPartition(self.topics[0], PARTITIONS[0] + n) for n in range(GROWN)]
        self._calm_at = inf  # the time of the last random call
        self._committed: dict[Partition, int] = {}  # as seen since then
        self._load = Load(kafka, self._partitions, self.topics[-1], drawn, aborted_too=isolation == "read_uncommitted")
        self._workers = [Worker(f"worker-{n}", self) for n in range(WORKERS)]

    def run(self, seconds: float) -> dict[str, int]:
        """Make random calls for this time, then calm down and check everything. Returns numbers of the run."""
        print(f"{self.protocol}: {seconds:g} s, KCONSUMER_MODEL_SEED={self.seed}", file=sys.stderr, flush=True)
        for topic, count in zip(self.topics, PARTITIONS, strict=True):
            self._kafka.create_topic(topic, partitions=count)
        threads = [threading.Thread(target=worker.work) for worker in self._workers]
        with ExitStack() as stack:
            stack.enter_context(meanwhile(self._observe))
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            stack.callback(self.over.set)
            stack.callback(self.calm.set)
            with meanwhile(self._load.write), meanwhile(self._wake):
                if not self.calm.wait(seconds / 2):
                    self._kafka.add_partitions(self.topics[0], PARTITIONS[0] + GROWN)
                    self._load.grow(self._grown)
                    self.calm.wait(seconds / 2)
            self.calm.set()
            self._wait_until_all_is_committed()
        return self._check()

    def _wait_until_all_is_committed(self) -> None:
        """Give the members time to read and commit everything, once none of them makes random calls any more."""
        deadline = time.monotonic() + CALM_S
        while not self.over.wait(0.1) and time.monotonic() < deadline:
            if self._calm_at == inf and all(worker.is_calm for worker in self._workers):
                self._calm_at = self.log.now()
            if not self._behind():
                return

    def _behind(self) -> list[Finding]:
        """Returns the partitions whose last record is not committed."""
        return [
            Finding(
                self.log.now(), "", tp, f"{self._committed.get(tp, 0)} is committed, the last record is {offsets[-1]}"
            )
            for tp, offsets in self._load.written().items()
            if self._committed.get(tp, 0) <= offsets[-1]
        ]

    def _observe(self, ended: threading.Event) -> None:
        """Read the commits with another client, again and again."""
        asked = [confluent_kafka.TopicPartition(*tp) for tp in (*self._partitions, *self._grown)]
        options = {"bootstrap.servers": self._kafka.bootstrap_servers, "group.id": self._group, "log_level": 0}
        observer = confluent_kafka.Consumer(options)
        try:
            while not ended.wait(OBSERVE_S):
                began = self.log.now()
                try:
                    found = observer.committed(asked, timeout=5)
                except confluent_kafka.KafkaException:
                    continue  # its coordinator is not known yet
                offsets: dict[Partition, int] = {
                    TopicPartition(tp.topic, tp.partition): max(tp.offset, 0) for tp in found if not tp.error
                }
                self.log.add("observer", "observed", began=began, offsets=offsets)
                if began > self._calm_at:
                    self._committed.update(offsets)
        finally:
            observer.close()

    def _wake(self, ended: threading.Event) -> None:
        """Call wakeup() of random members from this thread."""
        drawn = random.Random(f"{self.seed} wakeup")
        while not ended.wait(drawn.uniform(0.1, 0.8)):
            member = drawn.choice(self._workers).member
            if member is not None:
                self.log.add(member.name, "woken")
                member.consumer.wakeup()

    # --- the end ---------------------------------------------------------------------------------------------------

    def _check(self) -> dict[str, int]:
        events, written = self.log.events, self._load.written()
        crashes = [worker.crash for worker in self._workers if worker.crash]
        assert not crashes, "\n".join([f"{self.protocol}, seed {self.seed}: a worker crashed", *crashes])
        left = [thread.name for thread in threading.enumerate() if self._group in thread.name]
        assert not left, f"{self.protocol}, seed {self.seed}: threads of closed consumers still run: {left}"
        found = [*check(events, written), *self._behind()]
        lines = [str(finding) for finding in found]
        for finding in found[:FINDINGS_SHOWN]:
            lines += ["", f"before {finding}"]
            lines += [event.about(finding.partition) for event in history(events, finding)]
        assert not found, "\n".join(
            [f"{self.protocol}, KCONSUMER_MODEL_SEED={self.seed}: {len(found)} rules broken", *lines]
        )
        calls = [event for event in events if event.kind == "call"]
        return {
            "calls": len(calls),
            "raised": sum(event.data["error"] is not None for event in calls),
            "written": sum(map(len, written.values())),
            "returned": sum(
                last - first + 1 for e in events if e.kind == "returned" for _, first, last in e.data["runs"]
            ),
            "rebalances": sum(event.kind == "assigned" for event in events),
            "commits": sum(event.kind == "acknowledged" for event in events),
            "consumers": sum(event.kind == "opened" for event in events),
        }
