"""The computation of the target assignment of a group of the consumer protocol, by one of the server-side assignors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kconsumer.testing.cluster.groups.assignor_input import AssignorGroup, AssignorMember, Partitions
from kconsumer.testing.cluster.groups.consumer_member import ConsumerMember
from kconsumer.testing.cluster.groups.map_order import hash_map_order, topic_order
from kconsumer.testing.cluster.groups.server_assignors import ASSIGNORS
from kconsumer.testing.cluster.groups.topic_regexes import TopicRegexes
from kconsumer.testing.cluster.hashes import java_hash_code
from kconsumer.testing.cluster.topic import Topic

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster

#: What the group epoch depends on: the name, the id and the number of partitions of each subscribed topic.
TopicsSignature = tuple[tuple[str, bytes, int], ...]


def subscribed_names(member: ConsumerMember, regexes: TopicRegexes) -> list[str]:
    """Returns the names of the topics to which a member subscribes, in the order of Java's hash maps.

    The topics that the member names come first, then the other topics that match its regular expression.
    """
    names = hash_map_order(sorted(member.topics), java_hash_code)
    if member.regex:
        names += hash_map_order(sorted(regexes.topics(member.regex) - member.topics), java_hash_code)
    return names


def topics_signature(cluster: Cluster, names: Iterable[str]) -> TopicsSignature:
    """Returns name, id and number of partitions of each topic. Topics that do not exist are left out."""
    found = (cluster.topics.get(name) for name in sorted(set(names)))
    return tuple((topic.name, topic.id, len(topic.partitions)) for topic in found if topic is not None)


def is_homogeneous(members: Iterable[ConsumerMember]) -> bool:
    """Returns whether all members subscribe to the same topics, either by name or by one regular expression."""
    subscriptions = {(member.topics, member.regex) for member in members}
    return len(subscriptions) <= 1 and not any(topics and regex for topics, regex in subscriptions)


def compute_target(
    topics: Mapping[str, Topic],
    members: list[ConsumerMember],
    target: Mapping[str, Partitions],
    regexes: TopicRegexes,
    assignor: str,
) -> dict[str, Partitions]:
    """Returns the new target assignment by member id.

    `topics`: all topics by name. `members`: in the order of Kafka's map of members. `target`: the present target
    assignment.
    """
    by_id = {member.id: member for member in members}
    counts: dict[bytes, int] = {}
    rows = []
    for member_id in hash_map_order(by_id, java_hash_code):
        member = by_id[member_id]
        found = [topics[name] for name in subscribed_names(member, regexes) if name in topics]
        counts.update((topic.id, len(topic.partitions)) for topic in found)
        topic_ids = topic_order(topic.id for topic in found)
        rows.append(AssignorMember(member_id, member.instance_id, topic_ids, target.get(member_id, {})))
    result = ASSIGNORS[assignor](AssignorGroup(rows, counts, is_homogeneous(members)))
    return {member_id: result.get(member_id, {}) for member_id in by_id}
