"""The computation of the target assignment of a group of the consumer protocol, by one of the server-side assignors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kconsumer.testing.cluster.groups.consumer_member import ConsumerMember
from kconsumer.testing.cluster.groups.server_assignors import ASSIGNORS, AssignorMember, Partitions
from kconsumer.testing.cluster.groups.topic_regexes import TopicRegexes
from kconsumer.testing.cluster.topic import Topic

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster

#: What the group epoch depends on: the name, the id and the number of partitions of each subscribed topic.
TopicsSignature = tuple[tuple[str, bytes, int], ...]


def subscribed_names(member: ConsumerMember, regexes: TopicRegexes) -> list[str]:
    """Returns the names of the topics to which a member subscribes, by name or by its regular expression."""
    return sorted(member.topics | (regexes.topics(member.regex) if member.regex else set()))


def topics_signature(cluster: Cluster, names: Iterable[str]) -> TopicsSignature:
    """Returns name, id and number of partitions of each topic. Topics that do not exist are left out."""
    found = (cluster.topics.get(name) for name in sorted(set(names)))
    return tuple((topic.name, topic.id, len(topic.partitions)) for topic in found if topic is not None)


def compute_target(
    topics: Mapping[str, Topic],
    members: list[ConsumerMember],
    target: Mapping[str, Partitions],
    regexes: TopicRegexes,
    assignor: str,
) -> dict[str, Partitions]:
    """Returns the new target assignment by member id.

    `topics`: all topics by name. `target`: the present target assignment.
    """
    counts: dict[bytes, int] = {}
    rows = []
    for member in members:
        found = [topics[name] for name in subscribed_names(member, regexes) if name in topics]
        counts.update((topic.id, len(topic.partitions)) for topic in found)
        topic_ids = [topic.id for topic in found]
        rows.append(AssignorMember(member.id, member.instance_id, topic_ids, target.get(member.id, {})))
    return ASSIGNORS[assignor](rows, counts)
