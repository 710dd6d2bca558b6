"""Applies the faults of a scenario to its cluster, network and members."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kconsumer import TopicPartition
from kconsumer.schema.dsl import Api
from kconsumer.schema.metadata import METADATA
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.faults import Fault as ModelFault
from kconsumer.testing.cluster.faults import FaultKind as ModelFaultKind
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.topic import NO_LEADER
from support.simulation.error_faults import ERRORS
from support.simulation.journal import Journal
from support.simulation.members import MemberProcess
from support.simulation.scenario import VOLATILE_TOPIC, Fault, FaultKind, Scenario
from support.simulation.settings import GROUP, PASSWORD, TOPIC, USER
from support.simulation.simulation import Simulation

TIMES = 3
LATENCY_MS = 200.0
MAX_DELAY_MS = 8_000.0
ALL = 1_000_000_000  # requests
FIRST_PRODUCER_ID = 1_000_000


def create_topic(cluster: Cluster, name: str, scenario: Scenario) -> None:
    """Create a topic of a scenario."""
    unclean = {"unclean.leader.election.enable": "true"} if name == VOLATILE_TOPIC else None
    cluster.create_topic(name, scenario.partitions, min(3, scenario.brokers), unclean)


class FaultInjector:
    """Applies faults. Each method begins one fault, and returns the function that ends it."""

    errors = ERRORS  # the error codes with which requests fail

    def __init__(
        self,
        simulation: Simulation,
        journal: Journal,
        scenario: Scenario,
        members: list[MemberProcess],
        users: dict[str, str],
    ) -> None:
        self._simulation = simulation
        self._journal = journal
        self._scenario = scenario
        self._members = members
        self._users = users  # the passwords that the brokers accept
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
            FaultKind.REFUSE: self._refuse,
            FaultKind.SLOW_REQUESTS: self._slow_requests,
            FaultKind.CLOSE_AT_FIRST_REQUEST: self._close_at_first_request,
            FaultKind.WRONG_PASSWORD: self._wrong_password,
            FaultKind.DELETE_RECORDS: self._delete_records,
            FaultKind.LOSE_RECORDS: self._lose_records,
            FaultKind.RECREATE_TOPIC: self._recreate_topic,
            FaultKind.PENDING_OFFSETS: self._pending_offsets,
            FaultKind.TWIN: self._twin,
            FaultKind.CLOSE_IN_HANDSHAKE: self._close_in_handshake,
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
        if fault.kind is not FaultKind.PENDING_OFFSETS:  # this one only delays the positions of some partitions
            self._journal.disturb_all(fault.settled_ms + 2 * self._scenario.session_timeout_ms)

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

    def _refuse(self, fault: Fault) -> Callable[[], None]:
        return self._fail_requests(fault, ModelFaultKind.ERROR, ALL)

    def _close_at_first_request(self, fault: Fault) -> Callable[[], None]:
        """Close connections at the first request, also to a member that has just started again."""
        member = self._member(fault)
        if member.alive:
            member.crash()
            member.start()
        return self._add(METADATA, ModelFault(ModelFaultKind.DISCONNECT_BEFORE, ALL))

    def _fail_requests(self, fault: Fault, kind: ModelFaultKind, times: int = 0) -> Callable[[], None]:
        """Let requests of an API fail: `times` of them, or some."""
        api, error = self.errors[fault.number % len(self.errors)]
        return self._add(api, ModelFault(kind, times or 1 + fault.number % TIMES, error))

    def _add(self, api: Api, failing: ModelFault) -> Callable[[], None]:
        faults = self._simulation.cluster.faults
        faults.add(api, failing)
        return lambda: faults.remove(api, failing)

    def _slow_requests(self, fault: Fault) -> Callable[[], None]:
        faults = self._simulation.cluster.faults
        api, _ = self.errors[fault.number % len(self.errors)]
        faults.delay(api, self._simulation.random.uniform(0, MAX_DELAY_MS))
        return lambda: faults.delay(api, 0.0)

    def _wrong_password(self, _: Fault) -> Callable[[], None]:
        users = self._users
        users[USER] = f"not {PASSWORD}"

        def end() -> None:
            users[USER] = PASSWORD

        return end

    def _close_in_handshake(self, fault: Fault) -> Callable[[], None]:
        """Close connections in the TLS handshake, also to a member that has just started again."""
        network, member = self._simulation.network, self._member(fault)
        if member.alive:
            member.crash()
            member.start()
        network.closes_handshakes = True

        def end() -> None:
            network.closes_handshakes = False

        return end

    def _interrupt_broker(self, fault: Fault) -> Callable[[], None]:
        faults = self._simulation.cluster.faults
        faults.interrupt(fault.broker)
        return lambda: faults.restore(fault.broker, self._simulation.now)

    def _delete_records(self, _: Fault) -> Callable[[], None]:
        """Delete the records of some partitions up to a random offset. Consumers may not have read them."""
        simulation = self._simulation
        for partition in simulation.cluster.partitions():
            if partition.topic.name in self._scenario.topic_names and simulation.random.random() < 0.5:
                start = simulation.random.randint(partition.log.start, partition.log.high_watermark)
                partition.log.delete_before(start)
                self._journal.delete(TopicPartition(partition.topic.name, partition.index), start)
        return lambda: None

    def _lose_records(self, fault: Fault) -> Callable[[], None]:
        """Let a follower stop to replicate. It becomes the leader later, without the records since then."""
        simulation, broker = self._simulation, fault.broker
        replication = simulation.cluster.replication
        topic = simulation.cluster.topics.get(VOLATILE_TOPIC)
        chosen = [p for p in topic.partitions if p.leader not in (NO_LEADER, broker)] if topic is not None else []
        for partition in chosen:
            replication.stop_replica(partition, broker, simulation.now)

        def end() -> None:
            for partition in chosen:
                if simulation.cluster.brokers[broker].alive:
                    replication.move_leader(partition, broker)

        return end

    def _recreate_topic(self, _: Fault) -> Callable[[], None]:
        cluster = self._simulation.cluster
        if VOLATILE_TOPIC not in cluster.topics:
            return lambda: None
        cluster.delete_topic(VOLATILE_TOPIC)
        return lambda: create_topic(cluster, VOLATILE_TOPIC, self._scenario)

    def _pending_offsets(self, fault: Fault) -> Callable[[], None]:
        """Open a transaction that has written offsets of one or all partitions, and abort it at the end."""
        store, producer_id = self._simulation.cluster.offsets, FIRST_PRODUCER_ID + fault.number
        partitions = self._simulation.cluster.topics[TOPIC].partitions
        number = fault.number % (len(partitions) + 1)
        chosen = partitions[number : number + 1] or partitions
        for partition in chosen:
            store.stage(producer_id, GROUP, TOPIC, partition.index, CommittedOffset(0, -1, "", 0))
        self._journal.delay_positions([TopicPartition(TOPIC, p.index) for p in chosen], fault.settled_ms)
        return lambda: store.complete(producer_id, commit=False)

    def _twin(self, fault: Fault) -> Callable[[], None]:
        """Start a process with the group_instance_id of a static member."""
        static = [member for member in self._members if member.plan.static]
        twin = static[fault.member % len(static)].twin(fault.ends_ms)
        self._members.append(twin)
        twin.start()
        return lambda: None

    def _add_partitions(self, _: Fault) -> Callable[[], None]:
        cluster = self._simulation.cluster
        cluster.add_partitions(cluster.topics[TOPIC], 1, min(3, len(cluster.brokers)))
        return lambda: None
