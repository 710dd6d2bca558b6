"""Scenarios of topics and their settings: created, deleted, enlarged, described and changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kconsumer.schema.metadata import METADATA, MetadataRequestTopic
from kconsumer.schema.topics import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
    DeleteTopicState,
    DescribeConfigsResource,
    ReplacedConfigsResource,
)
from support.scenarios.metadata import UNKNOWN_ID
from support.scenarios.scenario import SETTLE_MS, Run, scenarios

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    """Returns the row of a topic of CreateTopics. `configs` and `assignments`: mappings."""
    configs: Mapping[str, str | None] = fields.pop("configs", {})
    assignments: Mapping[int, list[int]] = fields.pop("assignments", {})
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in assignments.items()],
    )


def create(run: Run, version: int, *rows: CreatableTopic, **fields: Any) -> Any:
    """Record the response to CreateTopics."""
    return run.call(CREATE_TOPICS, version, **{"topics": list(rows), "timeout_ms": 5000, **fields})


def partitions_of(run: Run, name: str) -> None:
    """Record the partitions of a topic, when changes of it have arrived."""
    run.sleep(300)
    run.call(METADATA, 9, topics=[MetadataRequestTopic(name=name)])


@scenarios(CREATE_TOPICS)
def creating(run: Run, version: int) -> None:
    """A topic is created; it exists the second time."""
    row = new_topic(run.name(), 2, configs={"retention.ms": "12345", "cleanup.policy": "compact"})
    create(run, version, row)
    create(run, version, row)
    partitions_of(run, run.name())


@scenarios(CREATE_TOPICS, versions=[2, 5, 7])
def only_validated(run: Run, version: int) -> None:
    """A request that is only validated creates nothing."""
    create(run, version, new_topic(run.name(), 2), validate_only=True)
    partitions_of(run, run.name())


@scenarios(CREATE_TOPICS, versions=[2, 4, 7])
def default_sizes(run: Run, version: int) -> None:
    """The broker decides how many partitions and replicas there are."""
    create(run, version, new_topic(run.name(), -1, -1))
    partitions_of(run, run.name())


WRONG = {
    "no-partitions": {"partitions": 0},
    "negative": {"partitions": -2},
    "no-replicas": {"replicas": 0},
    "too-many-replicas": {"replicas": 2},
    "unknown-config": {"configs": {"no.such.config": "1"}},
    "wrong-value": {"configs": {"retention.ms": "soon"}},
    "wrong-choice": {"configs": {"cleanup.policy": "burn"}},
    "null-value": {"configs": {"retention.ms": None}},
    "assigned": {"partitions": -1, "replicas": -1, "assignments": {0: [1], 1: [1]}},
    "assigned-and-counted": {"partitions": 2, "assignments": {0: [1], 1: [1]}},
    "assigned-gap": {"partitions": -1, "replicas": -1, "assignments": {0: [1], 2: [1]}},
    "assigned-unknown": {"partitions": -1, "replicas": -1, "assignments": {0: [9]}},
    "assigned-twice": {"partitions": -1, "replicas": -1, "assignments": {0: [1, 1]}},
    "assigned-nothing": {"partitions": -1, "replicas": -1, "assignments": {0: []}},
}


@scenarios(CREATE_TOPICS, versions=[2, 7], cases=WRONG)
def wrong_topic(run: Run, version: int, fields: dict[str, Any]) -> None:
    """Topics that cannot be created, and assignments of replicas."""
    create(run, version, new_topic(run.name(), **fields))


VALUES = {
    "ratio": ("min.cleanable.dirty.ratio", "0.1"),
    "wrong-ratio": ("min.cleanable.dirty.ratio", "half"),
    "boolean": ("preallocate", "TRUE"),
    "wrong-boolean": ("preallocate", "yes"),
    "list": ("cleanup.policy", "compact,delete"),
    "throttled": ("leader.replication.throttled.replicas", "*"),
    "wrong-number": ("segment.ms", "1.5"),
    "negative": ("retention.ms", "-1"),
}


LIMITS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("", ",", " compact , delete", "compact,", "COMPACT"),
    "compression.gzip.level": ("-1", "0", "9", "10"),
    "compression.lz4.level": ("0", "1", "17", "18"),
    "compression.type": (" gzip ", "GZIP", "none"),
    "compression.zstd.level": ("-131073", "-131072", "22", "23"),
    "delete.retention.ms": ("-1", "0"),
    "file.delete.delay.ms": ("-1", "0"),
    "flush.messages": ("0", "1"),
    "flush.ms": ("-1", "0"),
    "index.interval.bytes": ("-1", "0"),
    "leader.replication.throttled.replicas": ("x", "1", "0:1,1:2", "0:1,", " * "),
    "local.retention.bytes": ("-3", "-2"),
    "local.retention.ms": ("-3", "-2"),
    "max.compaction.lag.ms": ("0", "1"),
    "max.message.bytes": ("-1", "0", "2147483647", "2147483648"),
    "message.timestamp.after.max.ms": ("-1", "0"),
    "message.timestamp.before.max.ms": ("-1", "0"),
    "min.cleanable.dirty.ratio": (".5", "5e-1", "0.5f", "1.", "-0.0", "1.1", "-1", "", "NaN", "Infinity"),
    "min.compaction.lag.ms": ("-1", "0"),
    "min.insync.replicas": ("0", "1"),
    "preallocate": (" true ", "1", ""),
    "remote.storage.enable": ("true",),
    "retention.ms": ("-2", " 1000 ", "+5", "1e3", "1_0", "9223372036854775808", "", "\u0661"),
    "segment.bytes": ("-1", "5", "13", "14", "1048575", "1048576"),
    "segment.index.bytes": ("3", "4"),
    "segment.jitter.ms": ("-1", "0"),
    "segment.ms": ("0", "1"),
}


@scenarios(CREATE_TOPICS, versions=[2], cases=list(LIMITS))
def config_limits(run: Run, version: int, name: str) -> None:
    """Which values a setting may have."""
    for value in LIMITS[name]:
        create(run, version, new_topic(run.name(), configs={name: value}), validate_only=True)


GROUP_LIMITS: dict[str, tuple[str, ...]] = {
    "consumer.assignment.interval.ms": ("-1", "0", "15000", "15001", " 5 ", "+5", ""),
    "consumer.heartbeat.interval.ms": ("0", "199", "200", "15000", "15001", "x"),
    "consumer.session.timeout.ms": ("0", "500", "999", "1000", "60000", "60001", "2147483648"),
    "errors.deadletterqueue.copy.record.enable": ("TRUE", " true ", "yes"),
    "errors.deadletterqueue.topic.name": ("", "a b", "t", "dlq.t"),
    "share.assignment.interval.ms": ("-1", "0", "15000", "15001"),
    "share.auto.offset.reset": ("EARLIEST", " latest", "by_duration:", "by_duration:PT0S", "by_duration:-PT1H",
                                "by_duration:P1W", "by_duration:pt1h", "by_duration:PT1.5S"),
    "share.delivery.count.limit": ("1", "2", "10", "11"),
    "share.heartbeat.interval.ms": ("199", "200", "15000", "15001"),
    "share.isolation.level": ("READ_COMMITTED", ""),
    "share.partition.max.record.locks": ("99", "100", "4000", "4001"),
    "share.record.lock.duration.ms": ("999", "1000", "60000", "60001"),
    "share.renew.acknowledge.enable": ("False", "0"),
    "share.session.timeout.ms": ("999", "1000", "60000", "60001"),
    "streams.assignment.interval.ms": ("-1", "0", "15000", "15001"),
    "streams.assignor.name": ("", "sticky", "none"),
    "streams.heartbeat.interval.ms": ("4999", "5000", "15000", "15001"),
    "streams.initial.rebalance.delay.ms": ("-1", "0", "2147483647"),
    "streams.num.standby.replicas": ("-1", "0", "2", "3"),
    "streams.rack.aware.assignment.tags": ("", "zone", "a,b", "a,a", "a,b,c,d,e", "a,b,c,d,e,f"),
    "streams.session.timeout.ms": ("44999", "45000", "60000", "60001"),
}  # fmt: skip


@scenarios(INCREMENTAL_ALTER_CONFIGS, versions=[1], cases=list(GROUP_LIMITS), releases=["4.4"])
def group_config_limits(run: Run, version: int, name: str) -> None:
    """Which values a setting of a group may have."""
    for value in GROUP_LIMITS[name]:
        alter(run, version, (GROUP, run.name("g")), (name, 0, value), validate_only=True)


@scenarios(INCREMENTAL_ALTER_CONFIGS, versions=[1], releases=["4.4"])
def conflicting_group_configs(run: Run, version: int) -> None:
    """A session timeout must be longer than the heartbeat interval, at once and one after the other."""
    for kind in ("consumer", "share"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        group = GROUP, run.name(kind)
        alter(run, version, group, (heartbeat, 0, "5000"), (session, 0, "5000"), validate_only=True)
        alter(run, version, group, (heartbeat, 0, "5000"), (session, 0, "5001"))
        run.sleep(SETTLE_MS)
        alter(run, version, group, (session, 0, "4000"))
        alter(run, version, group, (session, 0, "4000"), (heartbeat, 1, None))
    alter(run, version, (GROUP, ""), ("consumer.session.timeout.ms", 0, "45000"))


BROKER_SETTINGS = [
    "broker.id",
    "compression.type",
    "default.replication.factor",
    "delete.topic.enable",
    "log.cleanup.policy",
    "log.message.timestamp.type",
    "log.retention.hours",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "node.id",
    "num.partitions",
    "offset.metadata.max.bytes",
    "process.roles",
]


@scenarios(DESCRIBE_CONFIGS, versions=[1])
def broker_settings(run: Run, version: int) -> None:
    """The values of settings of a broker that clients ask for."""
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=BROKER_SETTINGS)
    (result,) = run.prepare(DESCRIBE_CONFIGS, version, resources=[resource]).results
    run.note("settings", sorted((row.name, row.value) for row in result.configs))


STATIC = 4  # the source of what a broker's own file sets


def note_settings(run: Run, version: int, resource: tuple[int, str], keys: list[str] | None = None) -> None:
    """Record settings, and where their values come from, except what test brokers set."""
    row = DescribeConfigsResource(resource_type=resource[0], resource_name=resource[1], configuration_keys=keys)
    (found,) = run.prepare(DESCRIBE_CONFIGS, version, resources=[row], include_synonyms=True).results
    for row in sorted(found.configs, key=lambda row: str(row.name)):
        sources = [(each.name, each.source) for each in row.synonyms if each.source != STATIC]
        run.note(row.name, (row.config_type, sources))


@scenarios(DESCRIBE_CONFIGS, versions=[1, 4], releases=["4.4"])
def settings_of_others(run: Run, version: int) -> None:
    """The settings of a group, a broker and client metrics. One of the group's and of the metrics' is set."""
    changed = {GROUP: ("share.delivery.count.limit", 0, "3"), CLIENT_METRICS: ("interval.ms", 0, "1000")}
    for kind, change in changed.items():
        note_settings(run, version, (kind, run.name("g")))
        alter(run, 1, (kind, run.name("g")), change)
        run.sleep(SETTLE_MS)
        note_settings(run, version, (kind, run.name("g")), [change[0], "nosuch"])
    note_settings(run, version, (BROKER, "1"), [name for name in BROKER_SETTINGS if name not in CHANGED_BY_TESTS])
    note_settings(run, version, (BROKER, ""), ["num.partitions"])


METRICS_LIMITS: dict[str, tuple[str, ...]] = {
    "interval.ms": ("99", "100", "3600000", "3600001", "x", ""),
    "match": ("", "client_id=a", "nosuch=1", "client_id=(", "client_id"),
    "metrics": ("", "*", "a,b"),
    "nosuch": ("1",),
}


@scenarios(INCREMENTAL_ALTER_CONFIGS, versions=[1], cases=list(METRICS_LIMITS), releases=["4.4"])
def client_metrics_limits(run: Run, version: int, name: str) -> None:
    """Which values the settings of client metrics may have."""
    for value in METRICS_LIMITS[name]:
        alter(run, version, (CLIENT_METRICS, run.name("m")), (name, 0, value), validate_only=True)


@scenarios(CREATE_TOPICS, versions=[2])
def conflicting_configs(run: Run, version: int) -> None:
    """Two settings that exclude each other, at once and one after the other."""
    conflict = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    create(run, version, new_topic(run.name("u"), configs=conflict))
    topic = run.topic(min_compaction_lag_ms="10")
    alter(run, 1, (TOPIC, topic), ("max.compaction.lag.ms", 0, "5"))
    alter(run, 1, (TOPIC, topic), ("max.compaction.lag.ms", 0, "5"), ("min.compaction.lag.ms", 1, None))


@scenarios(CREATE_TOPICS, versions=[2], cases=VALUES)
def config_values(run: Run, version: int, config: tuple[str, str]) -> None:
    """The values of settings are checked by their types."""
    create(run, version, new_topic(run.name(), configs={config[0]: config[1]}))


NAMES = {"empty": "", "dot": ".", "dots": "..", "space": "a b", "long": "n" * 250, "longest": "n" * 249}


@scenarios(CREATE_TOPICS, versions=[2, 7], cases=NAMES)
def topic_names(run: Run, version: int, name: str) -> None:
    """Names that Kafka does not accept."""
    create(run, version, new_topic(name), validate_only=True)


@scenarios(CREATE_TOPICS, versions=[2, 5, 7])
def twice_in_a_request(run: Run, version: int) -> None:
    """A topic that a request names twice."""
    create(run, version, new_topic(run.name()), new_topic(run.name(), 2))
    partitions_of(run, run.name())


@scenarios(CREATE_TOPICS, versions=[2, 7])
def collision(run: Run, version: int) -> None:
    """Names that differ only by dots and underscores collide."""
    create(run, version, new_topic(run.name("a.b")))
    create(run, version, new_topic(run.name("a_b")))


@scenarios(DELETE_TOPICS)
def deleting(run: Run, version: int) -> None:
    """A topic is deleted; it does not exist the second time."""
    topic = run.topic()
    for _ in range(2):
        rows = [DeleteTopicState(name=topic)]
        run.call(DELETE_TOPICS, version, topic_names=[topic], topics=rows, timeout_ms=5000)
    partitions_of(run, topic)


@scenarios(DELETE_TOPICS, versions=[6])
def deleting_by_id(run: Run, version: int) -> None:
    """Topics are deleted by id; one does not exist."""
    topic = run.topic()
    topic_id = run.topic_id(topic)
    for rows in (
        [DeleteTopicState(name=topic, topic_id=topic_id)],
        [DeleteTopicState(name=None)],
        [DeleteTopicState(name=None, topic_id=UNKNOWN_ID)],
        [DeleteTopicState(name=None, topic_id=topic_id)],
    ):
        run.call(DELETE_TOPICS, version, topics=rows, timeout_ms=5000)
    partitions_of(run, topic)


@scenarios(DELETE_TOPICS, versions=[1, 5, 6])
def deleting_several(run: Run, version: int) -> None:
    """One topic exists and one does not, and one is named twice."""
    topic = run.topic()
    for names in ([topic, topic], [topic, run.name("none")]):
        rows = [DeleteTopicState(name=name) for name in names]
        run.call(DELETE_TOPICS, version, topic_names=names, topics=rows, timeout_ms=5000)


@scenarios(DELETE_TOPICS, versions=[5, 6])
def created_again(run: Run, version: int) -> None:
    """A topic that is created again has another id."""
    topic = run.topic()
    rows = [MetadataRequestTopic(name=topic)]
    run.call(METADATA, 12, topics=rows)
    run.call(DELETE_TOPICS, version, topic_names=[topic], topics=[DeleteTopicState(name=topic)], timeout_ms=5000)
    run.sleep(300)
    run.topic()
    run.call(METADATA, 12, topics=rows)


COUNTS = {"more": 3, "same": 2, "fewer": 1, "zero": 0, "negative": -1}


@scenarios(CREATE_PARTITIONS, cases=COUNTS)
def more_partitions(run: Run, version: int, count: int) -> None:
    """Partitions are added, never removed."""
    topic = run.topic(partitions=2)
    rows = [CreatePartitionsTopic(name=topic, count=count, assignments=None)]
    run.call(CREATE_PARTITIONS, version, topics=rows, timeout_ms=5000)
    partitions_of(run, topic)


ASSIGNED = {"one": [[1]], "too-many": [[1], [1]], "unknown": [[9]], "nothing": [], "no-replicas": [[]], "two": [[1, 1]]}


@scenarios(CREATE_PARTITIONS, versions=[0, 3], cases=ASSIGNED)
def assigned_partitions(run: Run, version: int, assigned: list[list[int]]) -> None:
    """New partitions with chosen replicas."""
    topic = run.topic()
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
    rows = [CreatePartitionsTopic(name=topic, count=2, assignments=assignments)]
    run.call(CREATE_PARTITIONS, version, topics=rows, timeout_ms=5000)


@scenarios(CREATE_PARTITIONS, versions=[0, 2, 3])
def partitions_of_unknown_topics(run: Run, version: int) -> None:
    """A topic that does not exist, one that is named twice, and one that is only validated."""
    topic = run.topic()
    for names in ([run.name("none")], [topic, topic], [topic]):
        rows = [CreatePartitionsTopic(name=name, count=4, assignments=None) for name in names]
        run.call(CREATE_PARTITIONS, version, topics=rows, timeout_ms=5000, validate_only=len(names) == 1)
    partitions_of(run, topic)


KEYS = ["cleanup.policy", "max.message.bytes", "segment.bytes", "no.such.config"]


@scenarios(DESCRIBE_CONFIGS)
def describing(run: Run, version: int) -> None:
    """Some settings of a topic: one is set, others have their defaults, and one does not exist."""
    topic = run.topic(max_message_bytes="12345")
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=KEYS)
    run.call(DESCRIBE_CONFIGS, version, resources=[resource])


RESOURCES = {
    "unknown-topic": (TOPIC, "none"),
    "empty-topic": (TOPIC, ""),
    "wrong-name": (TOPIC, "a b"),
    "unknown-broker": (BROKER, "17"),
    "no-number": (BROKER, "x"),
    "unknown-type": (77, "x"),
}


@scenarios(DESCRIBE_CONFIGS, versions=[1, 4], cases=RESOURCES)
def unknown_resources(run: Run, version: int, what: tuple[int, str]) -> None:
    """Resources that do not exist."""
    resource = DescribeConfigsResource(resource_type=what[0], resource_name=what[1], configuration_keys=None)
    run.call(DESCRIBE_CONFIGS, version, resources=[resource])


def alter(
    run: Run, version: int, resource: tuple[int, str], *changes: tuple[str, int, str | None], **fields: Any
) -> None:
    """Record the response to IncrementalAlterConfigs of one resource."""
    configs = [AlterableConfig(name=name, config_operation=kind, value=value) for name, kind, value in changes]
    rows = [AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)]
    run.call(INCREMENTAL_ALTER_CONFIGS, version, resources=rows, **fields)


CHANGES: dict[str, tuple[str, int, str | None]] = {
    "set": ("max.message.bytes", 0, "777"),
    "delete": ("max.message.bytes", 1, None),
    "append": ("cleanup.policy", 2, "compact"),
    "subtract": ("cleanup.policy", 3, "delete"),
    "append-number": ("max.message.bytes", 2, "1"),
    "wrong-value": ("max.message.bytes", 0, "many"),
    "null": ("max.message.bytes", 0, None),
    "unknown": ("no.such.config", 0, "1"),
    "unknown-deleted": ("no.such.config", 1, None),
    "unknown-appended": ("no.such.config", 2, "1"),
    "unknown-operation": ("max.message.bytes", 9, "1"),
}


@scenarios(INCREMENTAL_ALTER_CONFIGS, cases=CHANGES)
def altering(run: Run, version: int, change: tuple[str, int, str | None]) -> None:
    """A setting of a topic is changed."""
    topic = run.topic(max_message_bytes="12345")
    alter(run, version, (TOPIC, topic), change)
    run.sleep(300)
    keys = ["max.message.bytes", "cleanup.policy"]
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=keys)
    run.call(DESCRIBE_CONFIGS, 1, resources=[resource])


LISTS: dict[str, tuple[tuple[int, str | None], ...]] = {
    "cleanup.policy": ((2, "delete"), (2, "burn"), (3, "compact"), (3, "burn"), (2, ""), (2, "compact,delete"),
                       (0, "delete,delete"), (0, "delete, compact"), (3, "delete"), (3, ""), (1, "x")),
    "follower.replication.throttled.replicas": ((2, "0:1"), (2, "1:1"), (2, "*"), (3, "0:1"), (3, "1:1,*"), (2, "x")),
}  # fmt: skip


@scenarios(INCREMENTAL_ALTER_CONFIGS, versions=[1], cases=list(LISTS), releases=["4.4"])
def lists(run: Run, version: int, name: str) -> None:
    """What is appended to lists and subtracted from them, one after the other."""
    topic = run.topic()
    for operation, value in LISTS[name]:
        alter(run, version, (TOPIC, topic), (name, operation, value))
        run.sleep(SETTLE_MS)
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[name])
        (found,) = run.prepare(DESCRIBE_CONFIGS, 1, resources=[resource]).results
        run.note("setting", [(row.value, row.config_source) for row in found.configs])


#: Settings that test brokers change, or that a real cluster keeps as a dynamic setting.
CHANGED_BY_TESTS = ("default.replication.factor", "file.delete.delay.ms", "min.insync.replicas", "retention.ms")


@scenarios(DESCRIBE_CONFIGS, versions=[1, 4], releases=["4.4"])
def synonyms(run: Run, version: int) -> None:
    """Where a value comes from, if the client wants to know, of a setting that is set and of others."""
    topic = run.topic(max_message_bytes="12345", min_insync_replicas="1")
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    (found,) = run.prepare(DESCRIBE_CONFIGS, version, resources=[resource], include_synonyms=True).results
    for row in sorted(found.configs, key=lambda row: str(row.name)):
        if row.name not in CHANGED_BY_TESTS:
            run.note(row.name, [(each.name, each.value, each.source) for each in row.synonyms])


@scenarios(CREATE_TOPICS, versions=[7], releases=["4.4"])
def many_partitions(run: Run, version: int) -> None:
    """A request has a limited number of partitions."""
    create(run, version, new_topic(run.name(), 10_001), validate_only=True)
    create(run, version, new_topic(run.name("a"), 6000), new_topic(run.name("b"), 6000), validate_only=True)
    rows = [CreatePartitionsTopic(name=run.topic("c"), count=10_002, assignments=None)]
    run.call(CREATE_PARTITIONS, 3, topics=rows, timeout_ms=5000, validate_only=True)


@scenarios(INCREMENTAL_ALTER_CONFIGS, versions=[1], cases=["unknown-topic", "twice", "validated"])
def altering_nothing(run: Run, version: int, case: str) -> None:
    """Requests that change nothing."""
    topic = run.topic()
    change = ("max.message.bytes", 0, "777")
    if case == "unknown-topic":
        alter(run, version, (TOPIC, run.name("none")), change)
    elif case == "twice":
        alter(run, version, (TOPIC, topic), change, ("max.message.bytes", 0, "888"))
    else:
        alter(run, version, (TOPIC, topic), change, validate_only=True)
    run.sleep(300)
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[change[0]])
    run.call(DESCRIBE_CONFIGS, 1, resources=[resource])


REPLACEMENTS: dict[str, list[tuple[str, str | None]]] = {
    "nothing": [],
    "another": [("retention.ms", "1000")],
    "the-same": [("max.message.bytes", "777"), ("cleanup.policy", "compact")],
    "twice": [("max.message.bytes", "777"), ("max.message.bytes", "888")],
    "wrong-value": [("max.message.bytes", "many")],
    "null": [("max.message.bytes", None)],
    "unknown": [("no.such.config", "1")],
}


@scenarios(ALTER_CONFIGS, cases=REPLACEMENTS)
def replacing(run: Run, version: int, given: list[tuple[str, str | None]]) -> None:
    """All settings of a topic are replaced, first only to see whether they can be; and those of no topic."""
    topics = [run.topic(max_message_bytes="12345"), run.name("none")]
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in given]
    rows = [ReplacedConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs) for topic in topics]
    keys = ["max.message.bytes", "cleanup.policy", "retention.ms"]
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topics[0], configuration_keys=keys)
    for validate_only in (True, False):
        run.call(ALTER_CONFIGS, version, resources=rows, validate_only=validate_only)
        run.sleep(300)
        run.call(DESCRIBE_CONFIGS, 1, resources=[resource])
