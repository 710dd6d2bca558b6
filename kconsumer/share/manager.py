"""ShareManager: ShareFetch and ShareAcknowledge, in one share session per broker (Java `ShareConsumeRequestManager`).

Decides which broker gets a request now, and which acknowledgements it carries. A broker has one request in flight at a
time, because the requests of a session are numbered. Records are acquired only while a poll wants some, so that they
are not locked while the caller is busy; if the caller is quick, once more (`fetch_ahead.py`). Acknowledgements go with
the next fetch, or alone if no fetch is due or a commit waits for them. `responses.py` decides what a response means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import FOREVER, ErrorSource, PollResult, Reply, UnsentRequest, timed_out
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import ShareConfig
from kconsumer.errors import KafkaError, error_for
from kconsumer.metadata.manager import MetadataManager
from kconsumer.schema.share_group import SHARE_ACKNOWLEDGE, SHARE_FETCH
from kconsumer.share.acknowledgements import (
    ALWAYS,
    LockTime,
    PartitionAcknowledgements,
    RequestKind,
    is_refusal,
)
from kconsumer.share.buffer import ShareBuffer
from kconsumer.share.fetch_ahead import POLLS_AHEAD
from kconsumer.share.member import ShareMember
from kconsumer.share.metrics import ShareMetrics
from kconsumer.share.requests import acknowledge_request, fetch_request
from kconsumer.share.responses import Failure, ShareResponseHandler
from kconsumer.share.session import CLOSING_EPOCH, ShareSession, TopicIdPartition
from kconsumer.state.cluster import Cluster
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import PartitionCondition, TopicPartition

log = get_logger(__name__)

FIRST_VERSION_WITH_RENEWALS = 2
Wanted = dict[TopicIdPartition, TopicPartition]


class BrokerState(ErrorSource):
    """What the manager knows about one broker."""

    def __init__(self, node_id: int, backoff: RetryTimer) -> None:
        self.node_id = node_id
        self.session = ShareSession()
        self.unsent: list[PartitionAcknowledgements] = []
        self.in_flight = False
        self.closing = False  # the session must end before another fetch
        self.backoff = backoff

    def may_piggyback(self, wanted: Wanted) -> bool:
        """Returns True if a fetch of the `wanted` partitions may carry the unsent acknowledgements.

        It may not if a commit waits for one of them, or if one of them may be refused or is of another partition.
        """
        for each in self.unsent:
            ordinary = each.kind is RequestKind.ORDINARY
            if each.commit is not None or not ordinary or each.batch.partition not in wanted:
                return False
        return True

    def take_unsent(self) -> list[PartitionAcknowledgements]:
        """Returns the first of the unsent acknowledgements, up to one of another kind. They count as sent now."""
        count = 0
        while count < len(self.unsent) and self.unsent[count].kind is self.unsent[0].kind:
            count += 1
        taken, self.unsent = self.unsent[:count], self.unsent[count:]
        return taken


class ShareManager:
    """Fetches and acknowledges records of a share group."""

    def __init__(
        self,
        config: ShareConfig,
        member: ShareMember,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: MetadataManager,
        buffer: ShareBuffer,
        metrics: ShareMetrics,
        rng: random.Random | None = None,
    ) -> None:
        self.on_acknowledged: Callable[[PartitionAcknowledgements, KafkaError | None], object] | None = None
        self._config = config
        self._member = member
        self._cluster = cluster
        self._assignment = subscription.assignment
        self._metadata = metadata
        self._buffer = buffer
        self._metrics = metrics
        self._delays = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._handler = ShareResponseHandler(cluster, metadata, buffer)
        self._brokers: dict[int, BrokerState] = {}
        self._leaders: dict[int, Wanted] = {}  # the partitions to fetch, by the node id of their leader
        self._leaders_version: tuple[int, int] | None = None  # of the assignment and the metadata that it is for
        self._wants_records = False
        self._limit: int | None = None  # acquire at most this number of records; None: as the configuration says
        self._max_wait_limit_ms = FOREVER  # a broker may wait for records no longer than this
        self._ahead = False  # one more fetch may be sent when the poll has its records
        self._last_fetched = -1  # the broker of the last fetch; record_limit fetches from one broker at a time
        self._empty_responses = 0  # the number of fetches since the last one that has acquired records
        self._rotation = 1  # the number of brokers that are fetched from in turn
        self.progress = Progress(f"share group {member.group_id!r}", "records or acknowledgements")
        self.renewals_refused = False  # the group does not allow renewals
        self.due = 0.0  # when `poll` may return requests although nothing has changed (ms)

    # --- what the engine calls -------------------------------------------------------------------------------------

    def configure(self, config: ShareConfig) -> None:
        """Use these options for the next requests."""
        self._config = config

    @property
    def needs_poll(self) -> bool:
        """True if `poll` may return requests."""
        return (
            self._wants_records
            or self._ahead
            or any(broker.unsent or broker.closing for broker in self._brokers.values())
        )

    @property
    def may_acknowledge(self) -> bool:
        """True if `poll` may return acknowledgements now. Otherwise the next response lets it return them."""
        return any(broker.unsent and not broker.in_flight for broker in self._brokers.values())

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long the acquired records are locked, as the last response says; None before the first one."""
        return self._handler.lock_timeout_ms

    @property
    def sessions_closed(self) -> bool:
        """True if each share session has ended, and nothing is in flight."""
        return not any(b.in_flight or b.session.open or b.unsent for b in self._brokers.values())

    @property
    def has_error(self) -> bool:
        """True if `take_error` returns an error."""
        return any(broker.has_error for broker in list(self._brokers.values()))

    def take_error(self) -> KafkaError | None:
        """Returns the error that the user's next call must raise, or None. Each error is returned once."""
        return next(filter(None, (broker.take_error() for broker in self._brokers.values())), None)

    def want_records(self, limit: int | None = None, max_wait_ms: float = FOREVER) -> None:
        """Acquire records, until a response contains some.

        With `limit`, acquires at most this number of records in place of about `max_poll_records`. A broker waits for
        records no longer than `max_wait_ms`.
        """
        self._wants_records = True
        self._limit, self._max_wait_limit_ms = limit, max_wait_ms

    def want_no_records(self) -> None:
        """Acquire no more records, until `want_records` is called."""
        self._wants_records = self._ahead = False

    def fetch_ahead(self) -> None:
        """Acquire records once more when the running poll has its own, for several polls.

        The brokers do not wait for records then.
        """
        self._ahead = True

    def acknowledge(self, acknowledgements: Iterable[PartitionAcknowledgements]) -> None:
        """Send these acknowledgements to the brokers that have delivered the records."""
        for each in acknowledgements:
            self._metrics.sent.record(len(each.types), self._assignment.changes.now)
            self._broker(each.node_id).unsent.append(each)

    def close(self) -> None:
        """Send the acknowledgements that were not sent yet, and end each share session.

        The brokers then release the records that were not acknowledged, and those of fetches that are in flight now.
        Fetching begins again with `want_records`, from each broker after its session has ended.
        """
        self._wants_records = self._ahead = False
        self.progress.done()
        for broker in self._brokers.values():
            broker.closing = True

    # --- driving ---------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Returns the requests to send now, at most one per broker."""
        wanted = self._wanted() if self._wants_records or self._ahead else {}
        for node_id in wanted:
            if node_id not in self._brokers:
                self._broker(node_id)
        requests: list[UnsentRequest] = []
        wait_ms = FOREVER
        for node_id, broker in self._brokers.items():
            if broker.unsent:
                self._expire(broker, now)
            if broker.in_flight:
                continue
            if broker.closing:
                if broker.session.open:
                    requests.append(self._last_request(broker))
                    continue
                broker.closing = False
                self._fail(broker, error_for(Errors.SHARE_SESSION_NOT_FOUND, "acknowledging records"), now)
            backoff_ms = broker.backoff.remaining_ms(now)
            if backoff_ms > 0:
                wait_ms = min(wait_ms, backoff_ms)
                continue
            requests += self._request(broker, wanted.get(node_id, {}), now)
        self.due = now + wait_ms
        return PollResult(requests, wait_ms)

    def broker_condition(self, node_id: int, now: float) -> tuple[PartitionCondition, str]:
        """Returns the state of the partitions of a broker, and the reason, for `status()`."""
        broker = self._brokers.get(node_id)
        if broker is not None and broker.in_flight:
            return PartitionCondition.IN_FLIGHT, "a fetch is in flight"
        if broker is not None and broker.backoff.remaining_ms(now) > 0:
            return PartitionCondition.BACKOFF, str(self.progress.last_error or "the last fetch failed")
        return PartitionCondition.READY, "the next poll fetches it"

    def _wanted(self) -> dict[int, Wanted]:
        """Returns the partitions to fetch now, by the node id of their leader."""
        version = self._assignment.changes.assignment_version, self._cluster.update_version
        if version != self._leaders_version:
            self._leaders_version = version if self._find_leaders() else None
        wanted = self._leaders
        if self._exact and wanted:
            self._rotation = len(wanted)
            chosen = self._one_broker(sorted(wanted))
            wanted = {} if chosen is None else {chosen: wanted[chosen]}
        return wanted

    def _find_leaders(self) -> bool:
        """Find the leaders of the assigned partitions. Requests metadata, and returns False, if some are unknown."""
        self._leaders, complete = {}, True
        for tp in self._assignment.assigned():
            leader, topic_id = self._cluster.leader(tp).leader, self._cluster.topic_id(tp.topic)
            if leader is None or topic_id is None:
                self._metadata.request_leaders()
                complete = False
            else:
                self._leaders.setdefault(leader.id, {})[TopicIdPartition(topic_id, tp.partition)] = tp
        return complete

    @property
    def _exact(self) -> bool:
        """True if a fetch must not acquire more records than its limit."""
        return self._limit is not None or self._config.share_acquire_mode == "record_limit"

    def _one_broker(self, nodes: list[int]) -> int | None:
        """Returns the broker that follows the last one, or None while a fetch is in flight.

        With record_limit, a poll returns at most `max_poll_records` records. Fetches from several brokers at the same
        time could return more.
        """
        if any(broker.in_flight for broker in self._brokers.values()):
            return None
        return next((node for node in nodes if node > self._last_fetched), nodes[0])

    def _max_wait_ms(self) -> int:
        """Returns how long a broker may wait for records.

        With record_limit, no broker waits until each of them has had no records. Otherwise the records of one broker
        would wait while the others have none. If no poll waits, no broker does: a commit would have to wait for it.
        """
        if not self._wants_records:
            return 0
        if self._exact and self._empty_responses < self._rotation > 1:
            return 0
        return int(min(self._config.fetch_max_wait_ms, self._max_wait_limit_ms))

    def _broker(self, node_id: int) -> BrokerState:
        found = self._brokers.get(node_id)
        if found is None:
            found = self._brokers[node_id] = BrokerState(node_id, RetryTimer(self._delays))
        return found

    def _expire(self, broker: BrokerState, now: float) -> None:
        """Fail the unsent acknowledgements whose deadline has passed."""
        late = [each for each in broker.unsent if now >= each.deadline]
        if late:
            broker.unsent = [each for each in broker.unsent if now < each.deadline]
            for each in late:
                text = f"acknowledging records of {each.topic_partition} timed out"
                self._complete(each, timed_out(text, [each.last_error]), now)

    def _request(self, broker: BrokerState, wanted: Wanted, now: float) -> list[UnsentRequest]:
        """Returns the next request to a broker: an acknowledgement, a fetch, or none."""
        session = broker.session
        if broker.unsent and not session.open:
            self._fail(broker, error_for(Errors.SHARE_SESSION_NOT_FOUND, "acknowledging records"), now)
        if broker.unsent and not (wanted and broker.may_piggyback(wanted)):
            return [self._acknowledge_request(broker, session.epoch)]
        if not wanted:
            return []
        self._last_fetched = broker.node_id
        max_wait_ms, polls = self._max_wait_ms(), 1 if self._wants_records else POLLS_AHEAD
        self._ahead = self._ahead and self._wants_records
        acknowledgements, broker.unsent = broker.unsent, []
        added, forgotten = session.changes(wanted)
        message = fetch_request(
            self._config,
            self._member,
            session.epoch,
            added,
            forgotten,
            acknowledgements,
            max_wait_ms,
            polls,
            self._limit,
        )
        broker.in_flight = True
        return [
            UnsentRequest(
                SHARE_FETCH,
                message,
                lambda reply: self._on_fetched(broker, wanted, acknowledgements, reply, divisible=polls > 1),
                node=str(broker.node_id),
            )
        ]

    def _last_request(self, broker: BrokerState) -> UnsentRequest:
        """Returns the request that ends a session, or one that must be sent before it."""
        kinds = {each.kind for each in broker.unsent}
        return self._acknowledge_request(broker, CLOSING_EPOCH if len(kinds) <= 1 else broker.session.epoch)

    def _acknowledge_request(self, broker: BrokerState, epoch: int) -> UnsentRequest:
        acknowledgements = broker.take_unsent()
        message = acknowledge_request(self._member, epoch, acknowledgements)
        broker.in_flight = True
        return UnsentRequest(
            SHARE_ACKNOWLEDGE,
            message,
            lambda reply: self._on_acknowledged(broker, acknowledgements, reply, closing=epoch == CLOSING_EPOCH),
            node=str(broker.node_id),
            min_version=FIRST_VERSION_WITH_RENEWALS if message.is_renew_ack else 0,
            needs="AcknowledgeType.RENEW needs Kafka 4.2",
        )

    # --- responses -------------------------------------------------------------------------------------------------

    def _on_fetched(
        self,
        broker: BrokerState,
        wanted: Wanted,
        acknowledgements: list[PartitionAcknowledgements],
        reply: Reply,
        *,
        divisible: bool,
    ) -> None:
        broker.in_flight = False
        failure = self._handler.failure_of(reply)
        if failure is not None:
            self._on_failed(broker, acknowledgements, failure, reply.now, retry=False)
            return
        self._metrics.responses.record(reply.now - reply.sent_at, reply.message.throttle_time_ms, reply.now)
        broker.session.advance(wanted)
        # Records of a session that is about to end are released with it. They may be of another subscription.
        kept = {} if broker.closing else wanted
        result = self._handler.handle_fetch(broker.node_id, kept, reply, divisible=divisible)
        self._empty_responses = 0 if result.acquired else self._empty_responses + 1
        if result.acquired:
            self._wants_records = False
        broker.keep_error(result.error)
        reply.concerns_others = result.has_errors
        if result.failure is not None:
            self._back_off(broker, result.failure, reply.now)
        else:
            self._succeeded(broker)
        for each in acknowledgements:
            batch = each.batch
            self._complete(each, result.acknowledged(batch.partition, batch.topic_partition), reply.now)

    def _on_acknowledged(
        self, broker: BrokerState, acknowledgements: list[PartitionAcknowledgements], reply: Reply, *, closing: bool
    ) -> None:
        broker.in_flight = False
        failure = self._handler.failure_of(reply)
        if closing:
            broker.keep_error(None)
            broker.session.reset()
            broker.closing = False
        if failure is not None:
            self._on_failed(broker, acknowledgements, failure, reply.now, retry=not closing)
            return
        if not closing:
            broker.session.advance()
        result = self._handler.handle_acknowledgement(broker.node_id, reply)
        retried = []
        for each in acknowledgements:
            error = result.acknowledged(each.partition, each.topic_partition)
            if result.retries(each.partition) and not closing and reply.now < each.deadline:
                each.attempt_failed(error)
                retried.append(each)
            else:
                self._complete(each, error, reply.now, self._handler.lock_time(reply))
        if retried:
            broker.unsent = retried + broker.unsent
            error = result.acknowledged(retried[0].partition, retried[0].topic_partition)
            self._back_off(broker, error or KafkaError("acknowledgements are sent again"), reply.now)
        else:
            self._succeeded(broker)

    def _back_off(self, broker: BrokerState, error: KafkaError, now: float) -> None:
        broker.backoff.failed(now)
        self.progress.failed(error, now)

    def _succeeded(self, broker: BrokerState) -> None:
        broker.backoff.reset()
        if self.progress.since is None:
            return
        if not any(each.backoff.attempts for node_id, each in self._brokers.items() if node_id in self._leaders):
            self.progress.done()

    def _on_failed(
        self,
        broker: BrokerState,
        acknowledgements: list[PartitionAcknowledgements],
        failure: Failure,
        now: float,
        *,
        retry: bool,
    ) -> None:
        """Handle a request that failed as a whole. If the session stands and `retry` is True, send it once more."""
        log.info("share session with broker %d: %s", broker.node_id, failure.error)
        self._back_off(broker, failure.error, now)
        if failure.ends_session:
            broker.session.reset()
            self._buffer.drop_from(broker.node_id, now)
        if failure.raises:
            broker.keep_error(failure.error)
        if failure.refreshes:
            self._metadata.request_update()
        if retry and not failure.ends_session and not failure.raises:
            for each in acknowledgements:
                each.attempt_failed(failure.error)
            broker.unsent = acknowledgements + broker.unsent
            return
        for each in acknowledgements:
            self._complete(each, failure.error, now)

    def _fail(self, broker: BrokerState, error: KafkaError, now: float) -> None:
        failed, broker.unsent = broker.unsent, []
        for each in failed:
            self._complete(each, error, now)

    def _complete(
        self, each: PartitionAcknowledgements, error: KafkaError | None, now: float, lock: LockTime = ALWAYS
    ) -> None:
        if error is not None:
            self._metrics.failed.record(len(each.types), now)
            if each.renews and is_refusal(error) and now < each.deadline:
                self.renewals_refused = True
        each.complete(error, lock)
        if self.on_acknowledged is not None and each.offsets and not each.internal:
            self.on_acknowledged(each, error)

    def __repr__(self) -> str:
        sessions = sum(broker.session.open for broker in self._brokers.values())
        return f"<ShareManager {sessions} sessions, wants records: {self._wants_records}>"
