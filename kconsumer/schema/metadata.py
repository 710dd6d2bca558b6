"""The APIs by which a client finds supported versions, brokers, topics and coordinators.

They are ApiVersions, Metadata and FindCoordinator.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, F, api, array, struct

# --- ApiVersions --------------------------------------------------------------------------------------------
# The first request on every connection. v3 adds the name of the client software (KIP-511) and the broker's features
# (KIP-584), v4 features whose minimum version is 0, v5 the cluster and broker id that the client expects (KIP-1242).

ApiVersionsRequest = struct(
    "ApiVersionsRequest",
    F("client_software_name", STRING, "3+"),
    F("client_software_version", STRING, "3+"),
    F("cluster_id", STRING, "5+", null="5+", default=None),
    F("node_id", INT32, "5+", default=-1),
)

ApiVersion = struct(
    "ApiVersion",
    F("api_key", INT16),
    F("min_version", INT16),
    F("max_version", INT16),
)

SupportedFeatureKey = struct(
    "SupportedFeatureKey",
    F("name", STRING, "3+"),
    F("min_version", INT16, "3+"),
    F("max_version", INT16, "3+"),
)

FinalizedFeatureKey = struct(
    "FinalizedFeatureKey",
    F("name", STRING, "3+"),
    F("max_version_level", INT16, "3+"),
    F("min_version_level", INT16, "3+"),
)

ApiVersionsResponse = struct(
    "ApiVersionsResponse",
    F("error_code", INT16),
    F("api_keys", array(ApiVersion)),
    F("throttle_time_ms", INT32, "1+"),
    F("supported_features", array(SupportedFeatureKey), "3+", tag=0),
    F("finalized_features_epoch", INT64, "3+", tag=1, default=-1),
    F("finalized_features", array(FinalizedFeatureKey), "3+", tag=2),
    F("zk_migration_ready", BOOL, "3+", tag=3),
)

API_VERSIONS = api(
    "ApiVersions",
    key=18,
    versions="0-5",
    flexible=3,
    throttle=2,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
)

# --- Metadata -----------------------------------------------------------------------------------------------
# A request for all topics has an empty list of topics in v0, and null since v1. Since v1 an empty list means no topics.
# Leader epochs exist since v7, but are reliable only since v9 (Kafka 2.4). v8 adds authorized operations (KIP-430), v10
# topic ids in responses, v12 topic ids in requests (KIP-516), v13 the error REBOOTSTRAP_REQUIRED (KIP-1102).

NO_AUTHORIZED_OPERATIONS = -(1 << 31)  # the value if they were not requested

MetadataRequestTopic = struct(
    "MetadataRequestTopic",
    F("topic_id", UUID, "10+"),
    F("name", STRING, null="10+"),
)

MetadataRequest = struct(
    "MetadataRequest",
    F("topics", array(MetadataRequestTopic), null="1+"),
    F("allow_auto_topic_creation", BOOL, "4+", default=True),
    F("include_cluster_authorized_operations", BOOL, "8-10"),
    F("include_topic_authorized_operations", BOOL, "8+"),
)

MetadataResponseBroker = struct(
    "MetadataResponseBroker",
    F("node_id", INT32),
    F("host", STRING),
    F("port", INT32),
    F("rack", STRING, "1+", null="1+", default=None),
)

MetadataResponsePartition = struct(
    "MetadataResponsePartition",
    F("error_code", INT16),
    F("partition_index", INT32),
    F("leader_id", INT32),
    F("leader_epoch", INT32, "7+", default=-1),
    F("replica_nodes", array(INT32)),
    F("isr_nodes", array(INT32)),
    F("offline_replicas", array(INT32), "5+"),
)

MetadataResponseTopic = struct(
    "MetadataResponseTopic",
    F("error_code", INT16),
    F("name", STRING, null="12+"),
    F("topic_id", UUID, "10+"),
    F("is_internal", BOOL, "1+"),
    F("partitions", array(MetadataResponsePartition)),
    F("topic_authorized_operations", INT32, "8+", default=NO_AUTHORIZED_OPERATIONS),
)

MetadataResponse = struct(
    "MetadataResponse",
    F("throttle_time_ms", INT32, "3+"),
    F("brokers", array(MetadataResponseBroker)),
    F("cluster_id", STRING, "2+", null="2+", default=None),
    F("controller_id", INT32, "1+", default=-1),
    F("topics", array(MetadataResponseTopic)),
    F("cluster_authorized_operations", INT32, "8-10", default=NO_AUTHORIZED_OPERATIONS),
    F("error_code", INT16, "13+"),
)

METADATA = api(
    "Metadata",
    key=3,
    versions="0-13",
    flexible=9,
    throttle=6,
    request=MetadataRequest,
    response=MetadataResponse,
)

# --- FindCoordinator ----------------------------------------------------------------------------------------
# key_type 0 is a group, 1 a transactional id, 2 a share partition (since v6). Since v4 the request contains a list of
# keys, and the response a list of coordinators, each with its own error (KIP-699). v5 adds an error for transactions.

FindCoordinatorRequest = struct(
    "FindCoordinatorRequest",
    F("key", STRING, "0-3"),
    F("key_type", INT8, "1+"),
    F("coordinator_keys", array(STRING), "4+"),
)

Coordinator = struct(
    "Coordinator",
    F("key", STRING, "4+"),
    F("node_id", INT32, "4+"),
    F("host", STRING, "4+"),
    F("port", INT32, "4+"),
    F("error_code", INT16, "4+"),
    F("error_message", STRING, "4+", null="4+"),
)

FindCoordinatorResponse = struct(
    "FindCoordinatorResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("error_code", INT16, "0-3"),
    F("error_message", STRING, "1-3", null="1-3"),
    F("node_id", INT32, "0-3"),
    F("host", STRING, "0-3"),
    F("port", INT32, "0-3"),
    F("coordinators", array(Coordinator), "4+"),
)

FIND_COORDINATOR = api(
    "FindCoordinator",
    key=10,
    versions="0-6",
    flexible=3,
    throttle=2,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)
