"""Runs a scenario and reports which rules were violated.

After the last fault, the group must be stable within two session timeouts. At the end of the run, every record must
have been processed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from kconsumer import TopicPartition
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.offset_store import CommittedOffset, OffsetStore
from kconsumer.testing.cluster.sasl import SaslSettings
from kconsumer.testing.cluster.settings import Settings
from support.simulation.faults import FaultInjector, create_topic
from support.simulation.handler_journal import HandlerJournal
from support.simulation.journal import Journal
from support.simulation.members import MemberProcess
from support.simulation.network import SimulatedSocket
from support.simulation.observers import LoggedExceptions, ObservedRequests
from support.simulation.producers import Producers
from support.simulation.scenario import MINUTE_MS, VOLATILE_TOPIC, Member, Program, Scenario
from support.simulation.scheduler import Process, Task
from support.simulation.settings import GROUP, MAX_RAISING_MS, PASSWORD, POLL_TIMEOUT_S, SASL_SESSION_MS, USER
from support.simulation.simulation import Simulation, off_main_thread

# Programs that leave the group now and then, or that may not poll for a long time.
UNSTABLE = (
    Program.REOPEN,
    Program.CLOSE_IN_CALLBACK,
    Program.CHANGE_PROTOCOL,
    Program.RESUBSCRIBE,
    Program.SLOW,
    Program.SLOW_DESERIALIZER,
    Program.CHANGE_TOPICS,
    Program.UPGRADE,
    Program.INTERRUPT,
    Program.CLOSE_IN_HANDLER,
    Program.CANCEL,
    Program.CALLS,
)
# Programs that may let records wait, but not for long.
PROMPT = (
    Program.AUTO_COMMIT,
    Program.COMMIT,
    Program.COMMIT_ASYNC,
    Program.COMMIT_IN_CALLBACK,
    Program.ITERATE,
    Program.READ_ALONE,
    Program.PARALLEL,
)
MAX_RECORD_WAIT_MS = 2 * MINUTE_MS  # how long a record may wait in a run with these programs only
PROGRESS_CHECK_MS = 10_000.0
CLOSING_MS = 5 * MINUTE_MS  # how long the run continues after the members' end


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    scenario: Scenario
    violations: tuple[str, ...]
    history: list[str]
    digest: str
    records: int  # how many were written
    returned: int  # how many were returned, with repetitions
    steps: int
    took_s: float  # real time
    handlers: HandlerJournal  # of members that process records in parallel


class _Offsets(OffsetStore):
    """Committed offsets that are reported to the journal."""

    def __init__(self, simulation: Simulation, journal: Journal) -> None:
        super().__init__()
        self._simulation = simulation
        self._journal = journal

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        super().put(group_id, topic, partition, offset)
        if group_id == GROUP:
            tp = TopicPartition(topic, partition)
            self._simulation.record("coordinator", f"committed {tp}@{offset.offset}")
            self._journal.now = self._simulation.now
            self._journal.commit(tp, offset.offset, offset.metadata)


class Run:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, *, until_violation: bool = False) -> None:
        self.scenario = scenario
        self._until_violation = until_violation
        self.journal = Journal()
        self.journal.filtered = scenario.filtered
        self.journal.changes_protocol = scenario.has_both_protocols
        settings = Settings(group_consumer_session_timeout_ms=scenario.session_timeout_ms)
        users = {USER: PASSWORD}
        sasl = SaslSettings((scenario.sasl,), users, SASL_SESSION_MS) if scenario.sasl else None
        cluster = Cluster(scenario.brokers, release=scenario.release, settings=settings, sasl=sasl, seed=scenario.seed)
        self.simulation = simulation = Simulation(scenario.seed, cluster)
        simulation.network.tls = scenario.tls
        simulation.network.window_bytes = scenario.window_bytes
        simulation.network.on_discarded = self._response_discarded
        cluster.faults = ObservedRequests(simulation, self.journal, 2.0 * scenario.session_timeout_ms)
        cluster.offsets = _Offsets(simulation, self.journal)
        for topic in scenario.topic_names:
            create_topic(cluster, topic, scenario)
            for partition in cluster.topics[topic].partitions if scenario.reset == "latest" else ():
                cluster.offsets.put(GROUP, topic, partition.index, CommittedOffset(0, -1, "", 0))
        if scenario.volatile:
            self.journal.unchecked.add(VOLATILE_TOPIC)
        simulation.scheduler.on_error = self._task_failed
        self.members = [
            MemberProcess(simulation, self.journal, scenario, plan, f"m{index}", f"instance-m{index}")
            for index, plan in enumerate(scenario.members)
        ]
        self._injector = FaultInjector(simulation, self.journal, scenario, self.members, users)

    def run(self) -> Outcome:
        """Run the scenario to its end. Returns the outcome."""
        began = time.perf_counter()
        simulation, scenario = self.simulation, self.scenario
        handler = LoggedExceptions(self.journal, simulation)
        logger = logging.getLogger("kconsumer")
        logger.addHandler(handler)
        try:
            with simulation.signals.installed():
                self._run()
            # Before the tasks of crashed processes are ended: what they do then is not part of the run. For example, a
            # callback of an AsyncConsumer returns, and its poll with it, long after the crash.
            return Outcome(
                scenario,
                tuple(self.journal.violations),
                list(simulation.history),
                simulation.digest(),
                sum(map(len, self.journal.appended.values())),
                sum(self.journal.returned.values()),
                simulation.scheduler.steps,
                time.perf_counter() - began,
                self.journal.handlers,
            )
        finally:
            logger.removeHandler(handler)
            simulation.scheduler.close()

    def _run(self) -> None:
        """Start everything, run to the end, and check what must hold at certain times."""
        simulation, scenario = self.simulation, self.scenario
        simulation.network.pump()
        producers = Producers(simulation, self.journal, scenario)
        simulation.spawn(Process("producer"), "main", producers.write)
        if scenario.transactions:
            simulation.spawn(Process("producer"), "transactions", producers.write_transactions)
        for member in self.members:
            simulation.scheduler.call_at(member.plan.start_ms, member.start)
        self._injector.schedule()
        if all(_is_prompt(member.plan) for member in self.members):
            self._check_progress()
        if any(member.plan.program is Program.PARALLEL for member in self.members):
            self._check_commits()
        self._run_until(self._calm_ms())
        self._run_until(min(self.journal.all_disturbed_until, scenario.duration_ms))
        self._check_stable()
        self._check_volatile_topic()
        end_ms = scenario.duration_ms + CLOSING_MS
        self._run_until(scenario.duration_ms)
        self._run_until(end_ms, lambda: not any(member.alive for member in self.members))
        self._check_processed()
        self._run_until(end_ms)
        self._check_closed()

    def _run_until(self, time_ms: float, ended: Callable[[], bool] = bool) -> None:
        violations = self.journal.violations
        self.simulation.scheduler.run(time_ms, finished=lambda: ended() or (self._until_violation and bool(violations)))
        self.journal.now = self.simulation.now

    # --- what must hold ---

    def _calm_ms(self) -> float:
        """Returns when the group must be stable."""
        scenario = self.scenario
        events = [fault.settled_ms for fault in scenario.faults]
        events += [member.start_ms for member in scenario.members]
        # A member closes its consumer at the end of its last call.
        events += [m.stop_ms + POLL_TIMEOUT_S * 1000 for m in scenario.members if m.stop_ms is not None]
        calm = max(events) + 2 * scenario.session_timeout_ms
        if any(member.program is Program.RAISE_IN_CALLBACK for member in scenario.members):
            calm += 3 * MAX_RAISING_MS  # a rebalance of the consumer protocol has up to three callbacks of a member
        return min(calm, scenario.duration_ms)

    def _check_stable(self) -> None:
        """Check that each partition has one owner, unless a program delays rebalances or causes them itself."""
        if any(member.plan.program in UNSTABLE for member in self.members):
            return
        if not any(member.alive and member.plan.program is not Program.READ_ALONE for member in self.members):
            return
        topics = [self.simulation.cluster.topics[name] for name in self.scenario.topic_names]
        self.journal.check_stable(TopicPartition(t.name, partition.index) for t in topics for partition in t.partitions)

    def _check_volatile_topic(self) -> None:
        """Check the records of the volatile topic from now on, because no more of them are lost."""
        topic = self.simulation.cluster.topics.get(VOLATILE_TOPIC)
        if topic is not None:
            self.journal.unchecked.discard(VOLATILE_TOPIC)
            for partition in topic.partitions:
                tp = TopicPartition(VOLATILE_TOPIC, partition.index)
                self.journal.check_from(tp, partition.log.start, partition.log.end)

    def _check_progress(self) -> None:
        """Check now and from now on that no record waits too long while a member that stays is running."""
        simulation = self.simulation
        self.journal.now = simulation.now
        if any(member.alive and member.stays for member in self.members):
            self.journal.check_progress(MAX_RECORD_WAIT_MS)
        else:
            self.journal.restart_waits()
        if simulation.now < self.scenario.duration_ms:
            simulation.scheduler.call_at(simulation.now + PROGRESS_CHECK_MS, self._check_progress)

    def _check_commits(self) -> None:
        """Check now and from now on that what handlers have finished is committed."""
        simulation = self.simulation
        self.journal.now = simulation.now
        self.journal.handlers.check_commits()
        simulation.scheduler.call_at(simulation.now + PROGRESS_CHECK_MS, self._check_commits)

    def _check_processed(self) -> None:
        if any(member.stays for member in self.members):
            for partition, offset in self.journal.unprocessed().items():
                self.journal.violation(f"lost: {partition}@{offset} was never processed")

    def _check_closed(self) -> None:
        for member in self.members:
            if member.alive:
                self.journal.violation(f"late call: {member.name} has not ended")

    def _response_discarded(self, socket: SimulatedSocket) -> None:
        """A client has closed a connection before it has read all of a response. It must request it again."""
        self.journal.now = self.simulation.now
        for member in self.members:
            # A member that loses its coordinator closes that connection, whatever it has received meanwhile.
            if member.process is socket.process and member.calling != "close" and socket.fetches:
                self.journal.discard(member.name, socket.broker_id)

    def _task_failed(self, task: Task, error: BaseException) -> None:
        self.journal.now = self.simulation.now
        self.journal.violation(f"unexpected error: {task.name} ended with {error!r}")


def _is_prompt(member: Member) -> bool:
    """Returns whether a member may let records wait, but not for long."""
    return member.program in PROMPT and member.workers.slow_ms < MAX_RECORD_WAIT_MS / 4


def run_scenario(scenario: Scenario, *, until_violation: bool = False) -> Outcome:
    """Run a scenario on a thread of its own, to its end or until the first violation. Returns the outcome."""
    return off_main_thread(lambda: Run(scenario, until_violation=until_violation).run())
