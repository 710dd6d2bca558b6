"""Decides when a broker is sent a fetch request, and for how many bytes.

One fetch per broker is in flight at a time. It requests every fetchable partition of the broker, each from the offset
where the partition's buffered data (its chain, see `buffer.py`) ends. So a fetch need not wait until earlier records
are decoded or returned: it is sent as soon as the previous response has arrived, until a partition has `MAX_AHEAD`
buffered fetches or `buffer_memory` is in use.

A broker is sent no fetch while one of its fetchable partitions has no room in the buffer. A fetch without that
partition could wait at the broker for `fetch_max_wait_ms`, and the partition could be requested only after its
response. Besides, the fetch session would have to remove the partition and add it again. (Since 4.0, Java sends a
broker nothing while any of its data is buffered.)

After a seek, or when a partition is added, the fetch in flight does not contain the new position. If the broker has no
data for this fetch, it responds only after `fetch_max_wait_ms`. A second request on the same connection would have to
wait for that response. So the new position is fetched on another connection, outside the session and with a maximum
wait of 0. This is an expedited fetch. If the fetch in flight returns the same offsets, too, the first of the two
responses is used, and the other one is dropped.

`brokers.py` decides which partitions are fetched from which broker, `session.py` which of them a request must name,
`response_handler.py` what a response means, and `collector.py` what may be returned to the caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

from kconsumer._common.backoff import ExponentialBackoff
from kconsumer._common.error_codes import Errors
from kconsumer._core.cycle import BrokerFetchState, FetchCycle, FetchState, InFlightFetch
from kconsumer._core.lock import EngineLock
from kconsumer._core.metrics import FetchEvents
from kconsumer._internal.managers import FOREVER, PollResult, Reply, UnsentRequest
from kconsumer.config.option_groups import FetchConfig, FetchLimits
from kconsumer.errors import KafkaError, error_for
from kconsumer.fetching.brokers import FetchPlanner, MetadataRequester, has_room
from kconsumer.fetching.buffer import FetchBuffer, FetchChain
from kconsumer.fetching.metrics import FetchMetrics
from kconsumer.fetching.partition_status import SLOW_RESPONSE_MS, FetchContext, NodeFailure
from kconsumer.fetching.read_replicas import Failed
from kconsumer.fetching.response_handler import FetchResponseHandler
from kconsumer.fetching.session import (
    FINAL_EPOCH,
    FetchSession,
    SessionRequest,
)
from kconsumer.metrics.registry import Metrics
from kconsumer.schema.fetch import FETCH, FetchRequest, FetchResponse
from kconsumer.state.cluster import Cluster
from kconsumer.state.partition import PartitionState
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import TopicPartition


def build_fetch(
    config: FetchConfig,
    limits: FetchLimits,
    broker: BrokerFetchState,
    session: SessionRequest,
    max_bytes: int,
    reserved: int,
    now: float,
    *,
    max_wait_ms: int | None = None,
    active_brokers: int = 0,
    cycle: FetchCycle | None = None,
) -> tuple[InFlightFetch, FetchRequest]:
    """Returns a Fetch request with the partitions of `session`, and the InFlightFetch that describes it.

    `max_bytes` limits the size of the response, and `reserved` is the number of bytes to reserve for it. `max_wait_ms`
    is used in place of the option `fetch_max_wait_ms`, unless it is None. `cycle` handles ordinary responses.
    """
    full = session.epoch <= 0
    requested, names, leader_only = broker.session.requested, broker.session.topic_names, bool(broker.leader_only)
    flight = InFlightFetch(
        broker, max_bytes, reserved, now, full, requested, names, leader_only, active_brokers, cycle, limits
    )
    message = FetchRequest(
        max_wait_ms=limits.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
        min_bytes=limits.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(config.read_committed),
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=session.topics,
        forgotten_topics_data=session.forgotten,
        rack_id="" if leader_only else config.client_rack,
    )
    return flight, message


# Error codes of a whole response that concern only the fetch session. Metadata need not be requested after these.
SESSION_ERRORS = (Errors.FETCH_SESSION_ID_NOT_FOUND, Errors.INVALID_FETCH_SESSION_EPOCH, Errors.NONE)
EXPEDITE_AFTER_MS = 10.0  # a fetch in flight for longer than this (ms) probably found no data


class FetchManager(FetchState):
    """Sends fetch requests and handles their responses. It must not run at the same time as the collector.

    `expedited_offsets` has the chains and offsets of expedited fetches that were sent since the last response to
    another fetch. From `continue_until` (ms) on, the cycle sends no fetch, because the user no longer polls.
    """

    buffer: FetchBuffer
    planner: FetchPlanner
    in_flight: dict[int, InFlightFetch]
    limits: FetchLimits
    _expedited: dict[int, InFlightFetch]

    def __init__(
        self,
        config: FetchConfig,
        limits: FetchLimits,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: MetadataRequester,
        buffer: FetchBuffer,
        wall_ms: Callable[[], int],
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        assignment = subscription.assignment
        super().__init__(assignment, buffer, FetchPlanner(cluster, assignment, metadata, buffer))
        self.limits = limits
        self._config = config
        self._cluster = cluster
        self._metadata = metadata
        self._metrics = (
            None
            if metrics is None
            else FetchMetrics(metrics, subscription, wall_ms, read_committed=config.read_committed)
        )
        if self._metrics is not None and config.record_filter is not None:
            self._metrics.publish_filtered()
        self._response_handler = FetchResponseHandler(config, cluster, assignment, metadata, buffer)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._memory = buffer.memory
        self._assignment_version = -1
        self._cycle: FetchCycle | None = None  # see `use_cycle`

    # --- called by the engine --------------------------------------------------------------------------

    def configure(self, limits: FetchLimits) -> None:
        """Use these limits for the next requests."""
        self.limits = limits

    def poll(self, now: float) -> PollResult:
        """Returns the fetch requests to send now."""
        self._update_accounts(now)
        self.planner.update(now)
        requests: list[UnsentRequest] = []
        wake_at = self.planner.next_change
        waiting: list[BrokerFetchState] = []
        active_brokers = self.planner.active_brokers
        for broker in self.planner:
            if not broker.ready or broker.node.id in self.in_flight:
                if broker.changed:
                    wake_at = min(wake_at, self._expedite(broker, active_brokers, now, requests))
                continue
            failure = self.node_failures.get(broker.node.id)
            if failure is not None and failure.until > now:
                wake_at = min(wake_at, failure.until)
            elif not waiting and self._cost(broker, active_brokers) <= self._memory.room:
                requests.append(self._send(broker, active_brokers, now))
            else:
                # The brokers after this one must wait, too. Otherwise brokers whose responses need little room could
                # take it again and again, and a broker whose response needs much would never be sent a request.
                waiting.append(broker)
        if waiting and not self.buffer.has_data() and (request := self._make_room(waiting[0], active_brokers, now)):
            requests.append(request)
            del waiting[0]
        if waiting or self._waits_for_memory:
            since = self._waits_for_memory
            self._waits_for_memory = {broker.node.id: since.get(broker.node.id, now) for broker in waiting}
        return PollResult(requests, wake_at - now)

    @property
    def events(self) -> FetchEvents | None:
        """What records the metrics of responses in compiled code; None without metrics."""
        return None if self._metrics is None else self._metrics.events

    def close(self) -> list[UnsentRequest]:
        """End all fetch sessions. Returns the requests that end them at the brokers. `poll` must not be called
        again."""
        return [
            UnsentRequest(FETCH, message, lambda _: None, str(broker.node.id))
            for broker in self.planner
            if (message := broker.session.close()) is not None
        ]

    def context(self, tp: TopicPartition, state: PartitionState, now: float) -> FetchContext:
        """Returns the context for `partition_status.explain` of an assigned partition."""
        planner, position, chain = self.planner, state.position, self.buffer.find(tp)
        if chain is not None and (position is None or not chain.holds(state, position)):
            chain = None  # it belongs to another position; the next poll drops it
        broker = planner.broker_for(tp)
        flight = None if broker is None else self.in_flight.get(broker.node.id)
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
            node_error=None if broker is None else self.node_failures.get(broker.node.id),
            max_wait_ms=(self if flight is None else flight).limits.fetch_max_wait_ms,
            read_committed=self._config.read_committed,
        )

    def unusual(
        self, is_healthy: Callable[[str, float], bool], now: float
    ) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Yields the partitions that may be without progress, for `PartitionMonitor`.

        Leaves out those that cannot be fetched, and those in a fetch about which nothing is unusual: of a consumer with
        thousands of partitions, these are nearly all. `is_healthy(node_id, now)` checks the connection to a broker.
        """
        slow = now - SLOW_RESPONSE_MS
        healthy = {
            node_id
            for node_id, flight in self.in_flight.items()
            if flight.sent_at + flight.limits.fetch_max_wait_ms > slow
            and node_id not in self.node_failures
            and is_healthy(str(node_id), now)
        }
        for tp, state in self.assignment.states().items():
            broker = self.planner.broker_for(tp)
            if state.out_of_range > 1 or (self._config.read_committed and state.has_open_transaction):
                yield tp, state
            elif broker is None:
                if state.fetchable:
                    yield tp, state
            elif broker.node.id not in healthy or broker.chains[tp].failures:
                yield tp, state

    # --- requests --------------------------------------------------------------------------------------

    def _update_accounts(self, now: float) -> None:
        """Subtract memory that was freed, and record the metrics of fetches that were read or dropped."""
        self._responded = self._expedited_response = False
        self._memory.reap_freed()
        if self._metrics is not None and self._assignment_version != self.assignment.changes.assignment_version:
            self._assignment_version = self.assignment.changes.assignment_version
            self._metrics.update_assignment()
        self.buffer.account(self.events, now)

    def use_cycle(self, lock: EngineLock, on_records: Callable[[], object], on_ended: Callable[[], object]) -> None:
        """Let ordinary responses be handled where they are received. `lock` guards the state of this manager.

        `on_records` is called after records were buffered, and `on_ended` when `poll` must create the next request.
        """
        if self._cycle is None:
            config = self._config
            self._cycle = FetchCycle(
                self,
                lock,
                self.events,
                check_crcs=config.check_crcs,
                read_committed=config.read_committed,
                batch_limit=config.decompressed_batch_max_bytes or 0,
            )
        self._cycle.on_records, self._cycle.on_ended = on_records, on_ended

    # --- called by the cycle ---------------------------------------------------------------------------

    def topic_id(self, topic: str) -> bytes | None:
        return self._cluster.topic_id(topic)

    def end_flight(self, flight: InFlightFetch) -> None:
        """End a fetch without a next request, which `poll` creates."""
        del self.in_flight[flight.node.id]
        self._memory.cancel_reservation(flight.reserved)
        self._responded = True

    def add_metrics(self, tp: TopicPartition) -> None:
        """Publish the lag and lead of a partition."""
        if self._metrics is not None:
            self._metrics.add_partitions([tp])

    def lag_seconds(self, now: float) -> dict[TopicPartition, float]:
        """Returns the metric `records-lag-seconds` of the partitions for which it is known."""
        return {} if self._metrics is None else self._metrics.ages(now)

    def _max_bytes(self, broker: BrokerFetchState, active_brokers: int) -> int:
        """Returns the maximum number of bytes to request from a broker."""
        limits = self.limits
        of_partitions = len(broker.chains) * limits.max_partition_fetch_bytes
        return min(limits.fetch_max_bytes, of_partitions, self._memory.per_request_limit(active_brokers))

    def _cost(self, broker: BrokerFetchState, active_brokers: int) -> int:
        """Returns the number of bytes to reserve in memory for the response to a fetch from a broker."""
        return self._memory.reserve_for(self._max_bytes(broker, active_brokers))

    def _make_room(self, broker: BrokerFetchState, active_brokers: int, now: float) -> UnsentRequest | None:
        """Returns a fetch request to `broker`, or None if it must wait for the fetches in flight.

        Called while the buffer contains nothing that the caller could read. If there would be no room for the response
        even when all responses in flight are empty, drops data of paused partitions. This data is fetched again later.
        If nothing is in flight, returns the request even if there is no room. The memory is then used by a batch that
        is larger than all limits, and waiting would not free it.
        """
        memory, cost = self._memory, self._cost(broker, active_brokers)
        while self.buffer.has_paused and cost > memory.room + memory.reserved:
            self.buffer.drop_paused()
        if self.in_flight and cost > memory.room:
            return None
        return self._send(broker, active_brokers, now)

    def _send(self, broker: BrokerFetchState, active_brokers: int, now: float) -> UnsentRequest:
        """Returns the next request of the broker's fetch session. Reserves memory for its response."""
        planner = self.planner
        broker.session.limit_partitions(self.limits.max_partition_fetch_bytes)
        session = broker.session.next_request(broker.chains, broker.changed, planner.order, self._cluster.topic_id)
        planner.mark_sent(broker)
        max_bytes, reserved = self._max_bytes(broker, active_brokers), self._cost(broker, active_brokers)
        flight, message = build_fetch(
            self._config,
            self.limits,
            broker,
            session,
            max_bytes,
            reserved,
            now,
            active_brokers=active_brokers,
            cycle=self._cycle,
        )
        self.in_flight[broker.node.id] = flight
        self._memory.reserve(reserved)
        handler = partial(self.on_response, flight)
        return UnsentRequest(
            FETCH, message, handler, str(broker.node.id), max_version=session.max_version, exchange=flight
        )

    def _expedite(
        self, broker: BrokerFetchState, active_brokers: int, now: float, requests: list[UnsentRequest]
    ) -> float:
        """Append an expedited fetch for the partitions that the fetch in flight does not contain.

        Returns the time (ms) at which to call this again, or FOREVER.
        """
        flight = self.in_flight.get(broker.node.id)
        if flight is None or broker.node.id in self._expedited or self.buffer.has_data():
            return FOREVER
        # Only partitions that changed after the fetch in flight was created can differ from it. To check all partitions
        # of all brokers in each poll would take most of the time of a consumer with many of both.
        changed = ((tp, broker.chains.get(tp)) for tp in broker.changed)
        chains = {tp: chain for tp, chain in changed if chain and self._is_wanted_elsewhere(tp, chain, flight)}
        if not chains or broker.node.id in self.node_failures:
            return FOREVER
        if now < flight.sent_at + EXPEDITE_AFTER_MS:
            return flight.sent_at + EXPEDITE_AFTER_MS
        session = FetchSession(broker.node.id, self.limits.max_partition_fetch_bytes)
        expedited = BrokerFetchState(broker.node, session, chains)
        max_bytes, reserved = self._max_bytes(expedited, active_brokers), self._cost(expedited, active_brokers)
        if reserved > self._memory.room:
            return FOREVER
        for tp, chain in chains.items():
            assert chain.next_offset is not None  # else `has_room` would be False
            self.expedited_offsets[tp] = chain, chain.next_offset
        part = session.next_request(chains, (), self.planner.order, self._cluster.topic_id)
        part = part._replace(epoch=FINAL_EPOCH)  # neither starts a session nor ends one
        sent, message = build_fetch(self._config, self.limits, expedited, part, max_bytes, reserved, now, max_wait_ms=0)
        self._expedited[broker.node.id] = sent
        self._memory.reserve(reserved)
        handler = partial(self._on_expedited, sent)
        requests.append(UnsentRequest(FETCH, message, handler, f"*{broker.node.id}", max_version=part.max_version))
        return FOREVER

    def _is_wanted_elsewhere(self, tp: TopicPartition, chain: FetchChain, flight: InFlightFetch) -> bool:
        """Returns True if the partition needs an expedited fetch.

        This is the case if nothing of it is buffered, and neither the fetch in flight nor an earlier expedited fetch
        requests the current offset.
        """
        if chain.pending_fetches or not has_room(chain):
            return False
        requested = flight.requested.get(tp)
        if requested is not None and requested.chain is chain and requested.offset == chain.next_offset:
            return False
        before = self.expedited_offsets.get(tp)
        return before is None or before[0] is not chain or before[1] != chain.next_offset

    # --- responses -------------------------------------------------------------------------------------

    def on_response(self, flight: InFlightFetch, reply: Reply) -> None:
        """Handle the end of a fetch: a response, or an error without a response."""
        del self.in_flight[flight.node.id]
        self.expedited_offsets.clear()
        self._memory.cancel_reservation(flight.reserved)
        self._responded = True
        flight.broker.mark_responded(reply.now)
        if reply.error is not None:
            self._on_failure(flight, reply.error, reply.now)
            return
        response: FetchResponse = reply.message
        failure = self.node_failures.pop(flight.node.id, None)
        if failure is not None and not self.node_failures:
            self.buffer.fail(None)  # its cause is over
        if self._metrics is not None:
            self._metrics.record_response(reply.now - flight.sent_at, response.throttle_time_ms, reply.now)
        if not flight.broker.session.accept(response, reply.version):
            self._on_session_error(flight, response, reply.now, failure)
            return
        self._handle(flight, response, reply)
        if self._metrics is not None:
            self._metrics.add_partitions(flight.broker.session.session_partitions)

    def _on_expedited(self, flight: InFlightFetch, reply: Reply) -> None:
        """Handle the end of an expedited fetch: a response, or an error without a response.

        A failed fetch is not repeated, because the next fetch of the session requests every partition.
        """
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
        """Handle a response whose data must not be used.

        The next request is a full one, which restarts the session. If this response was to a full request already, the
        broker is backed off before the next request. This is not necessary while the broker throttles this client,
        because that delays the next request, too.
        """
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
        """Handle a fetch without a response: restart the session and back off the broker.

        If the error is not retriable, the next collect raises it.
        """
        flight.broker.session.on_failure()
        self._back_off_node(flight, now, str(error), self.node_failures.get(flight.node.id))
        failed = (Failed(requested, str(error)) for requested in flight.requested.values())
        self._response_handler.read_replicas.give_up(flight.node, failed, now, lost=True)
        if error.retriable:
            self._metadata.request_update()
        else:
            self.buffer.fail(error)

    def _back_off(self, failed: list[Failed], now: float) -> None:
        """Back off the partitions that failed in one response.

        Partitions with the same number of failures get the same delay.
        """
        if failed:
            delay_ms = self._backoff.shared_delay()
            for requested, reason in failed:
                self.planner.back_off(requested.chain, requested.leader, reason, now, delay_ms)

    def _back_off_node(self, flight: InFlightFetch, now: float, reason: str, before: NodeFailure | None) -> None:
        """Back off a broker. `before` describes its earlier failures in a row, or is None if there were none."""
        since, failures = (now, 1) if before is None else (before.since, before.failures + 1)
        until = now + self._backoff.delay_ms(failures - 1)
        self.node_failures[flight.node.id] = NodeFailure(since, until, reason, failures)

    def __repr__(self) -> str:
        requested = sum(len(flight.requested) for flight in self.in_flight.values())
        return f"<FetchManager {len(self.in_flight)} fetches of {requested} partitions in flight, {self.buffer!r}>"
