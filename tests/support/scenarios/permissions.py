"""Scenarios of what a client may do with topics, groups and transactional ids that access control lists name."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.acls import CREATE_ACLS
from kconsumer.schema.admin import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS
from kconsumer.schema.classic_group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    JoinGroupRequestProtocol,
    MemberIdentity,
)
from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchTopic
from kconsumer.schema.group_deletion import (
    DELETE_GROUPS,
    OFFSET_DELETE,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kconsumer.schema.metadata import FIND_COORDINATOR, METADATA, MetadataRequestTopic
from kconsumer.schema.offsets import (
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    ListOffsetsPartition,
    ListOffsetsTopic,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, TopicProduceData
from kconsumer.schema.share_group import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kconsumer.schema.topics import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    CreatableTopicConfig,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsTopic,
    DeleteTopicState,
    DescribeConfigsResource,
    DescribedTopicRequest,
    ReplacedConfigsResource,
)
from kconsumer.schema.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    TopicRequest,
)
from kconsumer.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AddPartitionsToTxnTopic,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.scenarios.admin import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, creation
from support.scenarios.classic_groups import subscription
from support.scenarios.produce import batch
from support.scenarios.scenario import SETTLE_MS, Run, scenarios
from support.scenarios.topics import new_topic

CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIG, ALTER_CONFIG = 5, 6, 7, 8, 10, 11
READ, WRITE, CLUSTER_ACTION = 3, 4, 9
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"

OPERATIONS = {
    "read": READ,
    "write": WRITE,
    "create": CREATE,
    "delete": DELETE,
    "alter": ALTER,
    "describe": DESCRIBE,
    "describe-configs": DESCRIBE_CONFIG,
    "alter-configs": ALTER_CONFIG,
}
OF_GROUPS = ("read", "delete", "describe", "describe-configs", "alter-configs")
Given = tuple[tuple[int, int], ...]  # resource types and operations
CASES: dict[str, Given] = {
    "nothing": (),
    **{f"topic-{name}": ((TOPIC, number),) for name, number in OPERATIONS.items()},
    **{f"group-{name}": ((GROUP, OPERATIONS[name]),) for name in OF_GROUPS},
    **{f"id-{name}": ((TRANSACTIONAL_ID, OPERATIONS[name]),) for name in ("write", "describe")},
    "topic-and-group-read": ((TOPIC, READ), (GROUP, READ)),
    "topic-and-group-describe": ((TOPIC, DESCRIBE), (GROUP, DESCRIBE)),
    "topic-read-group-delete": ((TOPIC, READ), (GROUP, DELETE)),
    "topic-describe-group-read": ((TOPIC, DESCRIBE), (GROUP, READ)),
    "topic-and-id-write": ((TOPIC, WRITE), (TRANSACTIONAL_ID, WRITE)),
    "id-write-group-read": ((TRANSACTIONAL_ID, WRITE), (GROUP, READ)),
    "topic-create-and-describe-configs": ((TOPIC, CREATE), (TOPIC, DESCRIBE_CONFIG)),
}


@scenarios(CREATE_ACLS, versions=[3], cases=CASES, authorizer="acls", releases=["4.4"])
def one_permission(run: Run, version: int, given: Given) -> None:
    """What a client may do that has some permissions for a topic, its groups and its transactional id."""
    topic, topic_id = run.topic(), b""
    topic_id = run.topic_id(topic)
    run.produce_values(topic, b"one")
    group, transactional_id = run.name("g"), run.name("x")
    run.prepare(OFFSET_COMMIT, 9, **commit(group, topic))
    producer = run.prepare(INIT_PRODUCER_ID, 4, transactional_id=transactional_id, transaction_timeout_ms=60_000)
    named = {
        TOPIC: [topic, run.name("n")],
        GROUP: [run.name(name) for name in "gcsj"],
        TRANSACTIONAL_ID: [transactional_id],
    }
    entries = [(kind, WRITE if kind == TRANSACTIONAL_ID else READ, "User:other") for kind in named]
    entries += [(kind, operation, "User:ANONYMOUS") for kind, operation in given]
    named[CLUSTER] = [
        "kafka-cluster"
    ]  # what the broker itself does as the same principal, and what this scenario needs
    entries += [(CLUSTER, operation, "User:ANONYMOUS") for operation in (ALTER, CLUSTER_ACTION)]
    rows = [
        creation(run, resource_type=kind, resource_name=name, operation=operation, principal=principal)
        for kind, operation, principal in entries
        for name in named[kind]
    ]
    run.prepare(CREATE_ACLS, version, creations=rows)
    run.sleep(3 * SETTLE_MS)
    of_topics(run, topic, topic_id)
    of_settings(run, topic, group)
    of_offsets(run, group, topic)
    of_groups(run, topic)
    of_transactions(run, topic, producer)
    of_administrators(run, topic, topic_id)


def commit(group: str, topic: str) -> dict[str, Any]:
    """Returns the fields of OffsetCommit."""
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return {"group_id": group, "topics": [OffsetCommitRequestTopic(name=topic, partitions=[row])]}


def of_topics(run: Run, topic: str, topic_id: bytes) -> None:
    """Record what reads and describes a topic, and writes to it."""
    for row in (MetadataRequestTopic(name=topic), MetadataRequestTopic(name=run.name("n"))):
        run.call(METADATA, 9, topics=[row], include_topic_authorized_operations=True)
    run.call(METADATA, 12, topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    times = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    run.call(LIST_OFFSETS, 7, topics=[ListOffsetsTopic(name=topic, partitions=times)])
    epochs = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    run.call(OFFSET_FOR_LEADER_EPOCH, 4, topics=[OffsetForLeaderTopic(topic=topic, partitions=epochs)])
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    for version, name in ((12, {"topic": topic}), (13, {"topic_id": topic_id})):
        run.call(FETCH, version, max_wait_ms=0, topics=[FetchTopic(**name, partitions=wanted)])
    written = [PartitionProduceData(index=0, records=batch(b"a"))]
    for version, name in ((9, {"name": topic}), (13, {"topic_id": topic_id})):
        run.call(
            PRODUCE, version, acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(**name, partition_data=written)]
        )
    run.call(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[DescribedTopicRequest(name=topic)])
    run.call(DESCRIBE_PRODUCERS, 0, topics=[TopicRequest(name=topic, partition_indexes=[0])])


def of_settings(run: Run, topic: str, group: str) -> None:
    """Record what describes and changes settings of a topic and a group."""
    for kind, name, key, value in (
        (TOPIC_RESOURCE, topic, "max.message.bytes", "777777"),
        (GROUP_RESOURCE, group, "consumer.session.timeout.ms", "7000"),
    ):
        change = AlterableConfig(name=key, value=value)
        row = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        run.call(INCREMENTAL_ALTER_CONFIGS, 1, resources=[row], validate_only=True)
        setting = CreatableTopicConfig(name=key, value=value)
        whole = ReplacedConfigsResource(resource_type=kind, resource_name=name, configs=[setting])
        run.call(ALTER_CONFIGS, 2, resources=[whole], validate_only=True)
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
        run.call(DESCRIBE_CONFIGS, 4, resources=[asked])


def of_offsets(run: Run, group: str, topic: str) -> None:
    """Record what reads, commits and deletes offsets of a group."""
    run.call(OFFSET_COMMIT, 9, **commit(group, topic))
    for topics in ([OffsetFetchRequestTopics(name=topic, partition_indexes=[0])], None):
        run.call(OFFSET_FETCH, 9, groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    row = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    run.call(OFFSET_DELETE, 0, group_id=group, topics=[row])
    run.call(OFFSET_COMMIT, 9, **commit(group, topic))
    share = run.name("s")
    start = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
    altered = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=start)]
    run.call(ALTER_SHARE_GROUP_OFFSETS, 0, group_id=share, topics=altered)
    for described in ([DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])], None):
        asked = [DescribeShareGroupOffsetsRequestGroup(group_id=share, topics=described)]
        run.call(DESCRIBE_SHARE_GROUP_OFFSETS, 0, groups=asked)
    run.call(
        DELETE_SHARE_GROUP_OFFSETS,
        0,
        group_id=share,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic)],
    )


def of_groups(run: Run, topic: str) -> None:
    """Record what joins, describes and deletes groups."""
    group = run.name("j")
    run.call(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
    run.call(FIND_COORDINATOR, 3, key_type=0, key=group)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(topic))]
    joined: dict[str, Any] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    run.call(JOIN_GROUP, 3, group_id=group, member_id="m", protocols=protocols, **joined)
    run.call(SYNC_GROUP, 3, group_id=group, generation_id=1, member_id="m", assignments=[])
    run.call(HEARTBEAT, 3, group_id=group, generation_id=1, member_id="m")
    run.call(LEAVE_GROUP, 3, group_id=group, members=[MemberIdentity(member_id="m")])
    run.call(DESCRIBE_GROUPS, 5, groups=[run.name("g")], include_authorized_operations=True)
    members: dict[str, Any] = {"member_id": MEMBER, "member_epoch": 0, "subscribed_topic_names": [topic]}
    consumer, share = run.name("c"), run.name("s")
    run.call(CONSUMER_GROUP_HEARTBEAT, 1, group_id=consumer, rebalance_timeout_ms=5000, topic_partitions=[], **members)
    run.call(CONSUMER_GROUP_DESCRIBE, 1, group_ids=[consumer], include_authorized_operations=True)
    run.call(CONSUMER_GROUP_HEARTBEAT, 1, group_id=consumer, member_id=MEMBER, member_epoch=-1)
    found = run.prepare(SHARE_GROUP_HEARTBEAT, 1, group_id=share, **members)
    run.note("joins the share group", found.error_code)
    found = run.prepare(SHARE_GROUP_DESCRIBE, 1, group_ids=[share], include_authorized_operations=True)
    run.note("describes it", [(row.error_code, row.authorized_operations) for row in found.groups])
    found = run.prepare(SHARE_GROUP_HEARTBEAT, 1, group_id=share, member_id=MEMBER, member_epoch=-1)
    run.note("leaves it", found.error_code)


def of_transactions(run: Run, topic: str, producer: Any) -> None:
    """Record the requests of a transactional producer."""
    transactional_id, group = run.name("x"), run.name("g")
    run.call(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[transactional_id])
    run.call(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60_000)
    named = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    before = {f"v3_and_below_{name}": value for name, value in named.items()}
    rows = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    run.call(
        ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_topics=rows,
        **before,
    )
    run.call(ADD_OFFSETS_TO_TXN, 3, transactional_id=transactional_id, group_id=group, **named)
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    offsets = [TxnOffsetCommitRequestTopic(name=topic, partitions=[offset])]
    run.call(TXN_OFFSET_COMMIT, 3, transactional_id=transactional_id, group_id=group, topics=offsets, **named)
    data = batch(b"a", base_sequence=0, transactional=True, **named)
    written = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])]
    for name in (transactional_id, None):
        run.call(PRODUCE, 9, transactional_id=name, acks=-1, timeout_ms=5000, topic_data=written)
    found = run.prepare(DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id])
    run.note(
        "describes it", [(row.error_code, row.transaction_state, row.topics != []) for row in found.transaction_states]
    )
    run.call(END_TXN, 3, transactional_id=transactional_id, committed=True, **named)
    found = run.prepare(LIST_TRANSACTIONS, 0)
    run.note("lists it", [row.transactional_id == transactional_id for row in found.transaction_states].count(True))


def of_administrators(run: Run, topic: str, topic_id: bytes) -> None:
    """Record what creates, enlarges and deletes."""
    new = run.name("n")
    for version in (4, 7):
        run.call(CREATE_TOPICS, version, topics=[new_topic(new, 2)], timeout_ms=5000, validate_only=True)
    run.call(
        CREATE_PARTITIONS,
        3,
        topics=[CreatePartitionsTopic(name=topic, count=2, assignments=None)],
        timeout_ms=5000,
        validate_only=True,
    )
    row = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    run.call(DELETE_RECORDS, 2, topics=[row], timeout_ms=5000)
    run.call(DELETE_GROUPS, 2, groups_names=[run.name("g")])
    run.call(DELETE_TOPICS, 6, topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=5000)
    run.call(DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=5000)
