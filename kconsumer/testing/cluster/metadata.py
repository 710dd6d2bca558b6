"""Handles ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import encode_response
from kconsumer.schema.dsl import ZERO_UUID, Versions
from kconsumer.schema.metadata import (
    API_VERSIONS,
    FIND_COORDINATOR,
    METADATA,
    NO_AUTHORIZED_OPERATIONS,
    ApiVersion,
    ApiVersionsResponse,
    Coordinator,
    FinalizedFeatureKey,
    FindCoordinatorResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)
from kconsumer.schema.produce import PRODUCE
from kconsumer.schema.topics import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterResponse,
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsResponse,
)
from kconsumer.testing.cluster.acls import CLUSTER, CLUSTER_NAME, TOPIC
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.releases import MIN_LEVELS, features_of, is_at_least
from kconsumer.testing.cluster.replication import Replication
from kconsumer.testing.cluster.requests import Request, handles
from kconsumer.testing.cluster.state import ClusterHandlers, ClusterState
from kconsumer.testing.cluster.topic import NO_LEADER, Partition, Topic

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # names and versions of client software
SOFTWARE_FROM, EXPECTED_BROKER_FROM = 3, 5  # versions of ApiVersions
TOPIC_IDS_FROM = 12  # version of Metadata
MAX_DESCRIBED_PARTITIONS = 2000  # max.request.partition.size.limit
BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster
GROUP, TRANSACTION, SHARE = 0, 1, 2  # key types of FindCoordinator
COORDINATORS_FROM, SHARE_FROM = 4, 6  # versions of FindCoordinator
#: As Kafka 4 does, brokers announce Produce versions that they do not serve, because librdkafka looks for them.
ANNOUNCED_MINIMUM = {PRODUCE.key: 0}
NOT_AVAILABLE = Errors.COORDINATOR_NOT_AVAILABLE


def legal_name(name: str) -> bool:
    """Returns whether Kafka accepts the name of a topic."""
    return LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


class MetadataHandlers(ClusterHandlers):
    """Handles the requests by which clients find brokers, topics and coordinators."""

    def __init__(
        self, cluster: ClusterState, replication: Replication, versions_of: Callable[[Broker], Mapping[int, Versions]]
    ) -> None:
        super().__init__(cluster)
        self._replication, self._versions_of = replication, versions_of

    def unsupported_api_versions(self, broker: Broker, correlation_id: int) -> bytes:
        """Returns the encoded response to an ApiVersions request in an unsupported version (KIP-511)."""
        response = self._versions(broker)
        response.error_code = Errors.UNSUPPORTED_VERSION
        return encode_response(API_VERSIONS, 0, correlation_id, response)

    @handles(API_VERSIONS)
    def _api_versions(self, request: Request, _: float) -> ApiVersionsResponse:
        error = self._api_versions_error(request)
        return ApiVersionsResponse(error_code=error) if error else self._versions(request.broker)

    def _api_versions_error(self, request: Request) -> int:
        """Returns the error code of an ApiVersions request, or NONE.

        Errors are an invalid name or version of the client software, and a request that was meant for another broker or
        cluster.
        """
        message = request.message
        software = message.client_software_name, message.client_software_version
        if request.version >= SOFTWARE_FROM and not all(map(SOFTWARE.fullmatch, software)):
            return Errors.INVALID_REQUEST
        if request.version < EXPECTED_BROKER_FROM or (message.cluster_id is None and message.node_id == -1):
            return Errors.NONE
        if message.cluster_id is None or message.node_id == -1:
            return Errors.INVALID_REQUEST
        right = (message.cluster_id, message.node_id) == (self._cluster.id, request.broker.id)
        return Errors.NONE if right else Errors.REBOOTSTRAP_REQUIRED

    def _versions(self, broker: Broker) -> ApiVersionsResponse:
        rows = [
            ApiVersion(api_key=key, min_version=ANNOUNCED_MINIMUM.get(key, versions.first), max_version=versions.last)
            for key, versions in sorted(self._versions_of(broker).items())
        ]
        features = features_of(broker.release).items()
        return ApiVersionsResponse(
            api_keys=rows,
            supported_features=[
                SupportedFeatureKey(name=name, min_version=MIN_LEVELS.get(name, 0), max_version=level)
                for name, level in (*features, *((("kraft.version", 1),) if features else ()))
            ],
            finalized_features_epoch=0 if features else -1,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in features
            ],
        )

    # --- Metadata ---

    @handles(METADATA)
    def _metadata(self, request: Request, now: float) -> MetadataResponse:
        cluster = self._cluster
        asked = request.message.topics or []
        if request.version < TOPIC_IDS_FROM and any(row.topic_id != ZERO_UUID for row in asked):
            error = Errors.INVALID_REQUEST
            rows = [MetadataResponseTopic(error_code=error, name=row.name, topic_id=row.topic_id) for row in asked]
            return MetadataResponse(topics=rows)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
                for broker in cluster.alive_brokers()
            ],
            cluster_id=cluster.id,
            controller_id=cluster.controller_id,
            topics=self._topics(request, now),
            cluster_authorized_operations=self._cluster_operations(
                request, request.message.include_cluster_authorized_operations
            ),
        )

    def _topics(self, request: Request, now: float) -> list[MetadataResponseTopic]:
        """Returns the rows of the topics that the request names, or of all topics.

        If the request names at least one topic by id, topics that it names without an id are ignored.
        """
        message = request.message
        if message.topics is None or (request.version == 0 and not message.topics):
            rows = [self._topic_row(topic) for topic in self._cluster.topics.values()]
        elif ids := dict.fromkeys(row.topic_id for row in message.topics if row.topic_id != ZERO_UUID):
            rows = [self._row_by_id(topic_id) for topic_id in ids]
        else:
            create = message.allow_auto_topic_creation and self._cluster.settings.auto_create_topics_enable
            names = dict.fromkeys(row.name or "" for row in message.topics)
            rows = [self._row_by_name(name, create) for name in names]
        for row in rows if message.include_topic_authorized_operations else ():
            row.topic_authorized_operations = self._operations(request, TOPIC, row.name or "")
        return rows

    def _operations(self, request: Request, resource_type: str, name: str) -> int:
        return self._cluster.acls.authorized_operations(request.connection.principal, resource_type, name)

    def _cluster_operations(self, request: Request, asked: bool) -> int:
        """Returns the operations that the client may perform on the cluster, if the request asks for them.

        As in Kafka, there are none for a client that may not describe the cluster.
        """
        if not asked:
            return NO_AUTHORIZED_OPERATIONS
        describes = self._cluster.acls.allowed(request, "DESCRIBE", CLUSTER, CLUSTER_NAME)
        return self._operations(request, CLUSTER, CLUSTER_NAME) if describes else 0

    def _row_by_id(self, topic_id: bytes) -> MetadataResponseTopic:
        topic = self._cluster.topics_by_id.get(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=Errors.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return self._topic_row(topic)

    def _row_by_name(self, name: str, create: bool) -> MetadataResponseTopic:
        if not legal_name(name):
            return MetadataResponseTopic(error_code=Errors.INVALID_TOPIC_EXCEPTION, name=name)
        topic = self._cluster.topics.get(name)
        if topic is not None:
            return self._topic_row(topic)
        if create:
            self._cluster.create_topic(name, self._cluster.settings.num_partitions)
        return MetadataResponseTopic(error_code=Errors.UNKNOWN_TOPIC_OR_PARTITION, name=name)

    @handles(DESCRIBE_CLUSTER)
    def _describe_cluster(self, request: Request, now: float) -> DescribeClusterResponse:
        cluster = self._cluster
        kind = request.message.endpoint_type
        if kind != BROKERS:
            error = Errors.MISMATCHED_ENDPOINT_TYPE if kind == CONTROLLERS else Errors.UNSUPPORTED_ENDPOINT_TYPE
            return DescribeClusterResponse(error_code=error, error_message=f"A broker cannot list endpoints {kind}.")
        return DescribeClusterResponse(
            cluster_id=cluster.id,
            controller_id=cluster.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
                for broker in cluster.alive_brokers()
            ],
            cluster_authorized_operations=self._cluster_operations(
                request, request.message.include_cluster_authorized_operations
            ),
        )

    # --- DescribeTopicPartitions ---

    @handles(DESCRIBE_TOPIC_PARTITIONS)
    def _describe_topic_partitions(self, request: Request, _: float) -> DescribeTopicPartitionsResponse:
        """Returns the requested topics, or all, in the order of their names, from the cursor up to the limit."""
        message = request.message
        names = sorted({row.name for row in message.topics} or self._cluster.topics)
        left = min(message.response_partition_limit, MAX_DESCRIBED_PARTITIONS)
        response = DescribeTopicPartitionsResponse()
        first = 0
        if message.cursor is not None:
            names = [name for name in names if name >= message.cursor.topic_name]
            first = message.cursor.partition_index if names[:1] == [message.cursor.topic_name] else 0
        for name in names:
            if not self._cluster.acls.allowed(request, "DESCRIBE", TOPIC, name):
                if message.topics:
                    response.topics.append(DescribedTopic(name=name, error_code=Errors.TOPIC_AUTHORIZATION_FAILED))
                continue
            if left <= 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            row = self._described_topic(name)
            rows = row.partitions
            row.partitions, first = rows[first : first + left], 0
            row.topic_authorized_operations = self._operations(request, TOPIC, name)
            response.topics.append(row)
            left -= len(row.partitions)
            done = row.partitions[-1].partition_index + 1 if row.partitions else 0
            if done < len(rows):
                response.next_cursor = Cursor(topic_name=name, partition_index=done)
                break
        return response

    def _described_topic(self, name: str) -> DescribedTopic:
        topic = self._cluster.topics.get(name)
        if topic is None:
            known = Errors.UNKNOWN_TOPIC_OR_PARTITION if legal_name(name) else Errors.INVALID_TOPIC_EXCEPTION
            return DescribedTopic(name=name, error_code=known)
        rows = []
        for partition in topic.partitions:
            known_row = self._partition_row(partition)
            values = {field.name: getattr(known_row, field.name) for field in known_row.FIELDS}
            rows.append(DescribedPartition(**values, eligible_leader_replicas=partition.elr, last_known_elr=[]))
        return DescribedTopic(name=name, topic_id=topic.id, is_internal=topic.internal, partitions=rows)

    # --- FindCoordinator ---

    @handles(FIND_COORDINATOR)
    def _find_coordinator(self, request: Request, _: float) -> FindCoordinatorResponse:
        message = request.message
        if request.version >= COORDINATORS_FROM:
            rows = [self._coordinator(key, request) for key in message.coordinator_keys]
            return FindCoordinatorResponse(coordinators=rows)
        row = self._coordinator(message.key, request)
        return FindCoordinatorResponse(
            error_code=row.error_code,
            error_message=row.error_message or "NONE",
            node_id=row.node_id,
            host=row.host,
            port=row.port,
        )

    def _coordinator(self, key: str, request: Request) -> Coordinator:
        """Returns the row with the coordinator of one group or transactional id, or with an error."""
        key_type = request.message.key_type
        if key_type not in (GROUP, TRANSACTION):
            message = "" if key_type == SHARE else f"The model has no coordinators of the type {key_type}."
            early = (
                key_type == SHARE and request.version >= SHARE_FROM and not is_at_least(request.broker.release, "4.0")
            )
            error = NOT_AVAILABLE if early else Errors.INVALID_REQUEST
            return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
        broker = self._cluster.coordinator(key, "group" if key_type == GROUP else "transaction")
        if broker is None:
            return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=NOT_AVAILABLE, error_message="")
        return Coordinator(key=key, node_id=broker.id, host=broker.host, port=broker.port)

    def _topic_row(self, topic: Topic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.internal,
            partitions=list(map(self._partition_row, topic.partitions)),
        )

    def _partition_row(self, partition: Partition) -> MetadataResponsePartition:
        missing = partition.leader == NO_LEADER
        return MetadataResponsePartition(
            error_code=Errors.LEADER_NOT_AVAILABLE if missing else Errors.NONE,
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=self._replication.visible_isr(partition),
            offline_replicas=[node for node in partition.replicas if not self._cluster.brokers[node].alive],
        )
