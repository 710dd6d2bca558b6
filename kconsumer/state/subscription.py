"""The subscription or manual assignment of a consumer.

Decides which kinds of subscription exclude each other, and which topics are subscribed. `assignment.py` has the
assigned partitions, and `positions.py` their positions.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable, Collection, Iterable

from kconsumer._common.error_codes import Errors
from kconsumer.errors import StateError
from kconsumer.state.assignment import Assignment
from kconsumer.state.cluster import Cluster, MetadataUpdate
from kconsumer.types import SubscriptionPattern, TopicPartition


class InitialPartitions:
    """How many partitions each subscribed topic had when this consumer first received its metadata (KIP-1327).

    Decides what is new for `auto_offset_reset_new_partitions`. Partitions of a topic are numbered from 0, and none of
    them is removed alone. So a topic's new partitions are those whose number is not below the number of partitions in
    the first metadata after the subscription. It does not matter when this consumer learns of them, whether an
    assignment or metadata has them first, or which member reads them before.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.listed = False  # for a pattern: metadata of all topics were received, so others are created later

    def is_new(self, tp: TopicPartition) -> bool:
        """Returns True if the partition has appeared since its topic was subscribed."""
        return tp.partition >= self._counts.get(tp.topic, sys.maxsize)

    def keep(self, subscribed: Callable[[str], bool]) -> None:
        """Forget topics that are no longer subscribed, after the subscription has changed."""
        self._counts = {topic: count for topic, count in self._counts.items() if subscribed(topic)}
        self.listed = False

    def record(self, cluster: Cluster, topics: Iterable[str], *, all_topics: bool) -> None:
        """Record how many partitions these subscribed topics have, unless their numbers are known.

        With `all_topics`, these are all topics that a pattern matches: those that match from now on are new.
        """
        for topic in topics:
            if topic not in self._counts:
                self._counts[topic] = 0 if self.listed else cluster.listed_count(topic)
        self.listed |= all_topics

    def record_absent(self, absent: Iterable[str], recreated: Iterable[str]) -> None:
        """Record topics of which all partitions are new: the `recreated` ones, and those `absent` at first.

        A topic that was there before is probably not deleted: a broker may lag behind.
        """
        self._counts = dict.fromkeys(absent, 0) | self._counts | dict.fromkeys(recreated, 0)

    def __repr__(self) -> str:
        return f"<InitialPartitions {self._counts}>"


class SubscriptionKind(enum.Enum):
    """The source of the assignment. A consumer keeps one kind until `unsubscribe()`."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker pattern"
    ASSIGNED = "assigned"


# This is a tuple and not a set. A test with `in` on a set calls the enum's `__hash__`, which is a slow Python function.
_BY_GROUP = (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN, SubscriptionKind.BROKER_PATTERN)


# A broker responds with the second one while it creates the topic.
_ABSENT = (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.LEADER_NOT_AVAILABLE)


class SubscriptionState:
    """What a consumer subscribes to. Its `assignment` contains the partitions that result from it."""

    def __init__(self, assignment: Assignment | None = None) -> None:
        self.assignment = assignment or Assignment()
        self.kind = SubscriptionKind.NONE
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: str | None = None
        self.initial_partitions = InitialPartitions()
        self.topics_version = 0  # grows with each change of the topics that need metadata
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()  # the topics of all members, while this one is the leader

    # --- what the user subscribes to --------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to exactly these topics. Returns True if they changed.

        Raises StateError if another kind of subscription is in use.
        """
        self._become(SubscriptionKind.TOPICS)
        chosen = frozenset(topics)
        self.initial_partitions.keep(chosen.__contains__)
        return self._set_topics(chosen)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics whose whole name matches the pattern.

        Raises StateError if another kind of subscription is in use.
        """
        self._become(SubscriptionKind.PATTERN)
        if self.pattern != pattern:
            self.pattern = pattern
            self.initial_partitions.keep(self.matches_subscription)
            self.topics_version += 1
            self._update_unsubscribed()

    def subscribe_broker_pattern(self, pattern: SubscriptionPattern) -> None:
        """Subscribe to a pattern that the coordinator matches against topic names (KIP-848).

        Raises StateError if another kind of subscription is in use.
        """
        self._become(SubscriptionKind.BROKER_PATTERN)
        if self.broker_pattern != pattern.pattern:
            self.broker_pattern = pattern.pattern
            self.initial_partitions.keep(lambda _: False)
            self.topics_version += 1

    def subscribe_matched(self, topics: Iterable[str]) -> bool:
        """Set the topics that the pattern matches. Returns True if they changed.

        Raises StateError if the subscription is not a pattern that the client matches.
        """
        if self.kind is not SubscriptionKind.PATTERN:
            raise StateError("topics can be matched only for a pattern subscription")
        return self._set_topics(frozenset(topics))

    def update_matched(self, cluster: Cluster, *, exclude_internal: bool) -> bool:
        """Match the pattern against the cluster's topics. Returns True if the subscribed topics changed.

        If `exclude_internal` is True, topics that Kafka itself uses do not match.
        """
        excluded = cluster.internal_topics if exclude_internal else frozenset()
        return self.subscribe_matched(t for t in cluster.topics() - excluded if self.matches_subscription(t))

    def assign(self, partitions: Collection[TopicPartition]) -> bool:
        """Assign exactly these partitions, without a group. Returns True if they changed.

        Partitions that were assigned before keep their state. Raises StateError if another kind of subscription is in
        use.
        """
        self._become(SubscriptionKind.ASSIGNED)
        if set(self.assignment.assigned()) == set(partitions):
            return False
        self._replace_assignment(partitions)
        self._set_topics(frozenset(tp.topic for tp in self.assignment.assigned()))
        return True

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """Apply an assignment of the group. Partitions that were assigned before keep their state.

        Raises StateError if this consumer has no subscription.
        """
        if not self.is_group_managed:
            raise StateError("the group cannot assign partitions to a consumer that has no subscription")
        self._replace_assignment(partitions)

    def unsubscribe(self) -> None:
        """Forget the subscription and the assignment."""
        self.kind = SubscriptionKind.NONE
        self.pattern = self.broker_pattern = None
        self.initial_partitions.keep(lambda _: False)
        self._group_topics = frozenset()
        self._set_topics(frozenset())
        self._replace_assignment(())

    def _become(self, kind: SubscriptionKind) -> None:
        if self.kind not in (SubscriptionKind.NONE, kind):
            raise StateError(
                f"subscribing to topics, subscribing to a pattern and assigning partitions exclude each "
                f"other; this consumer is at {self.kind.value}: call unsubscribe() first"
            )
        self.kind = kind

    def _set_topics(self, topics: frozenset[str]) -> bool:
        if self._topics == topics:
            return False
        self._topics = topics
        self.topics_version += 1
        self._update_unsubscribed()
        return True

    def _replace_assignment(self, partitions: Collection[TopicPartition]) -> None:
        self.assignment.replace(partitions)
        self._update_unsubscribed()

    def _update_unsubscribed(self) -> None:
        """Stop fetching partitions whose topic is not subscribed, and allow it again if it is.

        A manual assignment and the coordinator's match of a pattern contain no other topics.
        """
        matched_here = self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN)
        self.assignment.set_unsubscribed(lambda topic: matched_here and not self.matches_subscription(topic))

    # --- topics -----------------------------------------------------------------------------------------

    @property
    def is_group_managed(self) -> bool:
        """True if the group decides the assignment."""
        return self.kind in _BY_GROUP

    @property
    def has_pattern(self) -> bool:
        """True if the subscription is a pattern that the client matches. Such a subscription needs metadata of all
        topics."""
        return self.kind is SubscriptionKind.PATTERN

    def subscribed_topics(self) -> frozenset[str]:
        """Returns the subscribed topics.

        For a pattern that the client matches, these are the matching topics. For a pattern that the coordinator
        matches, and for a manual assignment, the result is empty.
        """
        return self._topics if self.kind in _BY_GROUP else frozenset()  # inlined: each poll calls this

    def metadata_topics(self) -> frozenset[str]:
        """Returns the topics whose metadata is needed.

        These are the topics of this consumer. For the leader of a group, they are the topics of all members.
        """
        return self._topics | self._group_topics if self._group_topics else self._topics

    def needs_metadata(self, topic: str) -> bool:
        """Returns True if the topic is one of `metadata_topics()`."""
        return topic in self._topics or topic in self._group_topics

    def matches_subscription(self, topic: str) -> bool:
        """Returns True if the topic is subscribed, by name or by pattern.

        If only the coordinator matches the pattern, returns True for every topic.
        """
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        if self.kind is SubscriptionKind.BROKER_PATTERN:
            return True  # only the coordinator matches it
        return self.is_group_managed and topic in self._topics

    @property
    def awaits_all_topics(self) -> bool:
        """True if the coordinator matches a pattern, and metadata of all topics were not received since it was set."""
        return self.kind is SubscriptionKind.BROKER_PATTERN and not self.initial_partitions.listed

    def record_partitions(
        self, cluster: Cluster, update: MetadataUpdate | None = None, *, all_topics: bool = False
    ) -> None:
        """Record which partitions subscribed topics have, so that later ones can be distinguished.

        `update` is the last change of the cluster's metadata, and `all_topics` is True if it contains all topics.
        """
        if not self.is_group_managed:
            return
        by_name = self.kind is SubscriptionKind.TOPICS
        if update is not None:
            absent = [topic for topic, code in update.topic_errors.items() if by_name and code in _ABSENT]
            self.initial_partitions.record_absent(
                filter(self.matches_subscription, absent), filter(self.matches_subscription, update.recreated)
            )
        known = filter(self.matches_subscription, cluster.topics())
        self.initial_partitions.record(cluster, known, all_topics=all_topics and not by_name)

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Add all members' topics to `metadata_topics()`, because this consumer is the leader of the group.

        Returns True if some of `topics` are not topics of this consumer. Raises StateError if this consumer has no
        subscription.
        """
        if not self.is_group_managed:
            raise StateError("only a subscription takes part in a group")
        self._set_group_topics(frozenset(topics))
        return not self._topics.issuperset(self._group_topics)

    def reset_group_subscription(self) -> None:
        """Remove other members' topics from `metadata_topics()`."""
        self._set_group_topics(frozenset())

    def _set_group_topics(self, topics: frozenset[str]) -> None:
        if self._group_topics != topics:
            self._group_topics = topics
            self.topics_version += 1

    def __repr__(self) -> str:
        what = (
            self.pattern.pattern if self.pattern is not None else self.broker_pattern or ", ".join(sorted(self._topics))
        )
        return f"<SubscriptionState {self.kind.value}({what})>"
