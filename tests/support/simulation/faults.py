"""Applies the faults of a scenario to its cluster, network and members."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kconsumer.error_codes import ErrorCode, Errors
from kconsumer.schema import (
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from kconsumer.schema.dsl import Api
from kconsumer.testing.cluster.faults import Fault as ModelFault
from kconsumer.testing.cluster.faults import FaultKind as ModelFaultKind
from support.simulation.journal import Journal
from support.simulation.members import MemberProcess
from support.simulation.scenario import Fault, FaultKind, Scenario
from support.simulation.settings import TOPIC
from support.simulation.simulation import Simulation

# What the requests of an API may fail with for a while, without a change of the cluster.
ERRORS: list[tuple[Api, ErrorCode]] = [
    (FETCH, Errors.NOT_LEADER_OR_FOLLOWER),
    (FETCH, Errors.UNKNOWN_TOPIC_OR_PARTITION),
    (FETCH, Errors.KAFKA_STORAGE_ERROR),
    (FIND_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE),
    (HEARTBEAT, Errors.COORDINATOR_NOT_AVAILABLE),
    (HEARTBEAT, Errors.NOT_COORDINATOR),
    (JOIN_GROUP, Errors.COORDINATOR_LOAD_IN_PROGRESS),
    (JOIN_GROUP, Errors.NOT_COORDINATOR),
    (LIST_OFFSETS, Errors.LEADER_NOT_AVAILABLE),
    (METADATA, Errors.LEADER_NOT_AVAILABLE),
    (OFFSET_COMMIT, Errors.COORDINATOR_LOAD_IN_PROGRESS),
    (OFFSET_COMMIT, Errors.NOT_COORDINATOR),
    (OFFSET_COMMIT, Errors.REQUEST_TIMED_OUT),
    (OFFSET_FETCH, Errors.COORDINATOR_LOAD_IN_PROGRESS),
    (OFFSET_FETCH, Errors.NOT_COORDINATOR),
    (SYNC_GROUP, Errors.COORDINATOR_NOT_AVAILABLE),
    (SYNC_GROUP, Errors.REBALANCE_IN_PROGRESS),
]
TIMES = 3
LATENCY_MS = 200.0


class FaultInjector:
    """Applies faults. Each method begins one fault, and returns the function that ends it."""

    def __init__(
        self, simulation: Simulation, journal: Journal, scenario: Scenario, members: list[MemberProcess]
    ) -> None:
        self._simulation = simulation
        self._journal = journal
        self._scenario = scenario
        self._members = members
        self._begin: dict[FaultKind, Callable[[Fault], Callable[[], None]]] = {
            FaultKind.KILL_BROKER: self._kill_broker,
            FaultKind.MOVE_LEADERS: self._move_leaders,
            FaultKind.BLOCK: self._block,
            FaultKind.CUT_OFF: self._cut_off,
            FaultKind.SUSPEND: self._suspend,
            FaultKind.CRASH: self._crash,
            FaultKind.RESET: self._reset,
            FaultKind.SLOW_NETWORK: self._slow_network,
            FaultKind.ERROR: self._error,
            FaultKind.DISCONNECT: self._disconnect,
            FaultKind.DISCONNECT_AFTER: self._disconnect_after,
            FaultKind.INTERRUPT_BROKER: self._interrupt_broker,
            FaultKind.ADD_PARTITIONS: self._add_partitions,
        }

    def schedule(self) -> None:
        """Schedule all faults of the scenario."""
        for fault in self._scenario.faults:
            self._simulation.scheduler.call_at(fault.at_ms, partial(self._apply, fault))

    def _apply(self, fault: Fault) -> None:
        simulation = self._simulation
        simulation.record("fault", f"{fault.kind.name} {fault.duration_ms:.0f} ms m{fault.member} b{fault.broker}")
        self._disturb(fault)
        end = self._begin[fault.kind](fault)
        simulation.network.pump()
        simulation.scheduler.call_at(fault.ends_ms, lambda: self._end(fault, end))

    def _end(self, fault: Fault, end: Callable[[], None]) -> None:
        self._simulation.record("fault", f"{fault.kind.name} ends")
        end()
        self._simulation.network.pump()

    def _disturb(self, fault: Fault) -> None:
        """Excuse the members until two session timeouts after the end of the fault.

        Until then, they may not know what they have lost.
        """
        until = fault.ends_ms + 2 * self._scenario.session_timeout_ms
        self._journal.disturb_all(until)

    def _member(self, fault: Fault) -> MemberProcess:
        return self._members[fault.member % len(self._members)]

    # --- one method per kind ---

    def _kill_broker(self, fault: Fault) -> Callable[[], None]:
        cluster = self._simulation.cluster
        if len(cluster.alive_brokers()) <= 1 or not cluster.brokers[fault.broker].alive:
            return lambda: None
        cluster.kill(fault.broker)
        return lambda: cluster.start(fault.broker)

    def _move_leaders(self, fault: Fault) -> Callable[[], None]:
        cluster = self._simulation.cluster
        broker = fault.broker
        for topic in list(cluster.topics.values()):
            for partition in topic.partitions:
                if cluster.brokers[broker].alive and broker in partition.isr and self._simulation.random.random() < 0.5:
                    cluster.move_leader(topic.name, partition.index, broker)
        return lambda: None

    def _block(self, fault: Fault) -> Callable[[], None]:
        network, process = self._simulation.network, self._member(fault).process
        network.block(process, fault.broker)
        return lambda: network.unblock(process, fault.broker)

    def _cut_off(self, fault: Fault) -> Callable[[], None]:
        network, process = self._simulation.network, self._member(fault).process
        brokers = list(self._simulation.cluster.brokers)
        for broker in brokers:
            network.block(process, broker)

        def end() -> None:
            for broker in brokers:
                network.unblock(process, broker)

        return end

    def _suspend(self, fault: Fault) -> Callable[[], None]:
        self._member(fault).suspend(fault.duration_ms)
        return lambda: None

    def _crash(self, fault: Fault) -> Callable[[], None]:
        member = self._member(fault)
        if not member.alive:
            return lambda: None
        member.crash()
        return member.start

    def _reset(self, fault: Fault) -> Callable[[], None]:
        self._simulation.network.reset(self._member(fault).process)
        return lambda: None

    def _slow_network(self, _: Fault) -> Callable[[], None]:
        network = self._simulation.network
        network.extra_latency_ms += LATENCY_MS

        def end() -> None:
            network.extra_latency_ms -= LATENCY_MS

        return end

    def _error(self, fault: Fault) -> Callable[[], None]:
        return self._fail_requests(fault, ModelFaultKind.ERROR)

    def _disconnect(self, fault: Fault) -> Callable[[], None]:
        return self._fail_requests(fault, ModelFaultKind.DISCONNECT_BEFORE)

    def _disconnect_after(self, fault: Fault) -> Callable[[], None]:
        return self._fail_requests(fault, ModelFaultKind.DISCONNECT_AFTER)

    def _fail_requests(self, fault: Fault, kind: ModelFaultKind) -> Callable[[], None]:
        api, error = ERRORS[fault.number % len(ERRORS)]
        faults, failing = self._simulation.cluster.faults, ModelFault(kind, 1 + fault.number % TIMES, error)
        faults.add(api, failing)
        return lambda: faults.remove(api, failing)

    def _interrupt_broker(self, fault: Fault) -> Callable[[], None]:
        faults = self._simulation.cluster.faults
        faults.interrupt(fault.broker)
        return lambda: faults.restore(fault.broker, self._simulation.now)

    def _add_partitions(self, _: Fault) -> Callable[[], None]:
        cluster = self._simulation.cluster
        cluster.add_partitions(cluster.topics[TOPIC], 1, min(3, len(cluster.brokers)))
        return lambda: None
