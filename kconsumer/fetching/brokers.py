"""Which partitions are to be fetched from which broker.

Decides where a partition is read from (its leader, or the replica its leader prefers for us), which are left alone for
a while, and which have no room. Kept up to date from what changed, so that looking costs nothing for partitions that
go on as they did; `manager.py` decides when a broker is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from kconsumer.config.option_groups import FetchConfig
from kconsumer.fetching.buffer import FetchBuffer, FetchChain
from kconsumer.fetching.session import FetchSession
from kconsumer.managers import FOREVER
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.state.partition import PartitionState
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import Node, TopicPartition

MAX_AHEAD = 2


class MetadataRequester(Protocol):
    """The part of MetadataManager that fetching needs."""

    def request_update(self) -> Any:
        """Ask for new metadata as soon as its backoff allows."""
        ...


class BackedOff(NamedTuple):
    """A partition that failed and is left alone `until` then (ms), or until it has another leader than this one, or
    another position than its chain goes on from."""

    until: float
    since: float
    chain: FetchChain
    leader: LeaderAndEpoch
    reason: str


class BrokerFetchState:
    """A broker and the partitions to fetch from it."""

    __slots__ = ("chains", "changed", "full", "node", "responded_at", "session")

    def __init__(
        self, node: Node, session: FetchSession, chains: dict[TopicPartition, FetchChain] | None = None
    ) -> None:
        self.node = node
        self.session = session
        self.responded_at = 0.0  # when the broker last responded to a fetch (ms)
        self.chains = {} if chains is None else chains
        self.full: set[TopicPartition] = set()  # partitions without room; the broker is not asked until they have some
        self.changed: dict[TopicPartition, None] = {}  # partitions that the next request must compare with the session

    @property
    def ready(self) -> bool:
        """Whether there is something to ask for, and room for every partition."""
        return bool(self.chains) and not self.full

    def mark_responded(self, now: float) -> None:
        """Record when the broker last responded to a fetch."""
        self.responded_at = now

    def add(self, tp: TopicPartition, chain: FetchChain) -> None:
        """Fetch this partition here, from where its chain ends."""
        self.chains[tp] = chain
        self.changed[tp] = None
        if has_room(chain):
            self.full.discard(tp)
        else:
            self.full.add(tp)

    def remove(self, tp: TopicPartition) -> None:
        """Do not fetch this partition here any more."""
        del self.chains[tp]
        self.full.discard(tp)
        self.changed[tp] = None

    def __repr__(self) -> str:
        counts = f"{len(self.chains)} partitions, {len(self.full)} without room"
        return f"<BrokerFetchState {self.node}: {counts}, {self.session!r}>"


def has_room(chain: FetchChain) -> bool:
    """Whether the partition may be fetched further ahead.

    Under a new leader nothing is fetched ahead: what is buffered came from the old leader's log, and the position may
    have to be checked against the new one before the two are joined.
    """
    if chain.pending_fetches >= MAX_AHEAD or chain.next_offset is None:
        return False
    position = chain.state.position
    return position is not None and chain.leader == position.leader


class FetchPlanner:
    """The brokers to fetch from, least recently asked first."""

    def __init__(
        self,
        config: FetchConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: MetadataRequester,
        buffer: FetchBuffer,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._metadata = metadata
        self._buffer = buffer
        self._brokers: dict[int, BrokerFetchState] = {}
        self._broker_of: dict[TopicPartition, BrokerFetchState] = {}
        self._backed_off: dict[TopicPartition, BackedOff] = {}
        self._leaderless: dict[TopicPartition, float] = {}  # since when
        self._next_release = FOREVER
        self._lease_end = FOREVER
        self._seen = (-1, -1)

    def __iter__(self) -> Iterator[BrokerFetchState]:
        return iter(list(self._brokers.values()))

    @property
    def active_brokers(self) -> int:
        """How many brokers have partitions to fetch."""
        return sum(1 for target in self._brokers.values() if target.chains)

    @property
    def changed(self) -> bool:
        """Whether `update` may place a partition elsewhere; the end of a backoff is not told here."""
        return self._subscription.has_changes or self._seen != (
            self._cluster.update_version,
            self._subscription.assignment_version,
        )

    @property
    def buffer_changed(self) -> bool:
        """Whether what is buffered of a partition changed since the last `update`, or memory was freed."""
        return bool(self._buffer.dirty) or self._buffer.memory.has_freed

    @property
    def next_release(self) -> float:
        """When the next partition that is left alone may be asked again (ms)."""
        return self._next_release

    def update(self, now: float) -> None:
        """Take in what has changed since the last call."""
        states = self._subscription.states()
        changes = self._subscription.take_changes()
        touched = self._buffer.take_dirty()
        seen = self._cluster.update_version, self._subscription.assignment_version
        if seen != self._seen or now > self._lease_end:
            if seen[1] != self._seen[1]:
                self._drop_unassigned()
            self._seen = seen
            self._lease_end = FOREVER
            self._release(now)
            for tp, state in states.items():
                self._assign_broker(tp, state, now)
            self._drop_unused()
        else:
            for state in changes:
                touched[state.topic_partition] = None
            for tp in [*touched, *self._release(now)]:
                if (found := states.get(tp)) is not None:
                    self._assign_broker(tp, found, now)
        # What placing a partition changed of it has been seen by placing it.
        self._subscription.take_changes()
        self._buffer.take_dirty()

    def mark_sent(self, target: BrokerFetchState) -> None:
        """A request with all of the broker's partitions is on its way."""
        target.changed.clear()
        self._brokers[target.node.id] = self._brokers.pop(target.node.id)

    def back_off(
        self, chain: FetchChain, leader: LeaderAndEpoch, reason: str, now: float, delay_ms: Callable[[int], float]
    ) -> None:
        """Back a partition off for `delay_ms(failures before this one)`, or until it has another leader."""
        until = now + delay_ms(chain.count_failure() - 1)
        tp = chain.topic_partition
        self._backed_off[tp] = BackedOff(until, now, chain, leader, reason)
        self._next_release = min(self._next_release, until)
        self._buffer.mark_dirty(tp)

    def backed_off(self, tp: TopicPartition, state: PartitionState) -> BackedOff | None:
        """Why the partition is left alone, if it is."""
        position = state.position
        return self._backed_off[tp] if position is not None and self._is_backed_off(tp, position.leader) else None

    def leaderless_since(self, tp: TopicPartition) -> float:
        """Since when (ms) metadata knows no leader of the partition; 0 if it does."""
        return self._leaderless.get(tp, 0.0)

    def broker_for(self, tp: TopicPartition) -> BrokerFetchState | None:
        """Where the partition is fetched from; None if it is not to be fetched now."""
        return self._broker_of.get(tp)

    def order(self) -> Iterator[TopicPartition]:
        """All partitions, those that waited longest for data first."""
        return iter(self._subscription.states())

    def read_replica(self, tp: TopicPartition, state: PartitionState, now: float) -> Node | None:
        """The broker to fetch the partition from: the replica its leader preferred for us, while that is
        online and its lease lasts (KIP-392), else the leader; None when no leader is known."""
        preferred = state.preferred_replica(now)
        if preferred is not None:
            node = self._cluster.node_if_online(tp, preferred)
            if node is not None:
                self._lease_end = min(self._lease_end, state.lease_end)
                return node
            state.clear_preferred_replica()
            self._metadata.request_update()
        return state.position.leader.leader if state.position is not None else None

    # --- placing -----------------------------------------------------------------------------------------

    def _assign_broker(self, tp: TopicPartition, state: PartitionState, now: float) -> None:
        """Find out anew whether and from where a partition is fetched."""
        chain = self._buffer.drop_stale(tp, state, state.position)
        if chain is not None:
            self._join_leaders(chain, state)
        self._note_leader(tp, now)
        position = state.position
        target = None
        if self._is_gone(tp, state):
            self._metadata.request_update()
        elif state.fetchable and position is not None and not self._is_backed_off(tp, position.leader):
            node = self.read_replica(tp, state, now)
            if node is not None:
                target = self._broker(node)
            elif tp in self._leaderless:
                # One that metadata knows is on its way into the position; the offsets manager sees to it.
                self._metadata.request_update()
        before = self._broker_of.get(tp)
        if before is not None and before is not target:
            before.remove(tp)
            del self._broker_of[tp]
        if target is not None and position is not None:
            self._broker_of[tp] = target
            target.add(tp, chain or self._buffer.chain(tp, state, position))

    def _is_gone(self, tp: TopicPartition, state: PartitionState) -> bool:
        """Whether the topic was read by its id, and metadata does not know it now, because it was deleted or the broker
        lags behind. A fetch by name could read on in another topic of that name."""
        return state.topic_id is not None and self._cluster.partition_count(tp.topic) is None

    def _note_leader(self, tp: TopicPartition, now: float) -> None:
        """Remember since when nobody leads the partition."""
        if self._cluster.leader(tp).leader is not None:
            self._leaderless.pop(tp, None)
        elif tp not in self._leaderless:
            self._leaderless[tp] = now

    def _join_leaders(self, chain: FetchChain, state: PartitionState) -> None:
        """Continue in the log of a new leader once everything from the old leader's log has been read."""
        position = state.position
        if position is None or chain.leader == position.leader:
            return
        if chain.pending_fetches:
            chain.mark_leader_changed()
            return
        self._buffer.clear_error(chain)
        chain.follow_leader(position)

    def _broker(self, node: Node) -> BrokerFetchState:
        target = self._brokers.get(node.id)
        if target is None:
            session = FetchSession(node.id, self._config.max_partition_fetch_bytes)
            target = self._brokers[node.id] = BrokerFetchState(node, session)
        target.node = node
        return target

    def _is_backed_off(self, tp: TopicPartition, leader: LeaderAndEpoch) -> bool:
        entry = self._backed_off.get(tp)
        return entry is not None and entry.leader == leader and entry.chain is self._buffer.find(tp)

    def _release(self, now: float) -> list[TopicPartition]:
        """The partitions that need not be left alone any longer."""
        if now < self._next_release:
            return []
        free = [tp for tp, held in self._backed_off.items() if held.until <= now]
        for tp in free:
            del self._backed_off[tp]
        self._next_release = min((held.until for held in self._backed_off.values()), default=FOREVER)
        return free

    def _drop_unassigned(self) -> None:
        find = self._subscription.find
        self._buffer.retain(lambda chain: find(chain.topic_partition) is chain.state)
        states = self._subscription.states()
        for tp in [tp for tp in self._broker_of if tp not in states]:
            self._broker_of.pop(tp).remove(tp)
        for noted in (self._backed_off, self._leaderless):
            for tp in [tp for tp in noted if tp not in states]:
                del noted[tp]

    def _drop_unused(self) -> None:
        """Forget brokers that left the cluster."""
        for node_id in [n for n, t in self._brokers.items() if not t.chains and n not in self._cluster.nodes]:
            del self._brokers[node_id]

    def __repr__(self) -> str:
        partitions, brokers, backed_off = len(self._broker_of), len(self._brokers), len(self._backed_off)
        return f"<FetchPlanner: {partitions} partitions of {brokers} brokers, {backed_off} held>"
