"""Decides when metadata is requested, for which topics, and how a response is handled.

In detail: when an update is due, how long to back off, and when to start again from the bootstrap servers.
`topic_errors.py` decides which errors of topics are raised, and `state/cluster.py` whether a leader in a response is
newer than the known one.

The wanted topics are those of the subscription, those added by `add_topics`, and those added by `add_topic_ids`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._common.polled_timer import PolledTimer
from kconsumer._common.repeated_failures import RepeatedFailures
from kconsumer._internal.managers import FOREVER, ErrorSource, PollResult, Promise, Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import MetadataConfig
from kconsumer.errors import BrokerConnectionError, BrokerError, KafkaError, error_for
from kconsumer.metadata.topic_errors import TopicErrors
from kconsumer.metadata.topic_requests import (
    TopicMetadataRequests,
    TopicTable,
    metadata_request,
)
from kconsumer.schema.metadata import METADATA, MetadataResponse
from kconsumer.state.cluster import Cluster, MetadataUpdate
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import TopicPartition

FIRST_VERSION_WITH_IDS = 12
TRIGGER_POLL_INTERVAL_MS = 5_000.0  # of the timer after which the client returns to the bootstrap servers
METADATA_HINTS: dict[int, str] = {
    Errors.LEADER_NOT_AVAILABLE: "the brokers with replicas of the partition may be down",
    Errors.INVALID_REPLICATION_FACTOR: (
        "the broker cannot create the topic: default.replication.factor is larger than the number of brokers"
    ),
    Errors.UNKNOWN_TOPIC_ID: "a topic was deleted, or the permission to describe it is missing",
}

_log = get_logger(__name__)


class _InFlightUpdate(NamedTuple):
    """The Metadata request in flight."""

    full: bool  # whether the request is for all wanted topics
    interest: int  # the value of `MetadataManager._interest` when the request was created
    serial: int  # the number of the request
    by_id: bool  # whether the response contains the topics added by id
    all_topics: bool  # whether it contains all topics


class MetadataManager(ErrorSource):
    """Keeps the `Cluster` up to date (Java `ConsumerMetadata` and `NetworkClient.DefaultMetadataUpdater`).

    When `needs_rebootstrap` is True, the engine returns to the bootstrap servers and calls `rebootstrapped()`. The
    engine calls `on_no_node(now)` if it finds no broker to send a request to.
    """

    def __init__(
        self,
        config: MetadataConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        rng: random.Random | None = None,
    ) -> None:
        self.on_update: list[Callable[[MetadataUpdate], None]] = []  # called after each response
        self.needs_rebootstrap = False
        self.last_error: KafkaError | None = None
        self._config = config
        self._distinguishes_new = config.auto_offset_reset_new_partitions is not None
        self._cluster = cluster
        self._subscription = subscription
        self._assignment = subscription.assignment
        self.topic_errors = TopicErrors(cluster, subscription.assignment)
        self._lookups = TopicMetadataRequests(config, cluster, rng)
        self._added_topics: Counter[str] = Counter()  # by topic, the number of `add_topics` calls that are not undone
        self._ids: frozenset[bytes] = frozenset()  # added by `add_topic_ids`
        self._request_ids_next = False  # the last request contained names; some ids still have no name
        self._id_topics: frozenset[str] = frozenset()  # the known names of the added ids
        # What must be requested, and since when
        self._needs_full = True  # all wanted topics must be requested
        self._full_serial = 0  # the first request whose response satisfies `_needs_full`
        self._needs_partial = False  # wanted topics that are not known must be requested
        self._interest = 0  # incremented when topics are added; the response to an older request may lack them
        self._topics_version = subscription.topics_version
        self._pattern = subscription.pattern
        self._refreshes: list[tuple[int, Promise[None]]] = []
        self._last_success = -FOREVER
        # Runs while a request is due that has no good response yet.
        self._trigger = PolledTimer(config.metadata_recovery_rebootstrap_trigger_ms, TRIGGER_POLL_INTERVAL_MS)
        self._recheck_at = FOREVER  # when topics with errors are requested again (ms)
        # What delays requests
        self._in_flight: _InFlightUpdate | None = None
        self._serial = 0
        self._quiet_until = 0.0
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._failures = RetryTimer(backoff)
        self._unchanged_responses = RetryTimer(backoff)
        # Errors
        self._rebootstraps = RepeatedFailures()  # limits the warnings about them
        self.progress = Progress("metadata", "topics and their leaders", METADATA_HINTS)
        self.lookups = self._lookups.progress  # those of calls such as `list_topics`

    # --- what must be requested --------------------------------------------------------------------------

    def request_update(self, *, new_interest: bool = False) -> None:
        """Request metadata of all wanted topics again, after the backoff.

        Set `new_interest` if earlier requests did not ask for what is needed now. Then the response to a request in
        flight does not suffice, and the backoff that grows with responses without changes is reset.
        """
        self._needs_full = True
        if new_interest:
            self._full_serial = self._serial + 1  # the response to a request in flight would be too old
            self._unchanged_responses.reset()

    def request_leaders(self) -> None:
        """Request metadata because partitions have no leader.

        Does nothing while a request for new topics is due. The caller repeats the call in later polls.
        """
        if not self._needs_partial:
            self.request_update()

    def request_new_topics(self) -> None:
        """Request the wanted topics that are not known yet, without a backoff.

        This call is not needed after a change of the subscription, because `poll` detects such a change.
        """
        self._needs_partial = True
        self._interest += 1
        self._unchanged_responses.reset()
        self._failures.until = self._quiet_until = 0.0

    def refresh(self) -> Promise[None]:
        """Request metadata of all wanted topics. Returns a promise.

        The promise is done when a response has arrived whose request was sent after this call.
        """
        promise: Promise[None] = Promise()
        self.request_update(new_interest=True)
        self._refreshes.append((self._full_serial, promise))
        return promise

    def add_topics(self, topics: Iterable[str]) -> None:
        """Request and keep metadata of these topics, even if they are not subscribed.

        Each call must be undone by one call of `remove_topics`.
        """
        names = set(topics)
        self._added_topics.update(names)
        if not self._cluster.contains_topics(names):
            self.request_new_topics()

    def remove_topics(self, topics: Iterable[str]) -> None:
        """Undo one call of `add_topics`."""
        self._added_topics.subtract(set(topics))
        self._added_topics += Counter()  # removes topics whose count is 0

    def add_topic_ids(self, ids: frozenset[bytes]) -> None:
        """Request and keep metadata of the topics with these ids. The set `ids` replaces that of the previous call."""
        self._ids = ids
        if any(self._cluster.topic_name(topic_id) is None for topic_id in ids):
            self._needs_partial = True

    def fetch(
        self, topics: Collection[str] | None = None, deadline: float = FOREVER, *, fresh: bool = False
    ) -> Promise[TopicTable]:
        """Look up the partitions of these topics, or of all topics if `topics` is None. Returns a promise.

        Unknown topics are left out of the result. If the cache contains all these topics and `fresh` is False, the
        cache is used. In all other cases a request is sent, whose response does not change the cache. The promise fails
        with TimeoutError at `deadline` (ms), or with the error of a topic, such as InvalidTopicError.
        """
        return self._lookups.fetch(topics, deadline, fresh=fresh)

    def update_last_seen_epoch(self, tp: TopicPartition, epoch: int | None) -> None:
        """Request metadata if `epoch`, a leader epoch from a committed offset or a response, is newer than the known
        one."""
        if epoch is not None and self._cluster.update_last_seen_epoch(tp, epoch):
            self.request_update()

    # --- polling -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Returns the requests to send at `now` (ms)."""
        self._check_subscription()
        requests: list[UnsentRequest] = []
        wait = self._poll_update(now, requests)
        return PollResult(requests, min(wait, self._lookups.poll(now, requests), self._check_rebootstrap_trigger(now)))

    def _check_subscription(self) -> None:
        subscription = self._subscription
        if subscription.topics_version == self._topics_version:
            return
        self._topics_version = subscription.topics_version
        if subscription.pattern is not self._pattern:
            self._pattern = subscription.pattern
            if self._pattern is not None:
                self.request_update(new_interest=True)
        if self._distinguishes_new:
            subscription.record_partitions(self._cluster)
        if self._must_list_topics():
            self.request_update(new_interest=True)
        if not self._cluster.contains_topics(subscription.metadata_topics()):
            self.request_new_topics()

    def _poll_update(self, now: float, requests: list[UnsentRequest]) -> float:
        if self._in_flight is not None:
            return FOREVER
        if self._needs_partial and not (self._missing() or self._missing_ids()):
            self._needs_partial = False
        expires_in_ms: float = min(self._last_success + self._config.metadata_max_age_ms, self._recheck_at) - now
        if not (self._needs_full or self._needs_partial):
            if expires_in_ms > 0:
                return expires_in_ms
            self._unchanged_responses.reset()
        if not self._trigger.running:
            self._trigger.start(now)
        wait = max(self._failures.until, self._unchanged_responses.until, self._quiet_until) - now
        if wait > 0:
            return wait
        if self._needs_full or self._needs_partial:  # else metadata are only old, and nothing waits
            self.progress.requested(now)
        # One by id comes between two full ones: a short `metadata_max_age_ms` would leave no time for it.
        by_id = self._request_ids_next and bool(self._missing_ids())
        requests.append(self._request(full=not by_id and (self._needs_full or expires_in_ms <= 0)))
        return FOREVER

    def _request(self, full: bool) -> UnsentRequest:
        topics: list[str] | None = None
        ids: list[bytes] = []
        if self._subscription.has_pattern or self._must_list_topics():
            full = True
        else:
            # A broker ignores the names in a request that has ids. So names are requested first, and ids in the next
            # request.
            ids = self._missing_ids()
            names = self._wanted_topics() if full else self._missing()
            topics = [] if ids and self._request_ids_next and not full else sorted(names)
            ids = [] if topics else ids
        self._serial += 1
        named = topics is None or bool(ids)
        sent = self._in_flight = _InFlightUpdate(full, self._interest, self._serial, named, topics is None)
        # A request for a pattern never creates topics, because it names none.
        create = topics is not None and self._config.allow_auto_create_topics
        message = metadata_request(topics, create, ids)
        min_version = FIRST_VERSION_WITH_IDS if ids else 4
        return UnsentRequest(METADATA, message, lambda reply: self._on_reply(sent, reply), min_version=min_version)

    def _must_list_topics(self) -> bool:
        """Returns True if all topics must be known, to distinguish those that are created later."""
        return self._distinguishes_new and self._subscription.awaits_all_topics

    def _wanted_topics(self) -> frozenset[str]:
        return self._subscription.metadata_topics() | self._added_topics.keys() | self._id_topics

    def _missing_ids(self) -> list[bytes]:
        return sorted(topic_id for topic_id in self._ids if self._cluster.topic_name(topic_id) is None)

    def _missing(self) -> frozenset[str]:
        return self._wanted_topics() - self._cluster.topics()

    # --- responses ---------------------------------------------------------------------------------------

    def _on_reply(self, sent: _InFlightUpdate, reply: Reply) -> None:
        if sent is not self._in_flight:
            return  # `rebootstrapped` was called meanwhile
        self._in_flight = None
        response = reply.message
        if reply.error is not None:
            self._handle_error(reply.error, reply.now)
        elif response.error_code:
            self._handle_error(error_for(response.error_code, "metadata"), reply.now)
        elif not response.brokers:
            self._handle_error(BrokerConnectionError("a broker responded that the cluster has no brokers"), reply.now)
        else:
            self._handle_update(sent, reply)

    def _handle_error(self, error: KafkaError, now: float) -> None:
        self.last_error = error
        self.progress.failed(error, now)
        self._failures.failed(now)
        self._unchanged_responses.reset()
        if isinstance(error, BrokerError) and error.code == Errors.REBOOTSTRAP_REQUIRED:
            self._start_rebootstrap(str(error), now)
        elif not error.retriable:
            self.keep_error(error)

    def _handle_update(self, sent: _InFlightUpdate, reply: Reply) -> None:
        now = reply.now
        self.last_error = None
        self.on_response(success=True)
        self._check_cluster_id(reply.message.cluster_id)
        self._id_topics = self._topics_of_ids(reply.message)
        update = self._cluster.update(reply.message, reply.version, full=sent.full, keep=self._retains)
        if self._distinguishes_new:
            self._subscription.record_partitions(self._cluster, update, all_topics=sent.all_topics)
        self._failures.reset()
        self._quiet_until = now + self._config.retry_backoff_ms
        if update.progressed:
            self._unchanged_responses.reset()
        else:
            self._unchanged_responses.failed(now)
        self._trigger.stop()
        self._request_ids_next = not sent.by_id and bool(self._missing_ids())
        self._needs_partial = sent.interest < self._interest or self._request_ids_next
        if sent.full:
            self._needs_full = sent.serial < self._full_serial
            self._last_success = now
        self._needs_full |= update.stale
        self._recheck_at = self.topic_errors.store(update, now)
        self._update_progress(update, now)
        for listener in self.on_update:
            listener(update)
        if sent.full:
            self._complete_refreshes(sent.serial)

    def _check_cluster_id(self, cluster_id: str | None) -> None:
        """Log a warning if the response is of another cluster than the last one."""
        known = self._cluster.cluster_id
        if known is not None and cluster_id is not None and known != cluster_id:
            _log.warning(
                "the cluster id has changed from %s to %s: the brokers' addresses belong to another cluster now, whose"
                " topics and committed offsets may be others",
                known,
                cluster_id,
            )

    def _topics_of_ids(self, message: MetadataResponse) -> frozenset[str]:
        """Returns the names of the topics added by `add_topic_ids`, if this response or the cache contains the
        names."""
        if not self._ids:
            return frozenset()
        named = {topic.topic_id: topic.name for topic in message.topics if topic.name}
        names = (named.get(topic_id) or self._cluster.topic_name(topic_id) for topic_id in self._ids)
        return frozenset(filter(None, names))

    def _retains(self, topic: str, internal: bool) -> bool:
        """Returns True if the topic is wanted, so that the cache keeps its metadata."""
        if topic in self._added_topics or topic in self._id_topics or self._subscription.needs_metadata(topic):
            return True
        if internal and self._config.exclude_internal_topics:
            return False
        return self._subscription.matches_subscription(topic)

    def _complete_refreshes(self, serial: int) -> None:
        done = [promise for needed, promise in self._refreshes if needed <= serial]
        self._refreshes = [entry for entry in self._refreshes if entry[0] > serial]
        for promise in done:
            promise.set_result(None)

    # --- errors ------------------------------------------------------------------------------------------

    def _update_progress(self, update: MetadataUpdate, now: float) -> None:
        error = self._wanted_error(update)
        if error is None:
            self.progress.done()
        else:
            self.progress.failed(error, now)

    def _wanted_error(self, update: MetadataUpdate) -> KafkaError | None:
        """Returns an error in the response that stops the consumer and is not reported elsewhere, or None.

        A warning about topics that do not exist was logged already, and `take_error` returns what users must correct.
        """
        if (error := self.topic_errors.unreported()) is not None:
            return error
        for tp, code in update.partition_errors.items():
            wanted = self._assignment.is_assigned(tp) or tp.topic in self._added_topics
            if wanted and self._cluster.leader(tp).leader is None:
                return error_for(code, f"leader of {tp}")
        for tp, (epoch, seen) in update.outdated.items():
            if self._assignment.is_assigned(tp) and self._cluster.leader(tp).leader is None:
                return KafkaError(
                    f"metadata has leader epoch {epoch} of {tp}, but {seen} was seen before: the broker lags behind, or"
                    " the topic was deleted and created again; then start the consumer again"
                )
        if self._ids and (missing := self._missing_ids()):
            return error_for(Errors.UNKNOWN_TOPIC_ID, f"{len(missing)} assigned topics have no name yet")
        return None

    @property
    def has_error(self) -> bool:
        return super().has_error or self.topic_errors.has_unraised

    def take_error(self) -> KafkaError | None:
        """Returns the error that the user's next call must raise, or None, and clears it.

        Possible causes are a failed authentication, an unsupported version, and topics without permission or with
        illegal names. Metadata is still requested. If the cause remains, the next response sets the error again.
        """
        error = super().take_error()
        of_topics = self.topic_errors.take(lambda topic: self._retains(topic, False))
        return error or of_topics

    # --- bootstrapping again (KIP-899, KIP-1102) ---------------------------------------------------------

    def on_no_node(self, now: float) -> None:
        """Set `needs_rebootstrap`, because all known brokers are backed off.

        Does nothing unless `metadata_recovery_strategy` is "rebootstrap".
        """
        # If no brokers are known, the engine uses the bootstrap servers already.
        if self._cluster.nodes:
            self._start_rebootstrap("no broker can be reached", now)

    def rebootstrapped(self) -> None:
        """Forget all brokers and topics, and request them again. The engine uses the bootstrap servers again."""
        self.needs_rebootstrap = False
        self._in_flight = None
        self._trigger.stop()
        self._cluster.forget()
        self.request_update(new_interest=True)
        # Keep the backoff. Otherwise requests would be sent without pause if a broker always responds
        # REBOOTSTRAP_REQUIRED, or if all bootstrap servers are down.
        until = self._failures.until
        self.request_new_topics()
        self._failures.until = until

    def _start_rebootstrap(self, reason: str, now: float) -> None:
        if self._config.metadata_recovery_strategy == "rebootstrap" and not self.needs_rebootstrap:
            level = logging.INFO if self._rebootstraps.failed([reason], now) is None else logging.WARNING
            _log.log(level, "starting again from the bootstrap servers: %s", reason)
            self.needs_rebootstrap = True

    def _check_rebootstrap_trigger(self, now: float) -> float:
        """Set `needs_rebootstrap` if a metadata request has been due for too long without success.

        The limit is `metadata_recovery_rebootstrap_trigger_ms`. Returns the time (ms) until the next check is
        necessary.
        """
        if not self._trigger.running or self._config.metadata_recovery_strategy != "rebootstrap":
            return FOREVER
        if self._trigger.poll(now):
            self._trigger.start(now)
            seconds = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
            self._start_rebootstrap(f"no metadata for {seconds:.0f} s", now)
        return self._trigger.due_ms(now)

    def __repr__(self) -> str:
        needs = "full" if self._needs_full else "partial" if self._needs_partial else "nothing"
        return f"<MetadataManager needs {needs}, {'in flight' if self._in_flight else 'idle'}>"
