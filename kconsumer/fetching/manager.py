"""Decides when a broker is sent a fetch request, and for how many bytes.

One fetch per broker is in flight at a time, and each requests every fetchable partition of the broker, starting where
the partition's chain (`buffer.py`) ends. So a fetch does not wait until the records before it are decoded or returned:
it is sent as soon as the previous response has arrived, until each partition is `MAX_AHEAD` fetches ahead of the caller
or `buffer_memory` is in use. A broker is sent nothing while any of its fetchable partitions has no room. A fetch
without that partition could wait at the broker for `fetch_max_wait_ms`, and the partition would wait behind it; and the
fetch session would have to forget the partition and add it again. (Java, since 4.0, sends a broker nothing while it has
any data of it buffered.)

After a seek, or when a partition is added, the fetch in flight requests something else, and a broker that has no data
for it keeps it for `fetch_max_wait_ms`. Brokers process the requests of a connection one after the other, so the new
position is fetched on another connection, outside the session and without waiting: an expedited fetch. The first of the
two responses is used; the other one no longer fits its chain and is dropped.

`brokers.py` decides which partitions are fetched from which broker, `session.py` which of them a request must name,
`response_handler.py` what a response means, and `collector.py` what may be returned to the caller.
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
EXPEDITE_AFTER_MS = 10.0  # a broker that has data responds within this time


class FetchManager:
    """Sends fetch requests and handles their responses. Not for concurrent use with the collector."""

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
        self._expedited_offsets: dict[TopicPartition, tuple[FetchChain, int]] = {}  # expedited since the last response
        self._expedited_response = False  # an expedited fetch ended since the last poll
        self._memory = buffer.memory
        self._waits_for_memory: dict[int, float] = {}  # since when (ms), by broker
        self._node_failures: dict[int, NodeFailure] = {}  # of brokers whose last fetch failed
        self._responded = False
        self._assignment_version = -1

    # --- called by the engine --------------------------------------------------------------------------

    @property
    def has_in_flight(self) -> bool:
        """Whether any fetch is in flight."""
        return bool(self._in_flight)

    @property
    def wants_poll(self) -> bool:
        """Whether `poll` may have something to do: a partition, metadata or the assignment changed; or a response
        arrived or room was made, and some broker has no fetch in flight. The end of a backoff is not reported here, so
        poll before waiting in any case."""
        planner = self.planner
        return (
            planner.changed
            or self._expedited_response
            or ((self._responded or planner.buffer_changed) and len(self._in_flight) < planner.active_brokers)
        )

    def poll(self, now: float) -> PollResult:
        """Returns the fetch requests to send now."""
        self._update_accounts(now)
        self.planner.update(now)
        requests: list[UnsentRequest] = []
        wake_at = self.planner.next_release
        waiting: list[BrokerFetchState] = []
        active_brokers = self.planner.active_brokers
        for broker in self.planner:
            if not broker.ready or broker.node.id in self._in_flight:
                wake_at = min(wake_at, self._expedite(broker, active_brokers, now, requests))
                continue
            failure = self._node_failures.get(broker.node.id)
            if failure is not None and failure.until > now:
                wake_at = min(wake_at, failure.until)
            elif not waiting and self._cost(broker, active_brokers) <= self._memory.room:
                requests.append(self._send(broker, active_brokers, now))
            else:
                # From here on the order is kept: otherwise a broker whose response needs much room would never be
                # sent a request, because others that need little take the room again and again.
                waiting.append(broker)
        if waiting and not self._buffer.has_data() and (request := self._make_room(waiting[0], active_brokers, now)):
            requests.append(request)
            del waiting[0]
        if waiting or self._waits_for_memory:
            since = self._waits_for_memory
            self._waits_for_memory = {broker.node.id: since.get(broker.node.id, now) for broker in waiting}
        return PollResult(requests, wake_at - now)

    def close(self) -> list[UnsentRequest]:
        """Returns the requests that end the fetch sessions. Nothing is fetched after this."""
        return [
            UnsentRequest(FETCH, message, _ignore, str(broker.node.id))
            for broker in self.planner
            if (message := broker.session.close()) is not None
        ]

    def context(self, tp: TopicPartition, state: PartitionState, now: float) -> FetchContext:
        """Returns everything that is known here about the fetching of an assigned partition."""
        planner, position, chain = self.planner, state.position, self._buffer.find(tp)
        if chain is not None and (position is None or not chain.holds(state, position)):
            chain = None  # of another position; the next poll drops it
        broker = planner.broker_for(tp)
        flight = None if broker is None else self._in_flight.get(broker.node.id)
        requested = None if flight is None else flight.requested.get(tp)
        if broker is not None and (requested is None or requested.chain is not chain):
            flight = self._expedited.get(broker.node.id)
            requested = None if flight is None else flight.requested.get(tp)
        return FetchContext(
            now,
            state,
            self._memory,
            self._cluster.leader(tp),
            chain=chain,
            leaderless_since=planner.leaderless_since(tp),
            backed_off=planner.backed_off(tp, state),
            broker=broker,
            in_flight=flight if requested is not None and requested.chain is chain else None,
            waits_for_memory=None if broker is None else self._waits_for_memory.get(broker.node.id),
            node_error=None if broker is None else self._node_failures.get(broker.node.id),
            max_wait_ms=self._config.fetch_max_wait_ms,
        )

    # --- requests --------------------------------------------------------------------------------------

    def _update_accounts(self, now: float) -> None:
        """Account for the memory and the fetches that were released since the last poll."""
        self._responded = self._expedited_response = False
        self._memory.reap_freed()
        if self._metrics is not None and self._assignment_version != self._subscription.assignment_version:
            self._assignment_version = self._subscription.assignment_version
            self._metrics.update_assignment(self._subscription)
        for fetch in self._buffer.drained():
            self._account(fetch, now)

    def _account(self, fetch: CompletedFetch, now: float) -> None:
        """Record the metrics of a fetched partition that was read or dropped."""
        tally = fetch.tally
        if self._metrics is None or tally is None:
            return
        tally.add(fetch.chain.topic_partition.topic, fetch.size if fetch.records else 0, fetch.records)
        if fetch.records:
            self._metrics.record_read(fetch.chain.topic_partition, fetch.chain.state, now)
        if tally.unread == 0:
            self._metrics.record_consumed(tally, now)

    def _max_bytes(self, broker: BrokerFetchState, active_brokers: int) -> int:
        """Returns how many bytes to request from a broker."""
        config = self._config
        of_partitions = len(broker.chains) * config.max_partition_fetch_bytes
        return min(config.fetch_max_bytes, of_partitions, self._memory.per_request_limit(active_brokers))

    def _cost(self, broker: BrokerFetchState, active_brokers: int) -> int:
        """Returns how many bytes of memory to reserve for its response."""
        return self._memory.reserve_for(self._max_bytes(broker, active_brokers))

    def _make_room(self, broker: BrokerFetchState, active_brokers: int, now: float) -> UnsentRequest | None:
        """Make room for a fetch while the buffer holds nothing that the caller could read.

        If there would be no room even after all responses in flight arrived empty, data of paused partitions is dropped
        as far as needed, to be fetched again later. With nothing in flight the broker is sent the request in any case:
        a batch was larger than all limits.
        """
        memory, cost = self._memory, self._cost(broker, active_brokers)
        while self._buffer.has_paused and cost > memory.room + memory.reserved:
            self._buffer.drop_paused()
        if self._in_flight and cost > memory.room:
            return None
        return self._send(broker, active_brokers, now)

    def _send(self, broker: BrokerFetchState, active_brokers: int, now: float) -> UnsentRequest:
        """Create the next request of the broker's fetch session."""
        planner = self.planner
        session = broker.session.next_request(broker.chains, broker.changed, planner.order, self._cluster.topic_id)
        planner.mark_sent(broker)
        max_bytes, reserved = self._max_bytes(broker, active_brokers), self._cost(broker, active_brokers)
        flight, message = build_fetch(self._config, broker, session, max_bytes, reserved, now)
        self._in_flight[broker.node.id] = flight
        self._memory.reserve(reserved)
        handler = partial(self.on_response, flight)
        return UnsentRequest(FETCH, message, handler, str(broker.node.id), max_version=session.max_version)

    def _expedite(
        self, broker: BrokerFetchState, active_brokers: int, now: float, requests: list[UnsentRequest]
    ) -> float:
        """Add an expedited fetch of the partitions that the fetch in flight does not contain. Returns when to try again
        (ms)."""
        flight = self._in_flight.get(broker.node.id)
        if flight is None or broker.node.id in self._expedited or self._buffer.has_data():
            return FOREVER
        chains = {tp: chain for tp, chain in broker.chains.items() if self._is_wanted_elsewhere(tp, chain, flight)}
        if not chains or broker.node.id in self._node_failures:
            return FOREVER
        if now < flight.sent_at + EXPEDITE_AFTER_MS:
            return flight.sent_at + EXPEDITE_AFTER_MS
        session = FetchSession(broker.node.id, self._config.max_partition_fetch_bytes)
        expedited = BrokerFetchState(broker.node, session, chains)
        max_bytes, reserved = self._max_bytes(expedited, active_brokers), self._cost(expedited, active_brokers)
        if reserved > self._memory.room:
            return FOREVER
        for tp, chain in chains.items():
            assert chain.next_offset is not None  # or it would have no room
            self._expedited_offsets[tp] = chain, chain.next_offset
        part = session.next_request(chains, (), self.planner.order, self._cluster.topic_id)
        part = part._replace(epoch=FINAL_EPOCH)  # neither starts a session nor ends one
        sent, message = build_fetch(self._config, expedited, part, max_bytes, reserved, now, max_wait_ms=0)
        self._expedited[broker.node.id] = sent
        self._memory.reserve(reserved)
        handler = partial(self._on_expedited, sent)
        requests.append(UnsentRequest(FETCH, message, handler, f"*{broker.node.id}", max_version=part.max_version))
        return FOREVER

    def _is_wanted_elsewhere(self, tp: TopicPartition, chain: FetchChain, flight: InFlightFetch) -> bool:
        """Returns True if neither the fetch in flight nor an earlier expedited one requests the partition from its
        present offset."""
        if chain.pending_fetches or not has_room(chain):
            return False
        requested = flight.requested.get(tp)
        if requested is not None and requested.chain is chain and requested.offset == chain.next_offset:
            return False
        before = self._expedited_offsets.get(tp)
        return before is None or before[0] is not chain or before[1] != chain.next_offset

    # --- responses -------------------------------------------------------------------------------------

    def on_response(self, flight: InFlightFetch, reply: Reply) -> None:
        """Handle the end of a request."""
        del self._in_flight[flight.node.id]
        self._expedited_offsets.clear()
        self._memory.cancel_reservation(flight.reserved)
        self._responded = True
        flight.broker.mark_responded(reply.now)
        if reply.error is not None:
            self._on_failure(flight, reply.error, reply.now)
            return
        response: FetchResponse = reply.message
        failure = self._node_failures.pop(flight.node.id, None)
        if self._metrics is not None:
            self._metrics.record_response(reply.now - flight.sent_at, response.throttle_time_ms, reply.now)
        if not flight.broker.session.accept(response, reply.version):
            self._on_session_error(flight, response, reply.now, failure)
            return
        self._handle(flight, response, reply)
        if self._metrics is not None:
            self._metrics.add_partitions(flight.broker.session.session_partitions, self._subscription)

    def _on_expedited(self, flight: InFlightFetch, reply: Reply) -> None:
        """Handle the end of an expedited fetch. A failed one is not repeated: the fetch in flight will end, and the
        next one requests every partition."""
        del self._expedited[flight.node.id]
        self._memory.cancel_reservation(flight.reserved)
        if reply.error is not None:
            return
        response: FetchResponse = reply.message
        if self._metrics is not None:
            self._metrics.record_response(reply.now - flight.sent_at, response.throttle_time_ms, reply.now)
        if not flight.broker.session.accept(response, reply.version):
            return
        self._expedited_response = True
        self._handle(flight, response, reply)

    def _handle(self, flight: InFlightFetch, response: FetchResponse, reply: Reply) -> None:
        """Buffer the data of a response and back off the partitions that failed."""
        self._back_off(self._response_handler.handle(flight, response, reply.version, reply.now), reply.now)

    def _on_session_error(
        self, flight: InFlightFetch, response: FetchResponse, now: float, before: NodeFailure | None
    ) -> None:
        """Handle a response whose data must not be used. The session is restarted at once; if that is refused, too, the
        broker is backed off, unless it throttles this client, which already has this effect."""
        if response.error_code not in SESSION_ERRORS:
            self._metadata.request_update()
        if flight.full and not response.throttle_time_ms:
            reason = (
                error_for(response.error_code, "the fetch")
                if response.error_code
                else "the response does not match the request"
            )
            self._back_off_node(flight, now, str(reason), before)

    def _on_failure(self, flight: InFlightFetch, error: KafkaError, now: float) -> None:
        """Handle a request that ended without a response."""
        flight.broker.session.on_failure()
        self._back_off_node(flight, now, str(error), self._node_failures.get(flight.node.id))
        for requested in flight.requested.values():
            requested.chain.state.clear_preferred_replica()
        if error.retriable:
            self._metadata.request_update()
        else:
            self._buffer.fail(error)

    def _back_off(self, failed: list[Failed], now: float) -> None:
        """Start the backoff of partitions that failed in one response; equal numbers of failures end it together."""
        if failed:
            delay_ms = self._backoff.shared_delay()
            for requested, reason in failed:
                self.planner.back_off(requested.chain, requested.leader, reason, now, delay_ms)

    def _back_off_node(self, flight: InFlightFetch, now: float, reason: str, before: NodeFailure | None) -> None:
        """Back a broker off. `before`: its failure so far, if the fetch before this one failed."""
        since, failures = (now, 1) if before is None else (before.since, before.failures + 1)
        until = now + self._backoff.delay_ms(failures - 1)
        self._node_failures[flight.node.id] = NodeFailure(since, until, reason, failures)

    def __repr__(self) -> str:
        requested = sum(len(flight.requested) for flight in self._in_flight.values())
        return f"<FetchManager {len(self._in_flight)} fetches of {requested} partitions in flight, {self._buffer!r}>"


def _ignore(_: Reply) -> None:
    """Ignore the response to the end of a session."""
