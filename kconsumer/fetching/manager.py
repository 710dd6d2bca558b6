"""When a broker is asked for more, and for how many bytes.

One fetch is under way per broker at a time, and each asks for every fetchable partition the broker leads, starting
where the partition's chain (`buffer.py`) ends. So a fetch does not wait for the records before it to be decoded or
returned: it leaves as soon as the response before it has arrived, until each partition is `MAX_AHEAD` fetches ahead
of the caller or `buffer_memory` is in use. A broker is left alone while any of its fetchable partitions has no room:
a fetch without that partition could wait at the broker for `fetch_max_wait_ms`, and the partition behind it; and the
fetch session would lose it and have to learn it again (Java, since 4.0, leaves a broker alone while it has anything
buffered of it).

After a seek, or when a partition is added, the fetch in flight asks for something else, and a broker that has nothing
for it keeps it for `fetch_max_wait_ms`. Brokers process the requests of a connection one after the other, so what is
wanted now is fetched on another connection, outside the session and without a wait: an expedited fetch. Whichever
response comes first is taken; the other one no longer fits its chain and is dropped.

Which partitions go to which broker is in `targets.py`, how little a request says in `session.py`, what a response means
in `intake.py`, and what may be returned to the caller in `collector.py`.
"""

from __future__ import annotations

import random
from functools import partial

from kconsumer.backoff import ExponentialBackoff
from kconsumer.config.option_groups import FetchConfig
from kconsumer.error_codes import Errors
from kconsumer.errors import KafkaError, error_for
from kconsumer.fetching.brokers import BrokerFetchState, FetchPlanner, MetadataRequester, has_room
from kconsumer.fetching.buffer import CompletedFetch, FetchBuffer, FetchChain
from kconsumer.fetching.metrics import FetchMetrics
from kconsumer.fetching.partition_status import FetchContext, NodeFailure
from kconsumer.fetching.request import InFlightFetch, build_fetch
from kconsumer.fetching.response_handler import Failed, FetchResponseHandler
from kconsumer.fetching.session import (
    FINAL_EPOCH,
    FetchSession,
)
from kconsumer.managers import FOREVER, PollResult, Reply, UnsentRequest
from kconsumer.metrics.registry import Metrics
from kconsumer.schema import FETCH
from kconsumer.schema.fetch import FetchResponse
from kconsumer.state.cluster import Cluster
from kconsumer.state.partition import PartitionState
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import TopicPartition

# The codes of a response that concern only its fetch session: metadata need not be refreshed.
SESSION_ERRORS = (Errors.FETCH_SESSION_ID_NOT_FOUND, Errors.INVALID_FETCH_SESSION_EPOCH, Errors.NONE)
EXPEDITE_AFTER_MS = 10.0  # a fetch that is answered within this time is not waiting at the broker


class FetchManager:
    """Asks brokers for what is to be read next. Not for concurrent use with the collector."""

    def __init__(
        self,
        config: FetchConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: MetadataRequester,
        buffer: FetchBuffer,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._metadata = metadata
        self._buffer = buffer
        self._metrics = None if metrics is None else FetchMetrics(metrics, read_committed=config.read_committed)
        self._response_handler = FetchResponseHandler(config, cluster, subscription, metadata, buffer)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self.planner = FetchPlanner(config, cluster, subscription, metadata, buffer)
        self._in_flight: dict[int, InFlightFetch] = {}
        self._expedited: dict[int, InFlightFetch] = {}  # expedited fetches in flight, by broker
        self._expedited_offsets: dict[TopicPartition, tuple[FetchChain, int]] = {}  # expedited once, until a fetch ends
        self._expedited_response = False  # an expedited fetch ended since the last look
        self._memory = buffer.memory
        self._waits_for_memory: dict[int, float] = {}  # since when (ms), by broker
        self._node_failures: dict[int, NodeFailure] = {}  # of brokers whose last fetch failed
        self._responded = False
        self._assignment_version = -1

    # --- the engine's side -----------------------------------------------------------------------------

    @property
    def has_in_flight(self) -> bool:
        """Whether any fetch is under way."""
        return bool(self._in_flight)

    @property
    def wants_poll(self) -> bool:
        """Whether `poll` may have something new to do: a partition, metadata or the assignment changed; a response came
        or room was made, and some broker has no fetch under way. The end of a backoff is not seen here: poll before
        waiting anyway."""
        targets = self.planner
        return (
            targets.changed
            or self._expedited_response
            or ((self._responded or targets.buffer_changed) and len(self._in_flight) < targets.active_brokers)
        )

    def poll(self, now: float) -> PollResult:
        """The fetches to send now."""
        self._settle(now)
        self.planner.update(now)
        requests: list[UnsentRequest] = []
        wake_at = self.planner.next_release
        waiting: list[BrokerFetchState] = []
        brokers = self.planner.active_brokers
        for target in self.planner:
            if not target.ready or target.node.id in self._in_flight:
                wake_at = min(wake_at, self._expedite(target, brokers, now, requests))
                continue
            trouble = self._node_failures.get(target.node.id)
            if trouble is not None and trouble.until > now:
                wake_at = min(wake_at, trouble.until)
            elif not waiting and self._cost(target, brokers) <= self._memory.room:
                requests.append(self._send(target, brokers, now))
            else:
                # In turn: one that needs much room would wait for ever behind others that need little.
                waiting.append(target)
        if waiting and not self._buffer.has_data() and (request := self._make_room(waiting[0], brokers, now)):
            requests.append(request)
            del waiting[0]
        if waiting or self._waits_for_memory:
            since = self._waits_for_memory
            self._waits_for_memory = {target.node.id: since.get(target.node.id, now) for target in waiting}
        return PollResult(requests, wake_at - now)

    def close(self) -> list[UnsentRequest]:
        """What to send to end the fetch sessions. Nothing is fetched after this."""
        return [
            UnsentRequest(FETCH, message, _ignore, str(target.node.id))
            for target in self.planner
            if (message := target.session.close()) is not None
        ]

    def context(self, tp: TopicPartition, state: PartitionState, now: float) -> FetchContext:
        """All that is known here about the fetching of an assigned partition."""
        targets, position, chain = self.planner, state.position, self._buffer.find(tp)
        if chain is not None and (position is None or not chain.holds(state, position)):
            chain = None  # of another position, to be dropped at the next look
        target = targets.broker_for(tp)
        flight = None if target is None else self._in_flight.get(target.node.id)
        asked = None if flight is None else flight.requested.get(tp)
        if target is not None and (asked is None or asked.chain is not chain):
            flight = self._expedited.get(target.node.id)
            asked = None if flight is None else flight.requested.get(tp)
        return FetchContext(
            now,
            state,
            self._memory,
            self._cluster.leader(tp),
            chain=chain,
            leaderless_since=targets.leaderless_since(tp),
            held=targets.backed_off(tp, state),
            target=target,
            in_flight=flight if asked is not None and asked.chain is chain else None,
            waits_for_memory=None if target is None else self._waits_for_memory.get(target.node.id),
            node_error=None if target is None else self._node_failures.get(target.node.id),
            max_wait_ms=self._config.fetch_max_wait_ms,
        )

    # --- requests --------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Account for what was read or dropped since the last look."""
        self._responded = self._expedited_response = False
        self._memory.reap_freed()
        if self._metrics is not None and self._assignment_version != self._subscription.assignment_version:
            self._assignment_version = self._subscription.assignment_version
            self._metrics.assigned(self._subscription)
        for fetch in self._buffer.drained():
            self._account(fetch, now)

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

    def _max_bytes(self, target: BrokerFetchState, brokers: int) -> int:
        """How many bytes to ask a broker for."""
        config = self._config
        of_partitions = len(target.chains) * config.max_partition_fetch_bytes
        return min(config.fetch_max_bytes, of_partitions, self._memory.per_request_limit(brokers))

    def _cost(self, target: BrokerFetchState, brokers: int) -> int:
        """How many bytes of memory to keep free for its response."""
        return self._memory.reserve_for(self._max_bytes(target, brokers))

    def _make_room(self, target: BrokerFetchState, brokers: int, now: float) -> UnsentRequest | None:
        """Nothing waits for the caller that could make room by being read. If there is none either when all that is
        under way has come back empty, what paused partitions hold is given up as far as needed, to be fetched again.
        With nothing under way the broker is asked in any case: a batch was larger than all limits."""
        memory, cost = self._memory, self._cost(target, brokers)
        while self._buffer.has_paused and cost > memory.room + memory.reserved:
            self._buffer.drop_paused()
        if self._in_flight and cost > memory.room:
            return None
        return self._send(target, brokers, now)

    def _send(self, target: BrokerFetchState, brokers: int, now: float) -> UnsentRequest:
        targets = self.planner
        session = target.session.next_request(target.chains, target.changed, targets.order, self._cluster.topic_id)
        targets.mark_sent(target)
        max_bytes, reserved = self._max_bytes(target, brokers), self._cost(target, brokers)
        flight, message = build_fetch(self._config, target, session, max_bytes, reserved, now)
        self._in_flight[target.node.id] = flight
        self._memory.reserve(reserved)
        handler = partial(self.on_response, flight)
        return UnsentRequest(FETCH, message, handler, str(target.node.id), max_version=session.max_version)

    def _expedite(self, target: BrokerFetchState, brokers: int, now: float, requests: list[UnsentRequest]) -> float:
        """Add an expedited fetch of what the fetch in flight does not ask for. Returns when to try again (ms)."""
        flight = self._in_flight.get(target.node.id)
        if flight is None or target.node.id in self._expedited or self._buffer.has_data():
            return FOREVER
        chains = {tp: chain for tp, chain in target.chains.items() if self._is_waiting(tp, chain, flight)}
        if not chains or target.node.id in self._node_failures:
            return FOREVER
        if now < flight.sent_at + EXPEDITE_AFTER_MS:
            return flight.sent_at + EXPEDITE_AFTER_MS
        session = FetchSession(target.node.id, self._config.max_partition_fetch_bytes)
        expedited = BrokerFetchState(target.node, session, chains)
        max_bytes, reserved = self._max_bytes(expedited, brokers), self._cost(expedited, brokers)
        if reserved > self._memory.room:
            return FOREVER
        for tp, chain in chains.items():
            assert chain.next_offset is not None  # or it would have no room
            self._expedited_offsets[tp] = chain, chain.next_offset
        part = session.next_request(chains, (), self.planner.order, self._cluster.topic_id)
        part = part._replace(epoch=FINAL_EPOCH)  # neither makes a session nor ends one
        sent, message = build_fetch(self._config, expedited, part, max_bytes, reserved, now, max_wait_ms=0)
        self._expedited[target.node.id] = sent
        self._memory.reserve(reserved)
        handler = partial(self._on_expedited, sent)
        requests.append(UnsentRequest(FETCH, message, handler, f"*{target.node.id}", max_version=part.max_version))
        return FOREVER

    def _is_waiting(self, tp: TopicPartition, chain: FetchChain, flight: InFlightFetch) -> bool:
        """Whether a partition is wanted from an offset that neither the fetch in flight nor an expedited one before it
        asked for."""
        if chain.pending_fetches or not has_room(chain):
            return False
        asked = flight.requested.get(tp)
        if asked is not None and asked.chain is chain and asked.offset == chain.next_offset:
            return False
        before = self._expedited_offsets.get(tp)
        return before is None or before[0] is not chain or before[1] != chain.next_offset

    # --- responses -------------------------------------------------------------------------------------

    def on_response(self, flight: InFlightFetch, reply: Reply) -> None:
        """The end of a request."""
        del self._in_flight[flight.node.id]
        self._expedited_offsets.clear()
        self._memory.cancel_reservation(flight.reserved)
        self._responded = True
        flight.broker.mark_responded(reply.now)
        if reply.error is not None:
            self._on_failure(flight, reply.error, reply.now)
            return
        response: FetchResponse = reply.message
        trouble = self._node_failures.pop(flight.node.id, None)
        if self._metrics is not None:
            self._metrics.responded(reply.now - flight.sent_at, response.throttle_time_ms, reply.now)
        if not flight.broker.session.accept(response, reply.version):
            self._on_session_error(flight, response, reply.now, trouble)
            return
        self._handle(flight, response, reply)
        if self._metrics is not None:
            self._metrics.fetched(flight.broker.session.session_partitions, self._subscription)

    def _on_expedited(self, flight: InFlightFetch, reply: Reply) -> None:
        """Take the end of an expedited fetch. One that failed is not repeated: the fetch in flight will end, and the
        next one asks for everything."""
        del self._expedited[flight.node.id]
        self._memory.cancel_reservation(flight.reserved)
        if reply.error is not None:
            return
        response: FetchResponse = reply.message
        if self._metrics is not None:
            self._metrics.responded(reply.now - flight.sent_at, response.throttle_time_ms, reply.now)
        if not flight.broker.session.accept(response, reply.version):
            return
        self._expedited_response = True
        self._handle(flight, response, reply)

    def _handle(self, flight: InFlightFetch, response: FetchResponse, reply: Reply) -> None:
        """Buffer the data of a response, and back off the partitions that failed."""
        self._back_off(self._response_handler.handle(flight, response, reply.version, reply.now), reply.now)

    def _on_session_error(
        self, flight: InFlightFetch, response: FetchResponse, now: float, before: NodeFailure | None
    ) -> None:
        """Nothing of the response may be used. A session starts again at once; if that is refused, too, the broker is
        left alone for a while, unless it throttles us, which already has this effect."""
        if response.error_code not in SESSION_ERRORS:
            self._metadata.request_update()
        if flight.full and not response.throttle_time_ms:
            reason = error_for(response.error_code, "the fetch") if response.error_code else "an answer without sense"
            self._back_off_node(flight, now, str(reason), before)

    def _on_failure(self, flight: InFlightFetch, error: KafkaError, now: float) -> None:
        flight.broker.session.failed()
        self._back_off_node(flight, now, str(error), self._node_failures.get(flight.node.id))
        for asked in flight.requested.values():
            asked.chain.state.clear_preferred_replica()
        if error.retriable:
            self._metadata.request_update()
        else:
            self._buffer.fail(error)

    def _back_off(self, failed: list[Failed], now: float) -> None:
        """Start the backoff of partitions that failed in one response; equal numbers of failures end it together."""
        if failed:
            delay_ms = self._backoff.shared_delay()
            for asked, reason in failed:
                self.planner.back_off(asked.chain, asked.leader, reason, now, delay_ms)

    def _back_off_node(self, flight: InFlightFetch, now: float, reason: str, before: NodeFailure | None) -> None:
        """Leave a broker alone for a while. `before`: the trouble it was in, if its fetch before this one failed."""
        since, failures = (now, 1) if before is None else (before.since, before.failures + 1)
        until = now + self._backoff.delay_ms(failures - 1)
        self._node_failures[flight.node.id] = NodeFailure(since, until, reason, failures)

    def __repr__(self) -> str:
        asked = sum(len(flight.requested) for flight in self._in_flight.values())
        return f"<FetchManager {len(self._in_flight)} fetches of {asked} partitions under way, {self._buffer!r}>"


def _ignore(_: Reply) -> None:
    """The end of a session needs no answer."""
