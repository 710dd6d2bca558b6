"""The APIs by which an administrator creates, changes and deletes topics. `kconsumer.testing` serves them.

They are CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeConfigs, AlterConfigs,
IncrementalAlterConfigs, DescribeCluster and DescribeTopicPartitions.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Api, F, Message, array
from kconsumer.schema.metadata import NO_AUTHORIZED_OPERATIONS

# --- CreateTopics -------------------------------------------------------------------------------------------
# Since v4 the broker decides the number of partitions and replicas if they are -1 (KIP-464). Since v5 the response has
# the configuration of the new topic (KIP-525), since v7 its id.


class CreatableReplicaAssignment(Message):
    partition_index: int = F(INT32)
    broker_ids: list[int] = F(array(INT32))


class CreatableTopicConfig(Message):
    name: str = F(STRING)
    value: str | None = F(STRING, null="0+")


class CreatableTopic(Message):
    name: str = F(STRING)
    num_partitions: int = F(INT32)
    replication_factor: int = F(INT16)
    assignments: list[CreatableReplicaAssignment] = F(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = F(array(CreatableTopicConfig))


class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = F(array(CreatableTopic))
    timeout_ms: int = F(INT32, default=60_000)
    validate_only: bool = F(BOOL, "1+")


class CreatableTopicConfigs(Message):
    name: str = F(STRING, "5+")
    value: str | None = F(STRING, "5+", null="5+")
    read_only: bool = F(BOOL, "5+")
    config_source: int = F(INT8, "5+", default=-1)
    is_sensitive: bool = F(BOOL, "5+")


class CreatableTopicResult(Message):
    name: str = F(STRING)
    topic_id: bytes = F(UUID, "7+")
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "1+", null="0+")
    topic_config_error_code: int = F(INT16, "5+", tag=0)
    num_partitions: int = F(INT32, "5+", default=-1)
    replication_factor: int = F(INT16, "5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = F(array(CreatableTopicConfigs), "5+", null="5+")


class CreateTopicsResponse(Message):
    throttle_time_ms: int = F(INT32, "2+")
    topics: list[CreatableTopicResult] = F(array(CreatableTopicResult))


CREATE_TOPICS = Api(CreateTopicsRequest, CreateTopicsResponse, key=19, versions="2-7", flexible=5, throttle=3)

# --- DeleteTopics -------------------------------------------------------------------------------------------
# Since v6 a topic may be named by its id.


class DeleteTopicState(Message):
    name: str | None = F(STRING, "6+", null="6+", default=None)
    topic_id: bytes = F(UUID, "6+")


class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = F(array(DeleteTopicState), "6+")
    topic_names: list[str] = F(array(STRING), "0-5")
    timeout_ms: int = F(INT32)


class DeletableTopicResult(Message):
    name: str | None = F(STRING, null="6+")
    topic_id: bytes = F(UUID, "6+")
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "5+", null="5+", default=None)


class DeleteTopicsResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    responses: list[DeletableTopicResult] = F(array(DeletableTopicResult))


DELETE_TOPICS = Api(DeleteTopicsRequest, DeleteTopicsResponse, key=20, versions="1-6", flexible=4, throttle=2)

# --- CreatePartitions ---------------------------------------------------------------------------------------


class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = F(array(INT32))


class CreatePartitionsTopic(Message):
    name: str = F(STRING)
    count: int = F(INT32)
    assignments: list[CreatePartitionsAssignment] | None = F(array(CreatePartitionsAssignment), null="0+")


class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = F(array(CreatePartitionsTopic))
    timeout_ms: int = F(INT32)
    validate_only: bool = F(BOOL)


class CreatePartitionsTopicResult(Message):
    name: str = F(STRING)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)


class CreatePartitionsResponse(Message):
    throttle_time_ms: int = F(INT32)
    results: list[CreatePartitionsTopicResult] = F(array(CreatePartitionsTopicResult))


CREATE_PARTITIONS = Api(
    CreatePartitionsRequest, CreatePartitionsResponse, key=37, versions="0-3", flexible=2, throttle=1
)

# --- DeleteRecords ------------------------------------------------------------------------------------------


class DeleteRecordsPartition(Message):
    partition_index: int = F(INT32)
    offset: int = F(INT64)


class DeleteRecordsTopic(Message):
    name: str = F(STRING)
    partitions: list[DeleteRecordsPartition] = F(array(DeleteRecordsPartition))


class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = F(array(DeleteRecordsTopic))
    timeout_ms: int = F(INT32)


class DeleteRecordsPartitionResult(Message):
    partition_index: int = F(INT32)
    low_watermark: int = F(INT64)
    error_code: int = F(INT16)


class DeleteRecordsTopicResult(Message):
    name: str = F(STRING)
    partitions: list[DeleteRecordsPartitionResult] = F(array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Message):
    throttle_time_ms: int = F(INT32)
    topics: list[DeleteRecordsTopicResult] = F(array(DeleteRecordsTopicResult))


DELETE_RECORDS = Api(DeleteRecordsRequest, DeleteRecordsResponse, key=21, versions="0-2", flexible=2, throttle=1)

# --- DescribeConfigs ----------------------------------------------------------------------------------------


class DescribeConfigsResource(Message):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configuration_keys: list[str] | None = F(array(STRING), null="0+")


class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = F(array(DescribeConfigsResource))
    include_synonyms: bool = F(BOOL, "1+")
    include_documentation: bool = F(BOOL, "3+")


class DescribeConfigsSynonym(Message):
    name: str = F(STRING, "1+")
    value: str | None = F(STRING, "1+", null="0+")
    source: int = F(INT8, "1+")


class DescribeConfigsResourceResult(Message):
    name: str = F(STRING)
    value: str | None = F(STRING, null="0+")
    read_only: bool = F(BOOL)
    config_source: int = F(INT8, "1+", default=-1)
    is_sensitive: bool = F(BOOL)
    synonyms: list[DescribeConfigsSynonym] = F(array(DescribeConfigsSynonym), "1+")
    config_type: int = F(INT8, "3+")
    documentation: str | None = F(STRING, "3+", null="0+")


class DescribeConfigsResult(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+")
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configs: list[DescribeConfigsResourceResult] = F(array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Message):
    throttle_time_ms: int = F(INT32)
    results: list[DescribeConfigsResult] = F(array(DescribeConfigsResult))


DESCRIBE_CONFIGS = Api(DescribeConfigsRequest, DescribeConfigsResponse, key=32, versions="1-4", flexible=4, throttle=2)

# --- IncrementalAlterConfigs --------------------------------------------------------------------------------


class AlterableConfig(Message):
    name: str = F(STRING)
    config_operation: int = F(INT8)
    value: str | None = F(STRING, null="0+")


class AlterConfigsResource(Message):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configs: list[AlterableConfig] = F(array(AlterableConfig))


class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = F(array(AlterConfigsResource))
    validate_only: bool = F(BOOL)


class AlterConfigsResourceResponse(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+")
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)


class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = F(INT32)
    responses: list[AlterConfigsResourceResponse] = F(array(AlterConfigsResourceResponse))


INCREMENTAL_ALTER_CONFIGS = Api(
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, key=44, versions="0-1", flexible=1, throttle=0
)

# --- AlterConfigs -------------------------------------------------------------------------------------------
# The settings of a request replace all that the resource has itself.


class ReplacedConfigsResource(Message):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configs: list[CreatableTopicConfig] = F(array(CreatableTopicConfig))


class AlterConfigsRequest(Message):
    resources: list[ReplacedConfigsResource] = F(array(ReplacedConfigsResource))
    validate_only: bool = F(BOOL)


class AlterConfigsResponse(Message):
    throttle_time_ms: int = F(INT32)
    responses: list[AlterConfigsResourceResponse] = F(array(AlterConfigsResourceResponse))


ALTER_CONFIGS = Api(AlterConfigsRequest, AlterConfigsResponse, key=33, versions="0-2", flexible=2, throttle=1)

# --- DescribeCluster ----------------------------------------------------------------------------------------
# v1 adds the endpoint type: 1 for brokers, 2 for controllers (KIP-919). v2 adds fenced brokers (KIP-1073).


class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = F(BOOL)
    endpoint_type: int = F(INT8, "1+", default=1)
    include_fenced_brokers: bool = F(BOOL, "2+")


class DescribeClusterBroker(Message):
    broker_id: int = F(INT32)
    host: str = F(STRING)
    port: int = F(INT32)
    rack: str | None = F(STRING, null="0+", default=None)
    is_fenced: bool = F(BOOL, "2+")


class DescribeClusterResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    endpoint_type: int = F(INT8, "1+", default=1)
    cluster_id: str = F(STRING)
    controller_id: int = F(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = F(array(DescribeClusterBroker))
    cluster_authorized_operations: int = F(INT32, default=NO_AUTHORIZED_OPERATIONS)


DESCRIBE_CLUSTER = Api(DescribeClusterRequest, DescribeClusterResponse, key=60, versions="0-2", flexible=0, throttle=0)

# --- DescribeTopicPartitions --------------------------------------------------------------------------------
# Returns topics in pages, with the replicas that are eligible to lead (KIP-966).


class Cursor(Message):
    topic_name: str = F(STRING)
    partition_index: int = F(INT32)


class DescribedTopicRequest(Message):
    name: str = F(STRING)


class DescribeTopicPartitionsRequest(Message):
    topics: list[DescribedTopicRequest] = F(array(DescribedTopicRequest))
    response_partition_limit: int = F(INT32, default=2000)
    cursor: Cursor | None = F(Cursor, null="0+", default=None)


class DescribedPartition(Message):
    error_code: int = F(INT16)
    partition_index: int = F(INT32)
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32, default=-1)
    replica_nodes: list[int] = F(array(INT32))
    isr_nodes: list[int] = F(array(INT32))
    eligible_leader_replicas: list[int] | None = F(array(INT32), null="0+", default=None)
    last_known_elr: list[int] | None = F(array(INT32), null="0+", default=None)
    offline_replicas: list[int] = F(array(INT32))


class DescribedTopic(Message):
    error_code: int = F(INT16)
    name: str | None = F(STRING, null="0+")
    topic_id: bytes = F(UUID)
    is_internal: bool = F(BOOL)
    partitions: list[DescribedPartition] = F(array(DescribedPartition))
    topic_authorized_operations: int = F(INT32, default=NO_AUTHORIZED_OPERATIONS)


class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = F(INT32)
    topics: list[DescribedTopic] = F(array(DescribedTopic))
    next_cursor: Cursor | None = F(Cursor, null="0+", default=None)


DESCRIBE_TOPIC_PARTITIONS = Api(
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, key=75, versions="0", flexible=0, throttle=0
)
