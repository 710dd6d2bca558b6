"""The APIs by which a client finds supported versions, brokers, topics and coordinators.

They are ApiVersions, Metadata and FindCoordinator.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Api, F, Message, array

# --- ApiVersions --------------------------------------------------------------------------------------------
# The first request on every connection. v3 adds the name of the client software (KIP-511) and the broker's features
# (KIP-584), v4 features whose minimum version is 0, v5 the cluster and broker id that the client expects (KIP-1242).


class ApiVersionsRequest(Message):
    client_software_name: str = F(STRING, "3+")
    client_software_version: str = F(STRING, "3+")
    cluster_id: str | None = F(STRING, "5+", null="5+", default=None)
    node_id: int = F(INT32, "5+", default=-1)


class ApiVersion(Message):
    api_key: int = F(INT16)
    min_version: int = F(INT16)
    max_version: int = F(INT16)


class SupportedFeatureKey(Message):
    name: str = F(STRING, "3+")
    min_version: int = F(INT16, "3+")
    max_version: int = F(INT16, "3+")


class FinalizedFeatureKey(Message):
    name: str = F(STRING, "3+")
    max_version_level: int = F(INT16, "3+")
    min_version_level: int = F(INT16, "3+")


class ApiVersionsResponse(Message):
    error_code: int = F(INT16)
    api_keys: list[ApiVersion] = F(array(ApiVersion))
    throttle_time_ms: int = F(INT32, "1+")
    supported_features: list[SupportedFeatureKey] = F(array(SupportedFeatureKey), "3+", tag=0)
    finalized_features_epoch: int = F(INT64, "3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = F(array(FinalizedFeatureKey), "3+", tag=2)
    zk_migration_ready: bool = F(BOOL, "3+", tag=3)


API_VERSIONS = Api(ApiVersionsRequest, ApiVersionsResponse, key=18, versions="0-5", flexible=3, throttle=2)

# --- Metadata -----------------------------------------------------------------------------------------------
# A request for all topics has an empty list of topics in v0, and null since v1. Since v1 an empty list means no topics.
# Leader epochs exist since v7, but are reliable only since v9 (Kafka 2.4). v8 adds authorized operations (KIP-430), v10
# topic ids in responses, v12 topic ids in requests (KIP-516), v13 the error REBOOTSTRAP_REQUIRED (KIP-1102).

NO_AUTHORIZED_OPERATIONS = -(1 << 31)  # the value if they were not requested


class MetadataRequestTopic(Message):
    topic_id: bytes = F(UUID, "10+")
    name: str | None = F(STRING, null="10+")


class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = F(array(MetadataRequestTopic), null="1+")
    allow_auto_topic_creation: bool = F(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = F(BOOL, "8-10")
    include_topic_authorized_operations: bool = F(BOOL, "8+")


class MetadataResponseBroker(Message):
    node_id: int = F(INT32)
    host: str = F(STRING)
    port: int = F(INT32)
    rack: str | None = F(STRING, "1+", null="1+", default=None)


class MetadataResponsePartition(Message):
    error_code: int = F(INT16)
    partition_index: int = F(INT32)
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32, "7+", default=-1)
    replica_nodes: list[int] = F(array(INT32))
    isr_nodes: list[int] = F(array(INT32))
    offline_replicas: list[int] = F(array(INT32), "5+")


class MetadataResponseTopic(Message):
    error_code: int = F(INT16)
    name: str | None = F(STRING, null="12+")
    topic_id: bytes = F(UUID, "10+")
    is_internal: bool = F(BOOL, "1+")
    partitions: list[MetadataResponsePartition] = F(array(MetadataResponsePartition))
    topic_authorized_operations: int = F(INT32, "8+", default=NO_AUTHORIZED_OPERATIONS)


class MetadataResponse(Message):
    throttle_time_ms: int = F(INT32, "3+")
    brokers: list[MetadataResponseBroker] = F(array(MetadataResponseBroker))
    cluster_id: str | None = F(STRING, "2+", null="2+", default=None)
    controller_id: int = F(INT32, "1+", default=-1)
    topics: list[MetadataResponseTopic] = F(array(MetadataResponseTopic))
    cluster_authorized_operations: int = F(INT32, "8-10", default=NO_AUTHORIZED_OPERATIONS)
    error_code: int = F(INT16, "13+")


METADATA = Api(MetadataRequest, MetadataResponse, key=3, versions="0-13", flexible=9, throttle=6)

# --- FindCoordinator ----------------------------------------------------------------------------------------
# key_type 0 is a group, 1 a transactional id, 2 a share partition (since v6). Since v4 the request contains a list of
# keys, and the response a list of coordinators, each with its own error (KIP-699). v5 adds an error for transactions.


class FindCoordinatorRequest(Message):
    key: str = F(STRING, "0-3")
    key_type: int = F(INT8, "1+")
    coordinator_keys: list[str] = F(array(STRING), "4+")


class Coordinator(Message):
    key: str = F(STRING, "4+")
    node_id: int = F(INT32, "4+")
    host: str = F(STRING, "4+")
    port: int = F(INT32, "4+")
    error_code: int = F(INT16, "4+")
    error_message: str | None = F(STRING, "4+", null="4+")


class FindCoordinatorResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    error_code: int = F(INT16, "0-3")
    error_message: str | None = F(STRING, "1-3", null="1-3")
    node_id: int = F(INT32, "0-3")
    host: str = F(STRING, "0-3")
    port: int = F(INT32, "0-3")
    coordinators: list[Coordinator] = F(array(Coordinator), "4+")


FIND_COORDINATOR = Api(FindCoordinatorRequest, FindCoordinatorResponse, key=10, versions="0-6", flexible=3, throttle=2)
