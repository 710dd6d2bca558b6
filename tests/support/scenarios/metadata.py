"""Scenarios of ApiVersions, Metadata, DescribeCluster and FindCoordinator."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.metadata import API_VERSIONS, FIND_COORDINATOR, METADATA, MetadataRequestTopic
from kconsumer.schema.topics import DESCRIBE_CLUSTER
from support.scenarios.scenario import Run, scenarios

UNKNOWN_ID = bytes(range(16))


@scenarios(API_VERSIONS)
def api_versions(run: Run, version: int) -> None:
    """The APIs and versions of a broker."""
    run.call(API_VERSIONS, version, client_software_name="test", client_software_version="1")


@scenarios(API_VERSIONS, versions=[3, 4], cases={"empty": "", "space": "a b", "legal": "a.b-c", "dash": "-a"})
def software_name(run: Run, version: int, name: str) -> None:
    """The name of the client's software is checked."""
    run.call(API_VERSIONS, version, client_software_name=name, client_software_version="1")


EXPECTED = {
    "right": (True, 1),
    "wrong-cluster": (False, 1),
    "wrong-node": (True, 17),
    "no-node": (True, -1),
    "no-cluster": (None, 1),
}


@scenarios(API_VERSIONS, versions=[5], cases=EXPECTED)
def expected_broker(run: Run, version: int, expected: tuple[bool | None, int]) -> None:
    """Since v5 a client says which cluster and broker it expects."""
    right, node = expected
    cluster_id = run.prepare(METADATA, 9, topics=[]).cluster_id
    chosen = None if right is None else cluster_id if right else "nonsense"
    software: dict[str, Any] = {"client_software_name": "test", "client_software_version": "1"}
    run.call(API_VERSIONS, version, cluster_id=chosen, node_id=node, **software)


@scenarios(cases={"api": (999, 0), "metadata": (3, 99), "fetch": (1, 99), "old-fetch": (1, -1)})
def unsupported(run: Run, what: tuple[int, int]) -> None:
    """An unknown API and an unsupported version close the connection."""
    key, version = what
    run.raw(key.to_bytes(2) + version.to_bytes(2, signed=True) + (7).to_bytes(4) + b"\xff\xff")


@scenarios(METADATA)
def topic_by_name(run: Run, version: int) -> None:
    """A topic with two partitions, named in the request."""
    topic = run.topic(partitions=2)
    run.call(METADATA, version, topics=[MetadataRequestTopic(name=topic)])


@scenarios(METADATA)
def no_topics(run: Run, version: int) -> None:
    """An empty list of topics means all of them in v0 and none since v1."""
    topic = run.topic()
    response = run.prepare(METADATA, version, topics=[])
    run.note("listed", [row.error_code for row in response.topics if row.name == topic])


@scenarios(METADATA, versions=range(1, 14))
def all_topics(run: Run, version: int) -> None:
    """Null in place of topics means all of them."""
    topic = run.topic(partitions=3)
    response = run.prepare(METADATA, version, topics=None)
    run.note("listed", [(row.error_code, len(row.partitions)) for row in response.topics if row.name == topic])


NAMES = {"absent": "none", "space": "a b", "empty": "", "dot": ".", "dots": "..", "long": "n" * 250, "slash": "a/b"}


@scenarios(METADATA, versions=[0, 1, 4, 9, 12, 13], cases=NAMES)
def names(run: Run, version: int, name: str) -> None:
    """Names of topics that do not exist, and that Kafka does not accept."""
    rows = [MetadataRequestTopic(name=run.name(name) if name == "none" else name)]
    run.call(METADATA, version, topics=rows, allow_auto_topic_creation=False)


@scenarios(METADATA, versions=[4, 13])
def absent_without_creation(run: Run, version: int) -> None:
    """A broker that does not create topics automatically does so for no request."""
    rows = [MetadataRequestTopic(name=run.name("none"))]
    run.call(METADATA, version, topics=rows, allow_auto_topic_creation=True)
    run.call(METADATA, version, topics=rows, allow_auto_topic_creation=True)


@scenarios(METADATA, versions=range(10, 14))
def topic_by_id(run: Run, version: int) -> None:
    """Topics named by id, which requests do since v12; one of them does not exist."""
    known = run.topic_id(run.topic())
    name = None if version >= 12 else ""
    for ids in ([known], [UNKNOWN_ID], [UNKNOWN_ID, known]):
        run.call(METADATA, version, topics=[MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id in ids])


@scenarios(METADATA, versions=[12, 13])
def name_and_id(run: Run, version: int) -> None:
    """Topics named by name and by id in one request, and one named by both."""
    first, second = run.topic("a"), run.topic("b")
    first_id = run.topic_id(first)
    run.call(
        METADATA,
        version,
        topics=[MetadataRequestTopic(topic_id=first_id, name=None), MetadataRequestTopic(name=second)],
    )
    run.call(METADATA, version, topics=[MetadataRequestTopic(topic_id=first_id, name=second)])


@scenarios(METADATA, versions=[1, 9, 12])
def topic_twice(run: Run, version: int) -> None:
    """A topic that a request names twice."""
    topic = run.topic()
    run.call(METADATA, version, topics=[MetadataRequestTopic(name=topic), MetadataRequestTopic(name=topic)])


@scenarios(METADATA, versions=[8, 10, 11])
def authorized_operations(run: Run, version: int) -> None:
    """What the client may do with a topic, if it wants to know."""
    rows = [MetadataRequestTopic(name=run.topic()), MetadataRequestTopic(name=run.name("none"))]
    run.call(METADATA, version, topics=rows, include_topic_authorized_operations=True)


@scenarios(METADATA, versions=[8, 10])
def cluster_operations(run: Run, version: int) -> None:
    """What the client may do with the cluster, if it wants to know."""
    run.call(METADATA, version, topics=[], include_cluster_authorized_operations=True)
    run.call(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)


@scenarios(METADATA, versions=[1, 5, 9, 12])
def internal_topic(run: Run, version: int) -> None:
    """The topic of committed offsets is internal."""
    run.prepare(FIND_COORDINATOR, 1, key=run.name("g"), key_type=0)
    run.call(METADATA, version, topics=[MetadataRequestTopic(name="__consumer_offsets")])


@scenarios(DESCRIBE_CLUSTER)
def describe_cluster(run: Run, version: int) -> None:
    """The brokers of the cluster."""
    run.call(DESCRIBE_CLUSTER, version)


@scenarios(DESCRIBE_CLUSTER, versions=[1, 2], cases={"controllers": 2, "unknown": 9})
def endpoint_type(run: Run, version: int, kind: int) -> None:
    """A broker does not list controllers."""
    run.call(DESCRIBE_CLUSTER, version, endpoint_type=kind)


@scenarios(FIND_COORDINATOR, cases={"group": 0, "transaction": 1, "share": 2, "unknown": 7})
def coordinator(run: Run, version: int, kind: int) -> None:
    """The coordinator of a group or a transactional id, and the error of other kinds."""
    key = run.name("key")
    run.call(FIND_COORDINATOR, version, key=key, coordinator_keys=[key], key_type=kind)


@scenarios(FIND_COORDINATOR, versions=range(4, 7))
def two_coordinators(run: Run, version: int) -> None:
    """Since v4 a request has several keys, or none."""
    run.call(FIND_COORDINATOR, version, coordinator_keys=[run.name("b"), run.name("a")], key_type=0)
    run.call(FIND_COORDINATOR, version, coordinator_keys=[], key_type=0)


@scenarios(FIND_COORDINATOR, versions=[0, 3, 4, 6])
def empty_key(run: Run, version: int) -> None:
    """The coordinator of a group without a name."""
    run.call(FIND_COORDINATOR, version, key="", coordinator_keys=[""], key_type=0)
