"""Sends the Metadata requests for `partitions_for` and `list_topics` (Java `TopicMetadataFetcher`).

Their responses do not change the metadata cache, so listing thousands of topics does not fill the cache. Decides which
errors of topics are raised, which are retried, and which mean that a topic does not exist.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.error_codes import Errors, is_retriable
from kconsumer._internal.managers import FOREVER, PendingCall, Promise, Reply, UnsentRequest
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import MetadataConfig
from kconsumer.errors import InvalidTopicError, KafkaError, TopicAuthorizationError, error_for
from kconsumer.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from kconsumer.state.cluster import Cluster
from kconsumer.types import PartitionInfo


class TopicTable(dict[str, tuple[PartitionInfo, ...]]):
    """A dictionary of the partitions of topics, by topic name."""

    internal: frozenset[str] = frozenset()  #: the topics that Kafka created for its own use


class TopicMetadataRequests:
    """Sends the requests of all lookups that are not completed yet."""

    def __init__(self, config: MetadataConfig, cluster: Cluster, rng: random.Random | None = None) -> None:
        self._config = config
        self._cluster = cluster
        self._retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self.progress = Progress("metadata", "topics that a call requested")
        self._lookups: list[_TopicLookup] = []

    def fetch(self, topics: Collection[str] | None, deadline: float, *, fresh: bool = False) -> Promise[TopicTable]:
        """Start a lookup. Returns its promise. `MetadataManager.fetch` describes the parameters."""
        if topics is not None and not fresh and self._cluster.contains_topics(topics):
            promise: Promise[TopicTable] = Promise()
            promise.set_result(_table(self._cluster, topics))
            return promise
        lookup = _TopicLookup(topics, deadline, RetryTimer(self._retry_backoff), self.progress)
        self._lookups.append(lookup)
        return lookup.promise

    def poll(self, now: float, requests: list[UnsentRequest]) -> float:
        """Append the requests that are due to `requests`. Returns the time (ms) until the next one must be sent."""
        if not self._lookups:
            return FOREVER
        for lookup in self._lookups:
            lookup.poll(now, requests, self._config.allow_auto_create_topics)
        self._lookups = [lookup for lookup in self._lookups if not lookup.promise.done]
        if not self._lookups:
            self.progress.done()
        return min((lookup.wait_ms(now) for lookup in self._lookups), default=FOREVER)


class _TopicLookup(PendingCall[TopicTable]):
    """One lookup. The caller can end it early by failing its promise."""

    __slots__ = ("_progress", "topics")

    def __init__(
        self, topics: Collection[str] | None, deadline: float, backoff: RetryTimer, progress: Progress
    ) -> None:
        super().__init__(deadline, backoff)
        self._progress = progress
        self.topics = None if topics is None else sorted(set(topics))

    def poll(self, now: float, requests: list[UnsentRequest], create: bool) -> None:
        if self.promise.done:
            return
        if now >= self.deadline:
            what = "all topics" if self.topics is None else ", ".join(self.topics)
            self.time_out(f"no metadata of {what} within the timeout")
        elif self.wait_ms(now) <= 0:
            self.on_sent()
            message = metadata_request(self.topics, create and self.topics is not None)
            requests.append(UnsentRequest(METADATA, message, self._on_reply, min_version=4))

    def _on_reply(self, reply: Reply) -> None:
        self.on_response()
        error = reply.error
        if error is None and reply.message.error_code:
            error = error_for(reply.message.error_code, "metadata")
        if error is None:
            self._handle_response(reply)
        elif error.retriable:
            self._retry(error, reply.now)
        else:
            self.promise.set_exception(error)

    def _retry(self, error: KafkaError, now: float) -> None:
        self.retry(error, now)
        self._progress.failed(error, now)

    def _handle_response(self, reply: Reply) -> None:
        found = Cluster()
        errors = found.update(reply.message, reply.version, full=True).topic_errors
        failed = {t: code for t, code in errors.items() if code != Errors.UNKNOWN_TOPIC_OR_PARTITION}
        retriable = next(((t, code) for t, code in failed.items() if is_retriable(code)), None)
        if any(code in (Errors.INVALID_TOPIC_EXCEPTION, Errors.TOPIC_AUTHORIZATION_FAILED) for code in failed.values()):
            self.promise.set_exception(topic_error(failed))
        elif retriable is not None:
            self._retry(error_for(retriable[1], f"topic {retriable[0]}"), reply.now)
        elif failed:
            topic, code = next(iter(failed.items()))
            self.promise.set_exception(error_for(code, f"topic {topic}"))
        else:
            self.promise.set_result(_table(found, found.topics()))


def _table(cluster: Cluster, topics: Iterable[str]) -> TopicTable:
    table = TopicTable({topic: cluster.partitions_for(topic) or () for topic in sorted(topics)})
    table.internal = cluster.internal_topics & table.keys()
    return table


def metadata_request(topics: Iterable[str] | None, create: bool, ids: Iterable[bytes] = ()) -> MetadataRequest:
    """Returns a Metadata request for the topics with these names or ids. If `topics` is None, it requests all topics.

    `create` allows the broker to create topics that do not exist.
    """
    rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    if rows is not None:
        rows += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    return MetadataRequest(topics=rows, allow_auto_topic_creation=create)


def topic_error(codes: dict[str, int]) -> KafkaError:
    """Returns the error to raise for topics with error codes. `codes` maps each topic to its error code.

    If there are topics that may not be read, this is a TopicAuthorizationError with these topics. If not, it is an
    InvalidTopicError with the topics whose names are illegal.
    """
    refused = frozenset(topic for topic, code in codes.items() if code == Errors.TOPIC_AUTHORIZATION_FAILED)
    if refused:
        return TopicAuthorizationError(", ".join(sorted(refused)), topics=refused, operation="Describe")
    invalid = frozenset(topic for topic, code in codes.items() if code == Errors.INVALID_TOPIC_EXCEPTION)
    return InvalidTopicError(", ".join(sorted(invalid)), topics=invalid)
