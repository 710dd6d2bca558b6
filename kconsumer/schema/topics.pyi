# Written by `python -m kconsumer.schema.stubs`; the tables are in topics.py.

from kconsumer.schema.dsl import Api, Message

NO_AUTHORIZED_OPERATIONS: int

class CreatableReplicaAssignment(Message):
    partition_index: int
    broker_ids: list[int]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        broker_ids: list[int] = ...,
    ) -> None: ...

class CreatableTopicConfig(Message):
    name: str
    value: str | None
    def __init__(
        self,
        *,
        name: str = ...,
        value: str | None = ...,
    ) -> None: ...

class CreatableTopic(Message):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]
    def __init__(
        self,
        *,
        name: str = ...,
        num_partitions: int = ...,
        replication_factor: int = ...,
        assignments: list[CreatableReplicaAssignment] = ...,
        configs: list[CreatableTopicConfig] = ...,
    ) -> None: ...

class CreateTopicsRequest(Message):
    topics: list[CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: list[CreatableTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class CreatableTopicConfigs(Message):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    def __init__(
        self,
        *,
        name: str = ...,
        value: str | None = ...,
        read_only: bool = ...,
        config_source: int = ...,
        is_sensitive: bool = ...,
    ) -> None: ...

class CreatableTopicResult(Message):
    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: list[CreatableTopicConfigs] | None
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topic_config_error_code: int = ...,
        num_partitions: int = ...,
        replication_factor: int = ...,
        configs: list[CreatableTopicConfigs] | None = ...,
    ) -> None: ...

class CreateTopicsResponse(Message):
    throttle_time_ms: int
    topics: list[CreatableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[CreatableTopicResult] = ...,
    ) -> None: ...

CREATE_TOPICS: Api

class DeleteTopicState(Message):
    name: str | None
    topic_id: bytes
    def __init__(
        self,
        *,
        name: str | None = ...,
        topic_id: bytes = ...,
    ) -> None: ...

class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteTopicState] = ...,
        topic_names: list[str] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeletableTopicResult(Message):
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        name: str | None = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DeleteTopicsResponse(Message):
    throttle_time_ms: int
    responses: list[DeletableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: list[DeletableTopicResult] = ...,
    ) -> None: ...

DELETE_TOPICS: Api

class CreatePartitionsAssignment(Message):
    broker_ids: list[int]
    def __init__(
        self,
        *,
        broker_ids: list[int] = ...,
    ) -> None: ...

class CreatePartitionsTopic(Message):
    name: str
    count: int
    assignments: list[CreatePartitionsAssignment] | None
    def __init__(
        self,
        *,
        name: str = ...,
        count: int = ...,
        assignments: list[CreatePartitionsAssignment] | None = ...,
    ) -> None: ...

class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: list[CreatePartitionsTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class CreatePartitionsTopicResult(Message):
    name: str
    error_code: int
    error_message: str | None
    def __init__(
        self,
        *,
        name: str = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class CreatePartitionsResponse(Message):
    throttle_time_ms: int
    results: list[CreatePartitionsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[CreatePartitionsTopicResult] = ...,
    ) -> None: ...

CREATE_PARTITIONS: Api

class DeleteRecordsPartition(Message):
    partition_index: int
    offset: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        offset: int = ...,
    ) -> None: ...

class DeleteRecordsTopic(Message):
    name: str
    partitions: list[DeleteRecordsPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[DeleteRecordsPartition] = ...,
    ) -> None: ...

class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteRecordsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteRecordsPartitionResult(Message):
    partition_index: int
    low_watermark: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        low_watermark: int = ...,
        error_code: int = ...,
    ) -> None: ...

class DeleteRecordsTopicResult(Message):
    name: str
    partitions: list[DeleteRecordsPartitionResult]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[DeleteRecordsPartitionResult] = ...,
    ) -> None: ...

class DeleteRecordsResponse(Message):
    throttle_time_ms: int
    topics: list[DeleteRecordsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[DeleteRecordsTopicResult] = ...,
    ) -> None: ...

DELETE_RECORDS: Api

class DescribeConfigsResource(Message):
    resource_type: int
    resource_name: str
    configuration_keys: list[str] | None
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        configuration_keys: list[str] | None = ...,
    ) -> None: ...

class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        *,
        resources: list[DescribeConfigsResource] = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
    ) -> None: ...

class DescribeConfigsSynonym(Message):
    name: str
    value: str | None
    source: int
    def __init__(
        self,
        *,
        name: str = ...,
        value: str | None = ...,
        source: int = ...,
    ) -> None: ...

class DescribeConfigsResourceResult(Message):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: int
    documentation: str | None
    def __init__(
        self,
        *,
        name: str = ...,
        value: str | None = ...,
        read_only: bool = ...,
        config_source: int = ...,
        is_sensitive: bool = ...,
        synonyms: list[DescribeConfigsSynonym] = ...,
        config_type: int = ...,
        documentation: str | None = ...,
    ) -> None: ...

class DescribeConfigsResult(Message):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: list[DescribeConfigsResourceResult]
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
        configs: list[DescribeConfigsResourceResult] = ...,
    ) -> None: ...

class DescribeConfigsResponse(Message):
    throttle_time_ms: int
    results: list[DescribeConfigsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[DescribeConfigsResult] = ...,
    ) -> None: ...

DESCRIBE_CONFIGS: Api

class AlterableConfig(Message):
    name: str
    config_operation: int
    value: str | None
    def __init__(
        self,
        *,
        name: str = ...,
        config_operation: int = ...,
        value: str | None = ...,
    ) -> None: ...

class AlterConfigsResource(Message):
    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        configs: list[AlterableConfig] = ...,
    ) -> None: ...

class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class AlterConfigsResourceResponse(Message):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: list[AlterConfigsResourceResponse] = ...,
    ) -> None: ...

INCREMENTAL_ALTER_CONFIGS: Api

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = ...,
        endpoint_type: int = ...,
        include_fenced_brokers: bool = ...,
    ) -> None: ...

class DescribeClusterBroker(Message):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    def __init__(
        self,
        *,
        broker_id: int = ...,
        host: str = ...,
        port: int = ...,
        rack: str | None = ...,
        is_fenced: bool = ...,
    ) -> None: ...

class DescribeClusterResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        endpoint_type: int = ...,
        cluster_id: str = ...,
        controller_id: int = ...,
        brokers: list[DescribeClusterBroker] = ...,
        cluster_authorized_operations: int = ...,
    ) -> None: ...

DESCRIBE_CLUSTER: Api
