"""Which partitions to fetch, from which broker, from which offset, and when.

One fetch is under way per broker at a time, and each asks for every fetchable partition the broker leads, starting
where the partition's chain (`buffer.py`) ends. So a fetch does not wait for the records before it to be decoded or
returned: it leaves as soon as the response before it has arrived, until each partition is `MAX_AHEAD` fetches ahead
of the caller or `buffer_memory` is in use. A broker is left alone while any of its fetchable partitions has no room:
a fetch without that partition could wait at the broker for `fetch_max_wait_ms`, and the partition behind it (Java,
since 4.0, leaves a broker alone while it has anything buffered of it).

What a request looks like is in `request.py`, what a response means in `intake.py`, and what may be returned to the
caller in `collector.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from kconsumer.config import ConsumerConfig
from kconsumer.errors import KafkaError
from kconsumer.fetching.buffer import CompletedFetch, FetchBuffer, FetchChain
from kconsumer.fetching.intake import AsksForMetadata, Intake
from kconsumer.fetching.metrics import FetchMetrics
from kconsumer.fetching.request import LAST_VERSION_WITH_NAMES, Flight, build_fetch
from kconsumer.metrics import Metrics
from kconsumer.requests.base import FOREVER, PollResult, Reply, UnsentRequest
from kconsumer.schema import FETCH
from kconsumer.schema.fetch import FetchResponse
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, PartitionState
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import Node, TopicPartition

MAX_AHEAD = 2


@dataclass(slots=True)
class Candidate:
    """A broker that leads fetchable partitions; `blocked` when no fetch may leave for it now."""

    node: Node
    blocked: bool
    chains: list[FetchChain] = field(default_factory=list)


class FetchManager:
    """Asks brokers for what is to be read next. Not for concurrent use with the collector."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: AsksForMetadata,
        buffer: FetchBuffer,
        metrics: Metrics | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._metadata = metadata
        self._buffer = buffer
        self._metrics = None if metrics is None else FetchMetrics(metrics, read_committed=config.read_committed)
        self._intake = Intake(config, cluster, subscription, metadata, buffer)
        self._in_flight: dict[int, Flight] = {}
        self._reserved = 0
        # Partitions and brokers that failed, with the time until which they are left alone. A partition is
        # tried earlier when it gets another leader.
        self._retry_partition: dict[TopicPartition, tuple[float, LeaderAndEpoch]] = {}
        self._retry_node: dict[int, float] = {}
        self._looked_at = (-1, -1)
        self._answered = False
        self._assignment_version = -1
        self._wake_at = FOREVER

    # --- the engine's side -----------------------------------------------------------------------------

    @property
    def has_in_flight(self) -> bool:
        """Whether any fetch is under way."""
        return bool(self._in_flight)

    @property
    def wants_poll(self) -> bool:
        """Whether `poll` may have something new to do: a response came, room was made, metadata or the
        assignment changed. The end of a backoff, a seek or a resume are not seen here: poll before waiting anyway."""
        return self._answered or self._buffer.changed or self._versions() != self._looked_at

    def poll(self, now: float) -> PollResult:
        """The fetches to send now."""
        self._look_again(now)
        candidates = self._candidates(now)
        requests: list[UnsentRequest] = []
        short = False
        for candidate in candidates:
            if candidate.blocked or not candidate.chains:
                continue
            max_bytes = self._allowance(len(candidate.chains), len(candidates))
            if max_bytes is None:
                short = True
            else:
                requests.append(self._send(candidate, max_bytes, now))
        if short and self._buffer.has_parked and not self._buffer.has_data():
            # Only paused partitions hold the memory, and nothing else would ever free it.
            self._buffer.drop_parked()
            return PollResult(requests + self.poll(now).requests, self._wake_at - now)
        return PollResult(requests, self._wake_at - now)

    # --- building requests -----------------------------------------------------------------------------

    def _versions(self) -> tuple[int, int]:
        return self._cluster.update_version, self._subscription.assignment_version

    def _look_again(self, now: float) -> None:
        """Settle what has happened since the last look."""
        self._looked_at = self._versions()
        self._answered = False
        self._wake_at = FOREVER
        if self._assignment_version != self._subscription.assignment_version:
            self._assignment_version = self._subscription.assignment_version
            find = self._subscription.find
            self._buffer.retain(lambda chain: find(chain.topic_partition) is chain.state)
            if self._metrics is not None:
                self._metrics.assigned(self._subscription)
        for fetch in self._buffer.settled():
            self._account(fetch, now)
        self._retry_node = {node: until for node, until in self._retry_node.items() if until > now}
        self._retry_partition = {tp: entry for tp, entry in self._retry_partition.items() if entry[0] > now}

    def _account(self, fetch: CompletedFetch, now: float) -> None:
        """A fetched partition has been read or dropped."""
        tally = fetch.tally
        if self._metrics is None or tally is None:
            return
        tally.add(fetch.chain.topic_partition.topic, fetch.size if fetch.records else 0, fetch.records)
        if fetch.records:
            self._metrics.read(fetch.chain.topic_partition, fetch.chain.state, now)
        if tally.unread == 0:
            self._metrics.consumed(tally, now)

    def _candidates(self, now: float) -> list[Candidate]:
        """Brokers with fetchable partitions, those with the partitions that waited longest first."""
        found: dict[int, Candidate] = {}
        ask_for_leaders = False
        for tp, state in self._subscription.states().items():
            position = state.position
            if not state.fetchable or position is None:
                continue
            node = self.read_replica(tp, state, now)
            if node is None:
                # A leader that metadata knows is on its way into the position; the offsets manager sees to it.
                ask_for_leaders |= self._cluster.leader(tp).leader is None
                continue
            candidate = found.get(node.id)
            if candidate is None:
                candidate = found[node.id] = Candidate(node, self._leave_alone(node.id))
            if not candidate.blocked and not self._backs_off(tp, position.leader):
                self._join(candidate, tp, state, position)
        if ask_for_leaders:
            self._metadata.request_update()
        return list(found.values())

    def _join(self, candidate: Candidate, tp: TopicPartition, state: PartitionState, position: FetchPosition) -> None:
        """Have the partition fetched with the others of its broker; if it has no room, they all wait for it."""
        chain = self._buffer.chain(tp, state, position)
        if not chain.fetches:
            chain.leader = position.leader
        # Under a new leader nothing is fetched ahead: what is buffered came from the old leader's log, and
        # the position may have to be checked against the new one before the two are joined.
        if len(chain.fetches) >= MAX_AHEAD or chain.next_offset is None or chain.leader != position.leader:
            candidate.blocked = True
        else:
            candidate.chains.append(chain)

    def read_replica(self, tp: TopicPartition, state: PartitionState, now: float) -> Node | None:
        """The broker to fetch the partition from: the replica its leader preferred for us, while that is
        online and its lease lasts (KIP-392), else the leader; None when no leader is known."""
        preferred = state.preferred_replica(now)
        if preferred is not None:
            node = self._cluster.node_if_online(tp, preferred)
            if node is not None:
                return node
            state.clear_preferred_replica()
            self._metadata.request_update()
        return state.position.leader.leader if state.position is not None else None

    def _leave_alone(self, node_id: int) -> bool:
        until = self._retry_node.get(node_id)
        if until is not None:
            self._wake_at = min(self._wake_at, until)
        return until is not None or node_id in self._in_flight

    def _backs_off(self, tp: TopicPartition, leader: LeaderAndEpoch) -> bool:
        entry = self._retry_partition.get(tp)
        if entry is None or entry[1] != leader:
            return False
        self._wake_at = min(self._wake_at, entry[0])
        return True

    def _allowance(self, partitions: int, nodes: int) -> int | None:
        """How many bytes to ask for so that all fetches under way fit in `buffer_memory` with what is held;
        None if that is so few that waiting for room is better."""
        memory = self._buffer.memory
        want = min(self._config.fetch_max_bytes, partitions * self._config.max_partition_fetch_bytes, memory // nodes)
        room = memory - self._buffer.held_bytes - self._reserved
        return min(want, room) if room >= min(want, memory // 4) else None

    def _send(self, candidate: Candidate, max_bytes: int, now: float) -> UnsentRequest:
        flight, message = build_fetch(self._config, self._cluster, candidate.node, candidate.chains, max_bytes, now)
        self._in_flight[candidate.node.id] = flight
        self._reserved += max_bytes
        request = UnsentRequest(FETCH, message, partial(self.on_response, flight), str(candidate.node.id))
        if not flight.by_id:
            request.max_version = LAST_VERSION_WITH_NAMES
        return request

    # --- taking in responses ---------------------------------------------------------------------------

    def on_response(self, flight: Flight, reply: Reply) -> None:
        """The end of a request."""
        del self._in_flight[flight.node.id]
        self._reserved -= flight.max_bytes
        self._answered = True
        if reply.error is not None:
            self._on_failure(flight, reply.error, reply.now)
            return
        response: FetchResponse = reply.message
        if self._metrics is not None:
            self._metrics.responded(reply.now - flight.sent_at, response.throttle_time_ms, reply.now)
        if response.error_code:
            self._leave_node(flight, reply.now)
            self._metadata.request_update()
            return
        until = reply.now + self._config.retry_backoff_ms
        for tp in self._intake.take_in(flight, response, reply.version, reply.now):
            self._retry_partition[tp] = (until, flight.asked[tp].leader)
        if self._metrics is not None:
            self._metrics.fetched(flight.asked, self._subscription)

    def _on_failure(self, flight: Flight, error: KafkaError, now: float) -> None:
        self._leave_node(flight, now)
        for asked in flight.asked.values():
            asked.chain.state.clear_preferred_replica()
        if error.retriable:
            self._metadata.request_update()
        else:
            self._buffer.fail(error)

    def _leave_node(self, flight: Flight, now: float) -> None:
        self._retry_node[flight.node.id] = now + self._config.retry_backoff_ms

    def __repr__(self) -> str:
        asked = sum(len(flight.asked) for flight in self._in_flight.values())
        return f"<FetchManager {len(self._in_flight)} fetches of {asked} partitions under way, {self._buffer!r}>"
