"""Plans which partitions are fetched from which broker.

Decides where a partition is read from (its leader, or the replica that its leader prefers for this consumer), which
partitions are in backoff, and which have no room in the buffer. Only partitions that changed are planned again.
`manager.py` decides when a broker is sent a request. A chain is the buffered data of one partition (see `buffer.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from kconsumer._core.cycle import BrokerFetchState, PlannerState
from kconsumer._internal.managers import FOREVER
from kconsumer.fetching.buffer import FetchBuffer, FetchChain
from kconsumer.fetching.session import FetchSession
from kconsumer.state.assignment import Assignment
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.state.partition import PartitionState
from kconsumer.types import Node, TopicPartition


class MetadataRequester(Protocol):
    """The part of MetadataManager that fetching needs."""

    def request_update(self) -> Any:
        """Request new metadata as soon as its backoff allows."""
        ...


class BackedOff(NamedTuple):
    """A partition in backoff. The backoff ends early if the partition's leader or the offset to fetch changes."""

    until: float  # when the backoff ends (ms)
    since: float  # when the fetch failed (ms)
    chain: FetchChain  # the chain of the failed fetch
    leader: LeaderAndEpoch  # at the time of the failure
    reason: str


def has_room(chain: FetchChain) -> bool:
    """Returns True if another fetch of the partition may be sent before the buffered ones are read."""
    return chain.has_room


class FetchPlanner(PlannerState):
    """Assigns each partition to the broker to fetch it from.

    Iteration yields the brokers. The broker that has waited longest since its last request is the first.
    """

    _cluster: Cluster
    _buffer: FetchBuffer

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        metadata: MetadataRequester,
        buffer: FetchBuffer,
    ) -> None:
        super().__init__(cluster, assignment.changes, buffer)
        self._assignment = assignment
        self._metadata = metadata
        self._brokers: dict[int, BrokerFetchState] = {}
        self._broker_of: dict[TopicPartition, BrokerFetchState] = {}
        self._backed_off: dict[TopicPartition, BackedOff] = {}
        self._leaderless: dict[TopicPartition, float] = {}  # when each partition without a leader lost it (ms)

    def __iter__(self) -> Iterator[BrokerFetchState]:
        return iter(list(self._brokers.values()))

    def update(self, now: float) -> None:
        """Decide again from which broker each partition is fetched, if its state, metadata or buffered data has
        changed."""
        states = self._assignment.states()
        changes = self._changes.take()
        dirty = self._buffer.take_dirty()
        seen = self._cluster.update_version, self._changes.assignment_version
        if seen != self._seen or now > self._lease_end:
            if seen[1] != self._seen[1]:
                self._drop_unassigned()
            self._seen = seen
            self._lease_end = FOREVER
            self._take_released(now)
            for tp, state in states.items():
                self._assign_broker(tp, state, now)
            self._drop_unused()
        else:
            for state in changes:
                dirty[state.topic_partition] = None
            for tp in [*dirty, *self._take_released(now)]:
                if (found := states.get(tp)) is not None:
                    self._assign_broker(tp, found, now)
        # Discard the notifications that `_assign_broker` caused: it has taken these changes into account.
        self._changes.take()
        self._buffer.take_dirty()
        self.active_brokers = sum(1 for broker in self._brokers.values() if broker.chains)

    def mark_sent(self, broker: BrokerFetchState) -> None:
        """Move the broker behind the other brokers and clear its changes, because a request was created for it."""
        broker.changed.clear()
        self._brokers[broker.node.id] = self._brokers.pop(broker.node.id)

    def back_off(
        self, chain: FetchChain, leader: LeaderAndEpoch, reason: str, now: float, delay_ms: Callable[[int], float]
    ) -> None:
        """Back off the partition of `chain` for `delay_ms(n)` ms. n is its number of failures in a row before this one.

        The backoff ends early if the partition gets another leader than `leader`.
        """
        until = now + delay_ms(chain.count_failure(reason) - 1)
        tp = chain.topic_partition
        self._backed_off[tp] = BackedOff(until, now, chain, leader, reason)
        self._next_release = min(self._next_release, until)
        self._buffer.mark_dirty(tp)

    def backed_off(self, tp: TopicPartition, state: PartitionState) -> BackedOff | None:
        """Returns the backoff of the partition, or None if it is not backed off."""
        position = state.position
        return self._backed_off[tp] if position is not None and self._is_backed_off(tp, position.leader) else None

    def leaderless_since(self, tp: TopicPartition) -> float:
        """Returns the time (ms) at which the partition lost its leader, according to metadata. Returns 0 if it has a
        leader."""
        return self._leaderless.get(tp, 0.0)

    def broker_for(self, tp: TopicPartition) -> BrokerFetchState | None:
        """Returns the broker from which the partition is fetched, or None if it is not fetched now."""
        return self._broker_of.get(tp)

    def order(self) -> Iterator[TopicPartition]:
        """Returns an iterator over all partitions. The partition that has waited longest for data is the first."""
        return iter(self._assignment.states())

    def read_replica(self, tp: TopicPartition, state: PartitionState, now: float) -> Node | None:
        """Returns the broker from which to fetch the partition, or None if no leader is known.

        If the leader prefers a replica for this consumer (KIP-392), and this replica is online and its lease has not
        ended, it is that replica. In all other cases it is the leader.
        """
        preferred, refusal = state.replica.preferred(now), state.replica.refusal(now)
        if refusal is not None and self._cluster.node_if_online(tp, refusal.broker_id) is None:
            state.clear_refusal()  # the leader names no replica that is offline, but names this one when it is back
        self._lease_end = min(self._lease_end, state.replica.lease_end)
        if preferred is not None:
            node = self._cluster.node_if_online(tp, preferred)
            if node is not None:
                return node
            state.prefer_leader()
            self._metadata.request_update()
        return state.position.leader.leader if state.position is not None else None

    # --- assigning brokers -------------------------------------------------------------------------------

    def _assign_broker(self, tp: TopicPartition, state: PartitionState, now: float) -> None:
        """Decide again whether the partition is fetched, and from which broker."""
        chain = self._buffer.drop_stale(tp, state, state.position)
        if chain is not None:
            self._follow_leader(chain, state)
        self._track_leaderless(tp, now)
        position = state.position
        broker = None
        if self._is_topic_unknown(tp, state):
            self._metadata.request_update()
        elif state.fetchable and position is not None and not self._is_backed_off(tp, position.leader):
            node = self.read_replica(tp, state, now)
            if node is not None:
                broker = self._broker(node)
            elif tp in self._leaderless:
                # Metadata contains no leader. (Once it contains one, ResetManager copies it to the position.)
                self._metadata.request_update()
        before = self._broker_of.get(tp)
        if before is not None and before is not broker:
            before.remove(tp)
            del self._broker_of[tp]
        if broker is not None and position is not None:
            self._broker_of[tp] = broker
            broker.add(tp, chain or self._buffer.chain(tp, state, position))

    def _is_topic_unknown(self, tp: TopicPartition, state: PartitionState) -> bool:
        """Returns True if the topic was read by its id and metadata does not contain the topic now.

        Either the topic was deleted, or the broker that sent the metadata lags behind. The partition must not be
        fetched by name, because a fetch by name could read another topic of the same name.
        """
        return state.topic_id is not None and self._cluster.partition_count(tp.topic) is None

    def _track_leaderless(self, tp: TopicPartition, now: float) -> None:
        """Record when the partition lost its leader. If it has a leader, remove that record."""
        if self._cluster.leader(tp).leader is not None:
            self._leaderless.pop(tp, None)
        elif tp not in self._leaderless:
            self._leaderless[tp] = now

    def _follow_leader(self, chain: FetchChain, state: PartitionState) -> None:
        """Continue the chain in the log of a new leader, if all data from the old leader has been read.

        If some of that data is still buffered, only records in the chain that the leader has changed.
        """
        position = state.position
        if position is None or chain.leader == position.leader:
            return
        if chain.pending_fetches:
            chain.mark_leader_changed()
            return
        self._buffer.clear_error(chain)
        chain.follow_leader(position)

    def _broker(self, node: Node) -> BrokerFetchState:
        broker = self._brokers.get(node.id)
        if broker is None:
            broker = self._brokers[node.id] = BrokerFetchState(node, FetchSession(node.id))
        broker.move_to(node)
        return broker

    def _is_backed_off(self, tp: TopicPartition, leader: LeaderAndEpoch) -> bool:
        """Returns True if the partition is in backoff, and its leader and chain have not changed since the failure."""
        entry = self._backed_off.get(tp)
        return entry is not None and entry.leader == leader and entry.chain is self._buffer.find(tp)

    def _take_released(self, now: float) -> list[TopicPartition]:
        """Remove the backoffs that have ended. Returns their partitions."""
        if now < self._next_release:
            return []
        released = [tp for tp, entry in self._backed_off.items() if entry.until <= now]
        for tp in released:
            del self._backed_off[tp]
        self._next_release = min((entry.until for entry in self._backed_off.values()), default=FOREVER)
        return released

    def _drop_unassigned(self) -> None:
        """Drop the state and the data of partitions that are no longer assigned."""
        find = self._assignment.find
        self._buffer.retain(lambda chain: find(chain.topic_partition) is chain.state)
        states = self._assignment.states()
        for tp in [tp for tp in self._broker_of if tp not in states]:
            self._broker_of.pop(tp).remove(tp)
        for noted in (self._backed_off, self._leaderless):
            for tp in [tp for tp in noted if tp not in states]:
                del noted[tp]

    def _drop_unused(self) -> None:
        """Drop brokers that left the cluster and have no partitions."""
        for node_id in [n for n, t in self._brokers.items() if not t.chains and n not in self._cluster.nodes]:
            del self._brokers[node_id]

    def __repr__(self) -> str:
        partitions, brokers, backed_off = len(self._broker_of), len(self._brokers), len(self._backed_off)
        return f"<FetchPlanner: {partitions} partitions of {brokers} brokers, {backed_off} backed off>"
