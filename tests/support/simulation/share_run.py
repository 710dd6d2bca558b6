"""Runs a scenario of a share group, and reports which rules were violated. At the end, no record may be unfinished."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from kconsumer import TopicPartition
from kconsumer._common.error_codes import ErrorCode, Errors
from kconsumer.schema.dsl import Api
from kconsumer.schema.metadata import FIND_COORDINATOR
from kconsumer.schema.share_group import SHARE_ACKNOWLEDGE, SHARE_FETCH, SHARE_GROUP_HEARTBEAT
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.share_states import StateBatch, StateStore, StoredState
from support.simulation.faults import FaultInjector, create_topic
from support.simulation.members import MemberProcess
from support.simulation.observers import LoggedExceptions, ObservedRequests
from support.simulation.producers import Producers
from support.simulation.scenario import Fault, FaultKind
from support.simulation.scheduler import Process, Task
from support.simulation.settings import GROUP
from support.simulation.share_journal import ShareJournal
from support.simulation.share_members import ShareMemberProcess
from support.simulation.share_scenario import CATCH_UP_MS, LOCK_MS, ShareScenario
from support.simulation.simulation import Simulation, off_main_thread

CLOSING_MS = 60_000.0
SHARE_ERRORS: list[tuple[Api, ErrorCode]] = [
    (SHARE_FETCH, Errors.NOT_LEADER_OR_FOLLOWER),
    (SHARE_FETCH, Errors.SHARE_SESSION_NOT_FOUND),
    (SHARE_FETCH, Errors.KAFKA_STORAGE_ERROR),
    (SHARE_ACKNOWLEDGE, Errors.NOT_LEADER_OR_FOLLOWER),
    (SHARE_ACKNOWLEDGE, Errors.SHARE_SESSION_NOT_FOUND),
    (SHARE_ACKNOWLEDGE, Errors.COORDINATOR_NOT_AVAILABLE),
    (SHARE_GROUP_HEARTBEAT, Errors.COORDINATOR_LOAD_IN_PROGRESS),
    (SHARE_GROUP_HEARTBEAT, Errors.NOT_COORDINATOR),
    (SHARE_GROUP_HEARTBEAT, Errors.UNKNOWN_MEMBER_ID),
    (FIND_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE),
]
#: Faults of which members and brokers learn nothing. They excuse no violation.
UNNOTICED = (FaultKind.SLOW_NETWORK, FaultKind.SLOW_REQUESTS, FaultKind.SUSPEND, FaultKind.CRASH)
OF_ONE_MEMBER = (FaultKind.RESET, FaultKind.CUT_OFF)


@dataclass(frozen=True)
class ShareOutcome:
    """The result of a run."""

    scenario: ShareScenario
    violations: tuple[str, ...]
    history: list[str]
    digest: str
    records: int  # how many were written
    returned: int  # how many were returned, with repetitions
    took_s: float  # real time


class _StoredState(StoredState):
    """The stored state of one partition, which reports changes to the journal."""

    report: Callable[[list[StateBatch]], None] = staticmethod(lambda _: None)

    def write(self, start_offset: int, complete: int, batches: list[StateBatch]) -> None:
        super().write(start_offset, complete, batches)
        self.report(batches)


class _Store(StateStore):
    """The stored state of all partitions, which reports changes to the journal."""

    def __init__(self, simulation: Simulation, journal: ShareJournal) -> None:
        super().__init__()
        self._simulation, self._journal = simulation, journal

    def initialize(self, group_id: str, topic_id: bytes, index: int, start_offset: int = -1) -> None:
        super().initialize(group_id, topic_id, index, start_offset)
        state = self._groups[group_id][topic_id, index] = _StoredState(start_offset)
        tp = TopicPartition(self._simulation.cluster.topics_by_id[topic_id].name, index)
        state.report = lambda batches: self._changed(tp, batches)

    def _changed(self, tp: TopicPartition, batches: list[StateBatch]) -> None:
        self._journal.now = self._simulation.now
        for batch in batches:
            self._simulation.record("leader", f"{tp}@{batch.first}-{batch.last}: state {batch.state}")
            for offset in range(batch.first, batch.last + 1):
                self._journal.store((tp, offset), batch.state, batch.delivery_count)


class ShareFaultInjector(FaultInjector):
    """Applies the faults of a scenario to a share group."""

    errors = SHARE_ERRORS

    def _disturb(self, fault: Fault) -> None:
        """Excuse members that cannot know that a broker has released their records."""
        until = fault.settled_ms + LOCK_MS
        if fault.kind in OF_ONE_MEMBER:
            self._journal.disturb(self._member(fault).name, until)
        elif fault.kind not in UNNOTICED:
            self._journal.disturb_all(until)


class ShareRun:
    """One run of a scenario."""

    def __init__(self, scenario: ShareScenario, *, until_violation: bool = False) -> None:
        self.scenario = scenario
        self._until_violation = until_violation
        self.journal = ShareJournal(scenario.delivery_limit, steady=scenario.steady)
        settings = Settings(group_share_session_timeout_ms=10_000, group_share_heartbeat_interval_ms=2_000)
        cluster = Cluster(scenario.brokers, settings=settings, seed=scenario.seed)
        self.simulation = simulation = Simulation(scenario.seed, cluster)
        cluster.faults = ObservedRequests(simulation, self.journal, LOCK_MS)
        cluster.share_states = _Store(simulation, self.journal)
        configs = cluster.group_configs
        configs.set(GROUP, "share.auto.offset.reset", "earliest")
        configs.set(GROUP, "share.record.lock.duration.ms", str(LOCK_MS))
        configs.set(GROUP, "share.delivery.count.limit", str(scenario.delivery_limit))
        if scenario.transactions:
            configs.set(GROUP, "share.isolation.level", "read_committed")
        for topic in scenario.base.topic_names:
            create_topic(cluster, topic, scenario.base)
        simulation.scheduler.on_error = self._task_failed
        self.members = [
            ShareMemberProcess(simulation, self.journal, scenario, plan, f"m{index}")
            for index, plan in enumerate(scenario.members)
        ]
        members = cast("list[MemberProcess]", self.members)  # faults only use what both kinds have
        self._injector = ShareFaultInjector(simulation, self.journal, scenario.base, members, {})

    def run(self) -> ShareOutcome:
        """Run the scenario to its end. Returns the outcome."""
        began = time.perf_counter()
        simulation = self.simulation
        handler = LoggedExceptions(self.journal, simulation)
        logger = logging.getLogger("kconsumer")
        logger.addHandler(handler)
        try:
            self._run()
            return ShareOutcome(
                self.scenario,
                tuple(self.journal.violations),
                list(simulation.history),
                simulation.digest(),
                sum(map(len, self.journal.appended.values())),
                sum(self.journal.returned.values()),
                time.perf_counter() - began,
            )
        finally:
            logger.removeHandler(handler)
            simulation.scheduler.close()

    def _run(self) -> None:
        simulation, base = self.simulation, self.scenario.base
        simulation.network.pump()
        producers = Producers(simulation, self.journal, base, CATCH_UP_MS)
        simulation.spawn(Process("producer"), "main", producers.write)
        if base.transactions:
            simulation.spawn(Process("producer"), "transactions", producers.write_transactions)
        for member in self.members:
            simulation.scheduler.call_at(member.plan.start_ms, member.start)
        self._injector.schedule()
        self._run_until(base.duration_ms)
        for partition, offset in self.journal.unprocessed().items():
            self.journal.violation(f"lost: {partition}@{offset} was neither accepted nor given up")
        self._run_until(base.duration_ms + CLOSING_MS)
        for member in self.members:
            if member.alive:
                self.journal.violation(f"late call: {member.name} has not ended")

    def _run_until(self, time_ms: float) -> None:
        violations = self.journal.violations
        self.simulation.scheduler.run(time_ms, finished=lambda: self._until_violation and bool(violations))
        self.journal.now = self.simulation.now

    def _task_failed(self, task: Task, error: BaseException) -> None:
        self.journal.now = self.simulation.now
        self.journal.violation(f"unexpected error: {task.name} ended with {error!r}")


def run_share_scenario(scenario: ShareScenario, *, until_violation: bool = False) -> ShareOutcome:
    """Run a scenario on a thread of its own, to its end or until the first violation. Returns the outcome."""
    return off_main_thread(lambda: ShareRun(scenario, until_violation=until_violation).run())
