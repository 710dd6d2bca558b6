"""When to ask for metadata, for which topics, and what to make of the answer.

Decides when an update is due, how long to back off, which topics' trouble the user must hear of, and when to
start again from the bootstrap list. What the answer says of leaders is judged by `state/cluster.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from kconsumer.backoff import ExponentialBackoff, RetryTimer
from kconsumer.config.option_groups import MetadataConfig
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import BrokerConnectionError, BrokerError, KafkaError, error_for
from kconsumer.managers import FOREVER, PollResult, Promise, Reply, UnsentRequest
from kconsumer.metadata.topic_requests import (
    TopicMetadataRequests,
    TopicTable,
    metadata_request,
    topic_error,
)
from kconsumer.schema import METADATA
from kconsumer.schema.metadata import MetadataResponse
from kconsumer.state.cluster import Cluster, MetadataUpdate
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import TopicPartition

FIRST_VERSION_WITH_IDS = 12

_log = get_logger(__name__)


@dataclass(slots=True)
class _Sent:
    """The update in flight: whether all wanted topics were asked for, how much was wanted then, and whether what
    goes by id was asked for, too."""

    full: bool
    wanted: int
    serial: int
    by_id: bool


class MetadataManager:
    """Keeps the `Cluster` fresh (Java `ConsumerMetadata` and `NetworkClient.DefaultMetadataUpdater`).

    The engine watches `wants_rebootstrap` (then it goes back to the bootstrap list and calls
    `rebootstrapped()`), and calls `no_node_available(now)` when there is no broker to send to. `on_update`
    listeners run after each answer taken in.
    """

    def __init__(
        self,
        config: MetadataConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        rng: random.Random | None = None,
    ) -> None:
        self.on_update: list[Callable[[MetadataUpdate], None]] = []
        self.wants_rebootstrap = False
        self.last_error: KafkaError | None = None
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._lookups = TopicMetadataRequests(config, cluster, rng)
        self._watched: Counter[str] = Counter()
        self._ids: frozenset[bytes] = frozenset()
        self._ids_due = False  # names were asked for: now the ids that they did not tell
        self._named: frozenset[str] = frozenset()  # by an answer for one of the ids
        # What is wanted and since when
        self._needs_full = True
        self._full_serial = 0  # the first request whose answer will do
        self._needs_partial = False
        self._wanted = 0  # grows with each new interest; an answer to an older one leaves the rest to do
        self._topics_version = subscription.topics_version
        self._pattern = subscription.pattern
        self._refreshes: list[tuple[int, Promise[None]]] = []
        self._last_success = -FOREVER
        self._due_since: float | None = None
        # What holds requests back
        self._in_flight: _Sent | None = None
        self._serial = 0
        self._quiet_until = 0.0
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._failures = RetryTimer(backoff)
        self._equivalent = RetryTimer(backoff)
        # What went wrong
        self._fatal: KafkaError | None = None
        self._topic_errors: dict[str, int] = {}
        self._warned: frozenset[str] = frozenset()
        self._warned_partitions: frozenset[TopicPartition] = frozenset()
        self._unraised: dict[str, int] = {}

    # --- wishes ------------------------------------------------------------------------------------------

    def request_update(self, *, new_interest: bool = False) -> None:
        """Ask for all wanted topics again, after the backoff. `new_interest`: this is no repetition because
        of an old answer, so do not back off for answers that told nothing new."""
        self._needs_full = True
        if new_interest:
            self._full_serial = self._serial + 1  # an answer on its way is too old
            self._equivalent.reset()

    def request_leaders(self) -> None:
        """Some partitions have no leader to ask: ask for metadata, unless new topics are being asked for already."""
        if not self._needs_partial:
            self.request_update()

    def request_new_topics(self) -> None:
        """Ask at once for the wanted topics that are not known yet. Changes of the subscription are noticed
        without this."""
        self._needs_partial = True
        self._wanted += 1
        self._equivalent.reset()
        self._failures.until = self._quiet_until = 0.0

    def refresh(self) -> Promise[None]:
        """Ask for all wanted topics; kept by the first answer to a request made after this call."""
        promise: Promise[None] = Promise()
        self.request_update(new_interest=True)
        self._refreshes.append((self._full_serial, promise))
        return promise

    def add_topics(self, topics: Iterable[str]) -> None:
        """Keep metadata of these topics, subscribed or not, until as many `remove_topics`."""
        names = set(topics)
        self._watched.update(names)
        if not self._cluster.knows(names):
            self.request_new_topics()

    def remove_topics(self, topics: Iterable[str]) -> None:
        """Undo one `add_topics`."""
        self._watched.subtract(set(topics))
        self._watched += Counter()  # drops those at zero

    def add_topic_ids(self, ids: frozenset[bytes]) -> None:
        """Keep metadata of the topics with these ids, whatever their names are, until called again."""
        self._ids = ids
        if any(self._cluster.topic_name(topic_id) is None for topic_id in ids):
            self._needs_partial = True

    def fetch(
        self, topics: Collection[str] | None = None, deadline: float = FOREVER, *, fresh: bool = False
    ) -> Promise[TopicTable]:
        """The partitions of these topics (None: of all topics), as a mapping; topics that do not exist are
        left out. From the cache if all are there, unless `fresh`; otherwise asked for apart from the cache.

        Fails with TimeoutError at `deadline` (ms), or with a topic's error (InvalidTopicError, …).
        """
        return self._lookups.fetch(topics, deadline, fresh=fresh)

    def update_last_seen_epoch(self, tp: TopicPartition, epoch: int | None) -> None:
        """A leader epoch met in a commit or an answer; if it is news, metadata is asked for."""
        if epoch is not None and self._cluster.update_last_seen_epoch(tp, epoch):
            self.request_update()

    # --- polling -----------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """What to send at `now` (ms)."""
        self._check_subscription()
        requests: list[UnsentRequest] = []
        wait = self._poll_update(now, requests)
        return PollResult(requests, min(wait, self._lookups.poll(now, requests), self._check_trigger(now)))

    def _check_subscription(self) -> None:
        subscription = self._subscription
        if subscription.topics_version == self._topics_version:
            return
        self._topics_version = subscription.topics_version
        if subscription.pattern is not self._pattern:
            self._pattern = subscription.pattern
            self.request_update(new_interest=True)
        if not self._cluster.knows(subscription.metadata_topics()):
            self.request_new_topics()

    def _poll_update(self, now: float, requests: list[UnsentRequest]) -> float:
        if self._in_flight is not None:
            return FOREVER
        if self._needs_partial and not (self._missing() or self._missing_ids()):
            self._needs_partial = False
        expires_in: float = self._last_success + self._config.metadata_max_age_ms - now
        if not (self._needs_full or self._needs_partial):
            if expires_in > 0:
                return expires_in
            self._equivalent.reset()
        if self._due_since is None:
            self._due_since = now
        wait = max(self._failures.until, self._equivalent.until, self._quiet_until) - now
        if wait > 0:
            return wait
        requests.append(self._request(full=self._needs_full or expires_in <= 0))
        return FOREVER

    def _request(self, full: bool) -> UnsentRequest:
        topics: list[str] | None = None
        ids: list[bytes] = []
        if self._subscription.has_pattern:
            full = True
        else:
            # A broker that is asked for an id does not look at names: these go first, ids into a request of their own.
            ids = self._missing_ids()
            names = self._wanted_topics() if full else self._missing()
            topics = [] if ids and self._ids_due and not full else sorted(names)
            ids = [] if topics else ids
        self._serial += 1
        sent = self._in_flight = _Sent(full, self._wanted, self._serial, topics is None or bool(ids))
        # A request by pattern never creates topics: it names none.
        create = topics is not None and self._config.allow_auto_create_topics
        message = metadata_request(topics, create, ids)
        oldest = FIRST_VERSION_WITH_IDS if ids else 4
        return UnsentRequest(METADATA, message, lambda reply: self._on_reply(sent, reply), min_version=oldest)

    def _wanted_topics(self) -> frozenset[str]:
        return self._subscription.metadata_topics() | self._watched.keys() | self._named

    def _missing_ids(self) -> list[bytes]:
        return sorted(topic_id for topic_id in self._ids if self._cluster.topic_name(topic_id) is None)

    def _missing(self) -> frozenset[str]:
        return self._wanted_topics() - self._cluster.topics()

    # --- answers -----------------------------------------------------------------------------------------

    def _on_reply(self, sent: _Sent, reply: Reply) -> None:
        if sent is not self._in_flight:
            return  # given up meanwhile: bootstrapping again
        self._in_flight = None
        response = reply.message
        if reply.error is not None:
            self._failed(reply.error, reply.now)
        elif response.error_code:
            self._failed(error_for(response.error_code, "metadata"), reply.now)
        elif not response.brokers:
            self._failed(BrokerConnectionError("a broker says that the cluster has no brokers"), reply.now)
        else:
            self._updated(sent, reply)

    def _failed(self, error: KafkaError, now: float) -> None:
        self.last_error = error
        self._failures.failed(now)
        self._equivalent.reset()
        if isinstance(error, BrokerError) and error.code == Errors.REBOOTSTRAP_REQUIRED:
            self._rebootstrap(str(error))
        elif not error.retriable:
            self._fatal = error

    def _updated(self, sent: _Sent, reply: Reply) -> None:
        now = reply.now
        self.last_error = None
        self._named = self._names_of_ids(reply.message)
        update = self._cluster.update(reply.message, reply.version, full=sent.full, keep=self._keep)
        self._failures.reset()
        self._quiet_until = now + self._config.retry_backoff_ms
        if update.progressed:
            self._equivalent.reset()
        else:
            self._equivalent.failed(now)
        self._due_since = None
        self._ids_due = not sent.by_id and bool(self._missing_ids())
        self._needs_partial = sent.wanted < self._wanted or self._ids_due
        if sent.full:
            self._needs_full = sent.serial < self._full_serial
            self._last_success = now
        self._needs_full |= update.stale
        self._note_topic_errors(update)
        for listener in self.on_update:
            listener(update)
        if sent.full:
            self._keep_refreshes(sent.serial)

    def _names_of_ids(self, message: MetadataResponse) -> frozenset[str]:
        """Names of the watched ids, after this answer."""
        if not self._ids:
            return frozenset()
        named = {topic.topic_id: topic.name for topic in message.topics if topic.name}
        names = (named.get(topic_id) or self._cluster.topic_name(topic_id) for topic_id in self._ids)
        return frozenset(filter(None, names))

    def _keep(self, topic: str, internal: bool) -> bool:
        if topic in self._watched or topic in self._named or self._subscription.needs_metadata(topic):
            return True
        if internal and self._config.exclude_internal_topics:
            return False
        return self._subscription.matches_subscription(topic)

    def _keep_refreshes(self, serial: int) -> None:
        done = [promise for needed, promise in self._refreshes if needed <= serial]
        self._refreshes = [entry for entry in self._refreshes if entry[0] > serial]
        for promise in done:
            promise.set_result(None)

    # --- errors ------------------------------------------------------------------------------------------

    def _note_topic_errors(self, update: MetadataUpdate) -> None:
        if update.full:
            self._topic_errors = dict(update.topic_errors)
        else:
            others = {t: code for t, code in self._topic_errors.items() if t not in update.topics}
            self._topic_errors = others | update.topic_errors
        for topic in sorted(self.unknown_topics() - self._warned):
            _log.warning("topic %s does not exist; it is looked for again from time to time", topic)
        self._warned = self.unknown_topics()
        self._warn_of_partitions()
        reported = (Errors.INVALID_TOPIC_EXCEPTION, Errors.TOPIC_AUTHORIZATION_FAILED)
        self._unraised = {t: code for t, code in self._topic_errors.items() if code in reported}

    def _warn_of_partitions(self) -> None:
        """Log a warning for each assigned partition that does not exist, once until it exists."""
        missing = frozenset(filter(self._cluster.lacks, self._subscription.assigned()))
        for tp in sorted(missing - self._warned_partitions):
            _log.warning("%s; it is looked for again from time to time", self.missing_partition(tp))
        self._warned_partitions = missing

    def take_error(self) -> KafkaError | None:
        """An error for the user's next call, once: a failed login or version, topics refused or with illegal
        names. The manager goes on asking, so a cause that remains is reported again after the next answer."""
        error, self._fatal = self._fatal, None
        # A topic that nobody wants any more troubles nobody.
        unraised = {topic: code for topic, code in self._unraised.items() if self._keep(topic, False)}
        self._unraised = {}
        if error is None and unraised:
            error = topic_error(unraised)
        return error

    def topic_error(self, topic: str) -> int:
        """The error code of the last answer about this topic; 0 if there is none."""
        return self._topic_errors.get(topic, 0)

    def mark_raised(self, topics: Iterable[str]) -> None:
        """Someone else raises these topics' errors: `take_error` need not."""
        for topic in topics:
            self._unraised.pop(topic, None)

    def unknown_topics(self) -> frozenset[str]:
        """Wanted topics that do not exist, as far as the brokers know."""
        return frozenset(t for t, code in self._topic_errors.items() if code == Errors.UNKNOWN_TOPIC_OR_PARTITION)

    def topic_problem(self, topic: str) -> str:
        """What is wrong with the topic, in words for `partition_states()`; empty if nothing is known."""
        code = self._topic_errors.get(topic, 0)
        if code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
            return f"topic {topic} does not exist"
        return str(error_for(code, f"topic {topic}")) if code else ""

    def missing_partition(self, tp: TopicPartition) -> str:
        """Returns how many partitions the topic has, in words, if it does not have this one; else an empty text."""
        cluster, topic = self._cluster, tp.topic
        if not cluster.lacks(tp):
            return ""
        count = cluster.listed_count(topic)
        numbers = f"{count} partitions (0 to {count - 1})" if count > 1 else "1 partition (0)"
        return f"topic {topic} has {numbers}, there is no {tp}"

    def problem_with(self, tp: TopicPartition) -> str:
        """Returns what is wrong with the partition or its topic, in words; empty if nothing is known."""
        return self.topic_problem(tp.topic) or self.missing_partition(tp)

    # --- bootstrapping again (KIP-899, KIP-1102) ---------------------------------------------------------

    def on_no_node(self, now: float) -> None:
        """The engine found no broker to send to: all are in backoff."""
        # While bootstrapping there is nothing to go back to.
        if self._cluster.nodes:
            self._rebootstrap("no broker can be reached")

    def rebootstrapped(self) -> None:
        """The engine is back at the bootstrap list: what was known of brokers and topics is dropped."""
        self.wants_rebootstrap = False
        self._in_flight = None
        self._due_since = None
        self._cluster.forget()
        self.request_update(new_interest=True)
        # A broker that demands it each time, or a list of bootstrap servers that are all down, must not be asked
        # without pause: the backoff remains.
        until = self._failures.until
        self.request_new_topics()
        self._failures.until = until

    def _rebootstrap(self, reason: str) -> None:
        if self._config.metadata_recovery_strategy == "rebootstrap" and not self.wants_rebootstrap:
            _log.warning("bootstrapping again: %s", reason)
            self.wants_rebootstrap = True

    def _check_trigger(self, now: float) -> float:
        """Bootstrap again when no answer has come for too long. How many ms until then."""
        if self._due_since is None or self._config.metadata_recovery_strategy != "rebootstrap":
            return FOREVER
        trigger_ms: float = self._config.metadata_recovery_rebootstrap_trigger_ms
        left = self._due_since + trigger_ms - now
        if left > 0:
            return left
        self._due_since = now
        self._rebootstrap(f"no metadata for {trigger_ms / 1000:.0f} s")
        return trigger_ms

    def __repr__(self) -> str:
        needs = "full" if self._needs_full else "partial" if self._needs_partial else "nothing"
        return f"<MetadataManager needs {needs}, {'in flight' if self._in_flight else 'idle'}>"
