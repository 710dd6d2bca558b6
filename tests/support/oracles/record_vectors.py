"""Records responses of real brokers for tests/protocol: every API at every version they share with the
tables.

Run `python tests/support/oracles/record_vectors.py 4.4.0 3.9.1` with tests/ and the root on PYTHONPATH, and commit
what changed under tests/protocol/vectors: one file per broker version, one line per response: API, version,
and the frame after its size in hex. Tests never run this: they read the files.
"""

from __future__ import annotations

import itertools
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kconsumer._core.codec import decode_response, encode_request
from kconsumer._core.wire import FrameBuffer
from kconsumer.coordinator.classic_protocol.embedded import encode_assignment, encode_subscription
from kconsumer.schema import (
    ALTER_SHARE_GROUP_OFFSETS,
    API_VERSIONS,
    APIS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    FETCH,
    FIND_COORDINATOR,
    GET_TELEMETRY_SUBSCRIPTIONS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PUSH_TELEMETRY,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    Api,
)
from kconsumer.schema.admin import ConsumerGroupDescribeRequest, DescribeGroupsRequest, ListGroupsRequest
from kconsumer.schema.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kconsumer.schema.consumer_group import ConsumerGroupHeartbeatRequest
from kconsumer.schema.dsl import Message
from kconsumer.schema.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartitions
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from kconsumer.schema.group_deletion import DeleteGroupsRequest
from kconsumer.schema.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from kconsumer.schema.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kconsumer.schema.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kconsumer.schema.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareAcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from kconsumer.schema.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from support.brokers.kafka import Kafka, KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.kafka_jars import DEFAULT_VERSION
from support.brokers.telemetry_recorder import TelemetryKafka
from support.members.java_groups import share_consumer

VECTORS = Path(__file__).parents[2] / "protocol" / "vectors"
TOPIC = "vectors"
GROUP_APIS = (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE_GROUPS, LEAVE_GROUP)
PASSING_ERRORS = {14, 15, 16}  # a coordinator that is not ready yet
PROTOCOLS = {"group.coordinator.rebalance.protocols": "classic,consumer"}  # KIP-848 was a preview before 4.0


class Recorder:
    """One blocking connection that keeps what comes back, the last response for each API and version."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._buffer = FrameBuffer()
        self._ids = itertools.count(1)
        self.frames: dict[tuple[str, int], bytes] = {}
        response = self.ask(API_VERSIONS, 0, ApiVersionsRequest())
        self._supported = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def ask(self, api: Api, version: int, message: Message, *, keep: bool = True) -> Any:
        """Send a request and record what comes back, unless `keep` is False."""
        number = next(self._ids)
        self._socket.sendall(encode_request(api, version, number, "recorder", message))
        frame = self._receive()
        if keep:
            self.frames[api.name, version] = frame
        found, response = decode_response(api, version, frame)
        assert found == number
        return response

    def versions(self, api: Api) -> range:
        """Returns the versions that broker and tables share."""
        low, high = self._supported.get(api.key, (0, -1))
        return range(max(low, api.min_version), min(high, api.max_version) + 1)

    def each(self, api: Api, message: Callable[[int], Message]) -> None:
        """Ask at every version."""
        for version in self.versions(api):
            self.ask(api, version, message(version))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self) -> bytes:
        while True:
            count = self._socket.recv_into(self._buffer.recv_view())
            if not count:
                raise ConnectionError("the broker closed the connection")
            for frame in self._buffer.received(count):
                return bytes(frame)


def record(recorder: Recorder) -> None:
    """Ask everything; the order matters only where groups must have members to be described."""
    recorder.each(API_VERSIONS, lambda _: named_client())
    recorder.each(METADATA, lambda _: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    topic_id = recorder.ask(METADATA, 10, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])).topics[0]
    record_log(recorder, topic_id.topic_id)
    recorder.each(FIND_COORDINATOR, lambda _: FindCoordinatorRequest(key="some", coordinator_keys=["some"]))
    for step in range(max(max(recorder.versions(api)) for api in GROUP_APIS) + 1):
        record_classic_member(recorder, step, topic_id.topic_id)
    if recorder.versions(CONSUMER_GROUP_HEARTBEAT):
        recorder.each(CONSUMER_GROUP_HEARTBEAT, lambda version: record_joining(recorder, version))
        groups = [f"consumers-{version}" for version in recorder.versions(CONSUMER_GROUP_HEARTBEAT)]
        recorder.each(CONSUMER_GROUP_DESCRIBE, lambda _: ConsumerGroupDescribeRequest(group_ids=[*groups, "none"]))
    recorder.each(LIST_GROUPS, lambda _: ListGroupsRequest())
    recorder.each(DELETE_GROUPS, lambda version: DeleteGroupsRequest(groups_names=[f"classic-{version}", "none"]))
    recorder.each(SASL_HANDSHAKE, lambda _: SaslHandshakeRequest(mechanism="PLAIN"))
    recorder.each(SASL_AUTHENTICATE, lambda _: SaslAuthenticateRequest(auth_bytes=b"\0user\0password"))


def named_client() -> Message:
    """Returns the first request of a connection."""
    return ApiVersionsRequest(client_software_name="kconsumer", client_software_version="1.0")


def record_log(recorder: Recorder, topic_id: bytes) -> None:
    """Fetch, ListOffsets and OffsetForLeaderEpoch: a partition with records, an empty one, one that is not there."""
    recorder.each(
        FETCH,
        lambda _: FetchRequest(
            max_wait_ms=100,
            max_bytes=1 << 20,
            session_epoch=0,
            topics=[
                FetchTopic(
                    topic=TOPIC,
                    topic_id=topic_id,
                    partitions=[FetchPartition(partition=n, partition_max_bytes=1 << 20) for n in (0, 1, 9)],
                )
            ],
        ),
    )
    recorder.each(
        LIST_OFFSETS,
        lambda _: ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[
                        ListOffsetsPartition(partition_index=n, timestamp=timestamp)
                        for n, timestamp in ((0, 1000), (1, -1), (9, -2))
                    ],
                )
            ],
            timeout_ms=1000,
        ),
    )
    recorder.each(
        OFFSET_FOR_LEADER_EPOCH,
        lambda _: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in (0, 9)]
                )
            ]
        ),
    )


def record_classic_member(recorder: Recorder, step: int, topic_id: bytes) -> None:
    """Send the requests of a group of one member, each at version `step` or the nearest one."""
    group = f"classic-{step}"
    joined = record_classic_join(recorder, step, group)
    names = {"group_id": group, "member_id": joined.member_id, "generation_id": joined.generation_id}
    given = ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic=TOPIC, partitions=[0, 1])])
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=encode_assignment(given))]
    sync = SyncGroupRequest(**names, protocol_type="consumer", protocol_name="range", assignments=assignments)
    settled(recorder, SYNC_GROUP, step, sync)
    settled(recorder, HEARTBEAT, step, HeartbeatRequest(**names))
    settled(recorder, OFFSET_COMMIT, step, commit_request(joined, group, topic_id))
    settled(recorder, OFFSET_FETCH, step, fetch_request(group, topic_id))
    settled(recorder, DESCRIBE_GROUPS, step, DescribeGroupsRequest(groups=[group, "none"]))
    members = [MemberIdentity(member_id=joined.member_id, reason="the end")]
    leaving = LeaveGroupRequest(group_id=group, member_id=joined.member_id, members=members)
    settled(recorder, LEAVE_GROUP, step, leaving)


def record_classic_join(recorder: Recorder, step: int, group: str) -> Any:
    """Send JoinGroup, twice if the first response only has the member id. Returns the response."""
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC], user_data=b"data"))
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        reason="recording",
    )
    response = settled(recorder, JOIN_GROUP, step, request)
    if response.error_code:
        request.member_id = response.member_id
        response = settled(recorder, JOIN_GROUP, step, request)
    return response


def commit_request(joined: Any, group: str, topic_id: bytes) -> Message:
    """Returns a commit of an offset with metadata, and of one for a partition that does not exist."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=3, committed_metadata="note") for n in (0, 9)
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=partitions)],
    )


def fetch_request(group: str, topic_id: bytes) -> Message:
    """Returns a request for a committed offset and for one that was never committed."""
    topics = [OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[0, 1])]
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
    )


def settled(recorder: Recorder, api: Api, step: int, message: Message) -> Any:
    """Repeat a request while a new coordinator responds with an error. Returns the first other response."""
    versions = recorder.versions(api)
    version = min(max(step, versions.start), versions.stop - 1)
    for _ in range(100):
        response = recorder.ask(api, version, message)
        codes = set(error_codes(response))
        if not codes & PASSING_ERRORS:
            return response
        time.sleep(0.1)
    raise TimeoutError(f"{api.name} still responds with {codes}")


def error_codes(message: Any) -> Iterator[int]:
    """Yield every error code in a message."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Message):
                    yield from error_codes(item)


def record_joining(recorder: Recorder, version: int) -> Message:
    """Join a KIP-848 group and wait for an assignment. Returns the request whose response has it."""
    group = f"consumers-{version}"
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="" if version == 0 else f"member-{version}",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    while True:
        response = settled(recorder, CONSUMER_GROUP_HEARTBEAT, version, request)
        request.member_id = response.member_id or ""
        request.member_epoch = response.member_epoch
        if response.error_code or (response.assignment is not None and response.assignment.topic_partitions):
            return request  # asked once more, the broker repeats the assignment in full
        time.sleep(0.1)


def record_share_group(recorder: Recorder, kafka: Kafka) -> None:
    """A share group with a member that was given something, and one that does not exist."""
    request = ShareGroupDescribeRequest(group_ids=["shares", "none"])
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in ("shares", "none")]
    offsets = DescribeShareGroupOffsetsRequest(groups=groups)
    version = DESCRIBE_SHARE_GROUP_OFFSETS.max_version
    with share_consumer(kafka.bootstrap_servers, "shares", TOPIC):
        while not any(
            start >= 0 for start in share_starts(recorder.ask(DESCRIBE_SHARE_GROUP_OFFSETS, version, offsets))
        ):
            kafka.produce(TOPIC, [b"shared"], partition=1)
            time.sleep(0.2)
        recorder.each(SHARE_GROUP_DESCRIBE, lambda _: request)
        recorder.each(DESCRIBE_SHARE_GROUP_OFFSETS, lambda _: offsets)


def record_share_member(recorder: Recorder, kafka: Kafka) -> None:
    """A member that acquires records, accepts one of them, and leaves. Then offsets of its group are changed."""
    topic = recorder.ask(METADATA, 10, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])).topics[0]
    member: dict[str, Any] = {"group_id": "share-members", "member_id": str(uuid.uuid4())}
    joining = ShareGroupHeartbeatRequest(**member, subscribed_topic_names=[TOPIC])
    while not settled(recorder, SHARE_GROUP_HEARTBEAT, 1, joining).assignment.topic_partitions:
        time.sleep(0.1)
    for version in recorder.versions(SHARE_FETCH):
        sequence = itertools.count()
        while not acquired(response := share_fetch(recorder, version, next(sequence), member, topic.topic_id)):
            kafka.produce(TOPIC, [b"shared", b"rejected"], partition=1)
        first = acquired(response)[0]
        accepted = ShareAcknowledgementBatch(
            first_offset=first.first_offset, last_offset=first.last_offset, acknowledge_types=[1]
        )
        partitions = [
            ShareAcknowledgePartition(partition_index=number, acknowledgement_batches=[accepted]) for number in (1, 9)
        ]
        acknowledging = ShareAcknowledgeRequest(
            **member, topics=[ShareAcknowledgeTopic(topic_id=topic.topic_id, partitions=partitions)]
        )
        acknowledging.share_session_epoch = next(sequence)
        recorder.ask(SHARE_ACKNOWLEDGE, version, acknowledging)
        recorder.ask(SHARE_FETCH, version, ShareFetchRequest(**member, share_session_epoch=-1), keep=False)
    leaving = ShareGroupHeartbeatRequest(**member, member_epoch=-1)
    recorder.ask(SHARE_GROUP_HEARTBEAT, 1, leaving, keep=False)
    rows = [AlterShareGroupOffsetsRequestPartition(partition_index=n, start_offset=1) for n in (1, 9)]
    altered = [AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=rows)]
    change = AlterShareGroupOffsetsRequest(group_id="share-members", topics=altered)
    settled(recorder, ALTER_SHARE_GROUP_OFFSETS, 0, change)
    deleted = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in (TOPIC, "none")]
    deletion = DeleteShareGroupOffsetsRequest(group_id="share-members", topics=deleted)
    settled(recorder, DELETE_SHARE_GROUP_OFFSETS, 0, deletion)


def share_fetch(recorder: Recorder, version: int, epoch: int, member: dict[str, Any], topic_id: bytes) -> Any:
    """Send a ShareFetch for one partition. Returns the response."""
    partitions = [ShareFetchPartition(partition_index=1)]
    request = ShareFetchRequest(
        **member,
        share_session_epoch=epoch,
        max_wait_ms=500,
        max_records=10,
        batch_size=10,
        topics=[ShareFetchTopic(topic_id=topic_id, partitions=partitions)] if epoch == 0 else [],
    )
    return recorder.ask(SHARE_FETCH, version, request)


def acquired(response: Any) -> list[Any]:
    """Returns the ranges of offsets that a response to ShareFetch contains."""
    return [row for topic in response.responses for part in topic.partitions for row in part.acquired_records]


def share_starts(response: Any) -> list[int]:
    """Returns the first group's start offset in each partition, or -1 until the partition was assigned."""
    return [row.start_offset for topic in response.groups[0].topics for row in topic.partitions]


def record_telemetry() -> dict[tuple[str, int], bytes]:
    """Returns the responses of a broker with a plugin for telemetry, which the others do not have."""
    with tempfile.TemporaryDirectory() as folder, TelemetryKafka(Path(folder)) as broker:
        broker.subscribe("all", "*", 1000, "recorder")
        recorder = Recorder(broker.kafka.bootstrap_servers)
        subscription: Any = None

        def is_subscribed() -> bool:
            """Request a new client instance id, which a broker allows at any time, until metrics are requested."""
            nonlocal subscription
            subscription = recorder.ask(GET_TELEMETRY_SUBSCRIPTIONS, 0, GetTelemetrySubscriptionsRequest())
            return bool(subscription.requested_metrics)

        wait_until(is_subscribed, 30, "the subscription")
        names = {
            "client_instance_id": subscription.client_instance_id,
            "subscription_id": subscription.subscription_id,
        }
        recorder.each(PUSH_TELEMETRY, lambda _: PushTelemetryRequest(**names, terminating=True))
        recorder.close()
        return {key: recorder.frames[key] for key in ((GET_TELEMETRY_SUBSCRIPTIONS.name, 0), (PUSH_TELEMETRY.name, 0))}


def main(versions: list[str]) -> None:
    """Start a broker of each version, record, write the file."""
    for version in versions:
        with KafkaCluster(version, properties=PROTOCOLS if version.startswith("3.") else {}) as kafka:
            kafka.create_topic(TOPIC, 2)
            kafka.produce(TOPIC, [b"first", b"second", b"third"], partition=0)
            kafka.coordinator_of("some")
            recorder = Recorder(kafka.bootstrap_servers)
            record(recorder)
            if recorder.versions(SHARE_GROUP_DESCRIBE):
                record_share_group(recorder, kafka)
                record_share_member(recorder, kafka)
            recorder.close()
        if version == DEFAULT_VERSION:
            recorder.frames |= record_telemetry()
        lines = [f"{name} {number} {frame.hex()}\n" for (name, number), frame in sorted(recorder.frames.items())]
        VECTORS.mkdir(exist_ok=True)
        (VECTORS / f"kafka-{version}.txt").write_text("".join(lines))
        wanted = sum(api.max_version - api.min_version + 1 for api in APIS.values())
        print(f"{version}: {len(lines)} responses of {wanted} that the tables know")


if __name__ == "__main__":
    main(sys.argv[1:])
