"""The APIs by which an administrator creates, changes and deletes topics. `kconsumer.testing` serves them.

They are CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeConfigs, IncrementalAlterConfigs and
DescribeCluster.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, F, api, array, struct
from kconsumer.schema.metadata import NO_AUTHORIZED_OPERATIONS

# --- CreateTopics -------------------------------------------------------------------------------------------
# Since v4 the broker decides the number of partitions and replicas if they are -1 (KIP-464). Since v5 the response has
# the configuration of the new topic (KIP-525), since v7 its id.

CreatableReplicaAssignment = struct(
    "CreatableReplicaAssignment",
    F("partition_index", INT32),
    F("broker_ids", array(INT32)),
)

CreatableTopicConfig = struct(
    "CreatableTopicConfig",
    F("name", STRING),
    F("value", STRING, null="0+"),
)

CreatableTopic = struct(
    "CreatableTopic",
    F("name", STRING),
    F("num_partitions", INT32),
    F("replication_factor", INT16),
    F("assignments", array(CreatableReplicaAssignment)),
    F("configs", array(CreatableTopicConfig)),
)

CreateTopicsRequest = struct(
    "CreateTopicsRequest",
    F("topics", array(CreatableTopic)),
    F("timeout_ms", INT32, default=60_000),
    F("validate_only", BOOL, "1+"),
)

CreatableTopicConfigs = struct(
    "CreatableTopicConfigs",
    F("name", STRING, "5+"),
    F("value", STRING, "5+", null="5+"),
    F("read_only", BOOL, "5+"),
    F("config_source", INT8, "5+", default=-1),
    F("is_sensitive", BOOL, "5+"),
)

CreatableTopicResult = struct(
    "CreatableTopicResult",
    F("name", STRING),
    F("topic_id", UUID, "7+"),
    F("error_code", INT16),
    F("error_message", STRING, "1+", null="0+"),
    F("topic_config_error_code", INT16, "5+", tag=0),
    F("num_partitions", INT32, "5+", default=-1),
    F("replication_factor", INT16, "5+", default=-1),
    F("configs", array(CreatableTopicConfigs), "5+", null="5+"),
)

CreateTopicsResponse = struct(
    "CreateTopicsResponse",
    F("throttle_time_ms", INT32, "2+"),
    F("topics", array(CreatableTopicResult)),
)

CREATE_TOPICS = api(
    "CreateTopics",
    key=19,
    versions="2-7",
    flexible=5,
    throttle=3,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
)

# --- DeleteTopics -------------------------------------------------------------------------------------------
# Since v6 a topic may be named by its id.

DeleteTopicState = struct(
    "DeleteTopicState",
    F("name", STRING, "6+", null="6+", default=None),
    F("topic_id", UUID, "6+"),
)

DeleteTopicsRequest = struct(
    "DeleteTopicsRequest",
    F("topics", array(DeleteTopicState), "6+"),
    F("topic_names", array(STRING), "0-5"),
    F("timeout_ms", INT32),
)

DeletableTopicResult = struct(
    "DeletableTopicResult",
    F("name", STRING, null="6+"),
    F("topic_id", UUID, "6+"),
    F("error_code", INT16),
    F("error_message", STRING, "5+", null="5+", default=None),
)

DeleteTopicsResponse = struct(
    "DeleteTopicsResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("responses", array(DeletableTopicResult)),
)

DELETE_TOPICS = api(
    "DeleteTopics",
    key=20,
    versions="1-6",
    flexible=4,
    throttle=2,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
)

# --- CreatePartitions ---------------------------------------------------------------------------------------

CreatePartitionsAssignment = struct(
    "CreatePartitionsAssignment",
    F("broker_ids", array(INT32)),
)

CreatePartitionsTopic = struct(
    "CreatePartitionsTopic",
    F("name", STRING),
    F("count", INT32),
    F("assignments", array(CreatePartitionsAssignment), null="0+"),
)

CreatePartitionsRequest = struct(
    "CreatePartitionsRequest",
    F("topics", array(CreatePartitionsTopic)),
    F("timeout_ms", INT32),
    F("validate_only", BOOL),
)

CreatePartitionsTopicResult = struct(
    "CreatePartitionsTopicResult",
    F("name", STRING),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
)

CreatePartitionsResponse = struct(
    "CreatePartitionsResponse",
    F("throttle_time_ms", INT32),
    F("results", array(CreatePartitionsTopicResult)),
)

CREATE_PARTITIONS = api(
    "CreatePartitions",
    key=37,
    versions="0-3",
    flexible=2,
    throttle=1,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)

# --- DeleteRecords ------------------------------------------------------------------------------------------

DeleteRecordsPartition = struct(
    "DeleteRecordsPartition",
    F("partition_index", INT32),
    F("offset", INT64),
)

DeleteRecordsTopic = struct(
    "DeleteRecordsTopic",
    F("name", STRING),
    F("partitions", array(DeleteRecordsPartition)),
)

DeleteRecordsRequest = struct(
    "DeleteRecordsRequest",
    F("topics", array(DeleteRecordsTopic)),
    F("timeout_ms", INT32),
)

DeleteRecordsPartitionResult = struct(
    "DeleteRecordsPartitionResult",
    F("partition_index", INT32),
    F("low_watermark", INT64),
    F("error_code", INT16),
)

DeleteRecordsTopicResult = struct(
    "DeleteRecordsTopicResult",
    F("name", STRING),
    F("partitions", array(DeleteRecordsPartitionResult)),
)

DeleteRecordsResponse = struct(
    "DeleteRecordsResponse",
    F("throttle_time_ms", INT32),
    F("topics", array(DeleteRecordsTopicResult)),
)

DELETE_RECORDS = api(
    "DeleteRecords",
    key=21,
    versions="0-2",
    flexible=2,
    throttle=1,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
)

# --- DescribeConfigs ----------------------------------------------------------------------------------------

DescribeConfigsResource = struct(
    "DescribeConfigsResource",
    F("resource_type", INT8),
    F("resource_name", STRING),
    F("configuration_keys", array(STRING), null="0+"),
)

DescribeConfigsRequest = struct(
    "DescribeConfigsRequest",
    F("resources", array(DescribeConfigsResource)),
    F("include_synonyms", BOOL, "1+"),
    F("include_documentation", BOOL, "3+"),
)

DescribeConfigsSynonym = struct(
    "DescribeConfigsSynonym",
    F("name", STRING, "1+"),
    F("value", STRING, "1+", null="0+"),
    F("source", INT8, "1+"),
)

DescribeConfigsResourceResult = struct(
    "DescribeConfigsResourceResult",
    F("name", STRING),
    F("value", STRING, null="0+"),
    F("read_only", BOOL),
    F("config_source", INT8, "1+", default=-1),
    F("is_sensitive", BOOL),
    F("synonyms", array(DescribeConfigsSynonym), "1+"),
    F("config_type", INT8, "3+"),
    F("documentation", STRING, "3+", null="0+"),
)

DescribeConfigsResult = struct(
    "DescribeConfigsResult",
    F("error_code", INT16),
    F("error_message", STRING, null="0+"),
    F("resource_type", INT8),
    F("resource_name", STRING),
    F("configs", array(DescribeConfigsResourceResult)),
)

DescribeConfigsResponse = struct(
    "DescribeConfigsResponse",
    F("throttle_time_ms", INT32),
    F("results", array(DescribeConfigsResult)),
)

DESCRIBE_CONFIGS = api(
    "DescribeConfigs",
    key=32,
    versions="1-4",
    flexible=4,
    throttle=2,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
)

# --- IncrementalAlterConfigs --------------------------------------------------------------------------------

AlterableConfig = struct(
    "AlterableConfig",
    F("name", STRING),
    F("config_operation", INT8),
    F("value", STRING, null="0+"),
)

AlterConfigsResource = struct(
    "AlterConfigsResource",
    F("resource_type", INT8),
    F("resource_name", STRING),
    F("configs", array(AlterableConfig)),
)

IncrementalAlterConfigsRequest = struct(
    "IncrementalAlterConfigsRequest",
    F("resources", array(AlterConfigsResource)),
    F("validate_only", BOOL),
)

AlterConfigsResourceResponse = struct(
    "AlterConfigsResourceResponse",
    F("error_code", INT16),
    F("error_message", STRING, null="0+"),
    F("resource_type", INT8),
    F("resource_name", STRING),
)

IncrementalAlterConfigsResponse = struct(
    "IncrementalAlterConfigsResponse",
    F("throttle_time_ms", INT32),
    F("responses", array(AlterConfigsResourceResponse)),
)

INCREMENTAL_ALTER_CONFIGS = api(
    "IncrementalAlterConfigs",
    key=44,
    versions="0-1",
    flexible=1,
    throttle=0,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)

# --- DescribeCluster ----------------------------------------------------------------------------------------
# v1 adds the endpoint type: 1 for brokers, 2 for controllers (KIP-919). v2 adds fenced brokers (KIP-1073).

DescribeClusterRequest = struct(
    "DescribeClusterRequest",
    F("include_cluster_authorized_operations", BOOL),
    F("endpoint_type", INT8, "1+", default=1),
    F("include_fenced_brokers", BOOL, "2+"),
)

DescribeClusterBroker = struct(
    "DescribeClusterBroker",
    F("broker_id", INT32),
    F("host", STRING),
    F("port", INT32),
    F("rack", STRING, null="0+", default=None),
    F("is_fenced", BOOL, "2+"),
)

DescribeClusterResponse = struct(
    "DescribeClusterResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("endpoint_type", INT8, "1+", default=1),
    F("cluster_id", STRING),
    F("controller_id", INT32, default=-1),
    F("brokers", array(DescribeClusterBroker)),
    F("cluster_authorized_operations", INT32, default=NO_AUTHORIZED_OPERATIONS),
)

DESCRIBE_CLUSTER = api(
    "DescribeCluster",
    key=60,
    versions="0-2",
    flexible=0,
    throttle=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)
