"""Responses recorded from real brokers are parsed, contain what was requested, and are written again unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kconsumer._core.codec import decode_response, encode_response
from kconsumer.coordinator.classic_protocol.embedded import decode_assignment, decode_subscription
from kconsumer.schema import APIS, Api
from kconsumer.schema.dsl import ZERO_UUID

VECTORS = sorted((Path(__file__).parent / "vectors").glob("kafka-*.txt"))
BY_NAME = {api.name: api for api in APIS.values()}


def recorded(file: Path) -> dict[tuple[str, int], bytes]:
    """Returns the frames of a file by API and version."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {(name, int(version)): bytes.fromhex(frame) for name, version, frame in rows}


CASES = [
    pytest.param(BY_NAME[name], version, frame, id=f"{file.stem}-{name}-v{version}")
    for file in VECTORS
    for (name, version), frame in recorded(file).items()
]


@pytest.mark.parametrize(("api", "version", "frame"), CASES)
def test_written_again_unchanged(api: Api, version: int, frame: bytes) -> None:
    """A broker's response is unchanged after reading and writing it."""
    correlation_id, message = decode_response(api, version, frame)
    assert frame == encode_response(api, version, correlation_id, message)[4:]


@pytest.mark.parametrize(("api", "version", "frame"), CASES)
def test_says_what_was_asked(api: Api, version: int, frame: bytes) -> None:
    """The values are those that the broker must have sent."""
    _, message = decode_response(api, version, frame)
    CHECKS[api.name](message, version)


def test_everything_was_recorded() -> None:
    """The newest broker's responses are recorded for every API at every version of the tables."""
    newest = recorded(max(VECTORS))
    wanted = {(api.name, v) for api in APIS.values() for v in range(api.min_version, api.max_version + 1)}
    assert wanted == set(newest)


def check_api_versions(message: Any, version: int) -> None:
    """The response contains Fetch, and from v3 on features."""
    (fetch,) = [row for row in message.api_keys if row.api_key == 1]
    assert fetch.min_version <= 4 < fetch.max_version
    assert (version >= 3) == ("metadata.version" in [row.name for row in message.supported_features])


def check_metadata(message: Any, version: int) -> None:
    """One broker leads both partitions of the topic, whose id is in the response from v10 on."""
    (broker,) = message.brokers
    assert "127.0.0.1" == broker.host
    (topic,) = message.topics
    assert "vectors" == topic.name
    assert (version >= 10) == (topic.topic_id != ZERO_UUID)
    assert [0, 1] == sorted(partition.partition_index for partition in topic.partitions)
    assert all(partition.leader_id == broker.node_id for partition in topic.partitions)
    assert all(partition.leader_epoch == (0 if version >= 7 else -1) for partition in topic.partitions)


def check_find_coordinator(message: Any, version: int) -> None:
    """The response contains the only broker, from v4 on in a list."""
    found = message.coordinators[0] if version >= 4 else message
    assert (0, "127.0.0.1") == (found.error_code, found.host)
    assert version < 4 or found.key == "some"


def check_join_group(message: Any, version: int) -> None:
    """The only member leads and receives its own subscription."""
    assert 0 == message.error_code
    assert "range" == message.protocol_name
    (member,) = message.members
    assert message.leader == message.member_id == member.member_id
    subscription = decode_subscription(member.metadata)
    assert (["vectors"], b"data") == (subscription.topics, subscription.user_data)


def check_sync_group(message: Any, version: int) -> None:
    """The assignment is the one that the leader sent."""
    assert 0 == message.error_code
    (topic,) = decode_assignment(message.assignment).assigned_partitions
    assert ("vectors", [0, 1]) == (topic.topic, topic.partitions)


def check_no_error(message: Any, version: int) -> None:
    """The response contains no error."""
    assert 0 == message.error_code


def check_leave_group(message: Any, version: int) -> None:
    """From v3 on the response contains the member."""
    assert 0 == message.error_code
    assert [0] * (version >= 3) == [member.error_code for member in message.members]


def check_delete_groups(message: Any, version: int) -> None:
    """A group whose member has left was deleted, the other group does not exist."""
    assert {f"classic-{version}": 0, "none": 69} == {row.group_id: row.error_code for row in message.results}


def check_offset_commit(message: Any, version: int) -> None:
    """The commit of one partition succeeded, the other partition is unknown."""
    (topic,) = message.topics
    assert ("vectors" if version < 10 else "") == topic.name
    assert {0: 0, 9: 3} == {row.partition_index: row.error_code for row in topic.partitions}


def check_offset_fetch(message: Any, version: int) -> None:
    """One partition has an offset with metadata, the other has none."""
    (topic,) = message.groups[0].topics if version >= 8 else message.topics
    found = {row.partition_index: (row.committed_offset, row.metadata) for row in topic.partitions}
    assert {0: (3, "note"), 1: (-1, "")} == found


def check_list_offsets(message: Any, version: int) -> None:
    """The response contains the first record after a time, the end of an empty partition, and an unknown partition."""
    (topic,) = message.topics
    rows = {row.partition_index: row for row in topic.partitions}
    assert {0: (0, 0), 1: (0, 0), 9: (3, -1)} == {n: (row.error_code, row.offset) for n, row in rows.items()}
    assert rows[0].timestamp > 1_700_000_000_000
    assert (0 if version >= 4 else -1) == rows[0].leader_epoch


def check_epoch_end(message: Any, version: int) -> None:
    """The first leader epoch ends at the end of the log."""
    (topic,) = message.topics
    found = {row.partition: (row.error_code, row.leader_epoch, row.end_offset) for row in topic.partitions}
    assert {0: (0, 0, 3), 9: (3, -1, -1)} == found


def check_fetch(message: Any, version: int) -> None:
    """The response contains a partition with three records, an empty one, and one with an error."""
    (topic,) = message.responses
    assert (version >= 13) == (topic.topic_id != ZERO_UUID) == (topic.topic == "")
    full, empty, unknown = sorted(topic.partitions, key=lambda row: row.partition_index)
    assert (0, 3) == (full.error_code, full.high_watermark)
    assert b"third" in bytes(full.records)
    assert (0, 0, 0) == (empty.error_code, empty.high_watermark, len(empty.records))
    assert 3 == unknown.error_code
    assert (version >= 7) == (message.session_id != 0)


def check_list_groups(message: Any, version: int) -> None:
    """The response contains the groups of the recording."""
    groups = {group.group_id: group for group in message.groups}
    assert "consumer" == groups["classic-0"].protocol_type
    assert ("Empty" if version >= 4 else "") == groups["classic-0"].group_state
    assert ("classic" if version >= 5 else "") == groups["classic-0"].group_type.lower()


def check_describe_groups(message: Any, version: int) -> None:
    """The response contains a stable group with a member, and a group that does not exist."""
    group, nothing = message.groups
    assert ("Stable", "range") == (group.group_state, group.protocol_data)
    (member,) = group.members
    assert "recorder" == member.client_id
    assert ["vectors"] == decode_subscription(member.member_metadata).topics
    assert "Dead" == nothing.group_state


def check_consumer_group_heartbeat(message: Any, version: int) -> None:
    """The member has joined and owns both partitions."""
    assert 0 == message.error_code
    assert message.member_epoch > 0
    (topic,) = message.assignment.topic_partitions
    assert [0, 1] == sorted(topic.partitions)


def check_consumer_group_describe(message: Any, version: int) -> None:
    """The response contains a group with a member, and a group that does not exist."""
    group, *_, nothing = message.groups
    assert (0, "uniform") == (group.error_code, group.assignor_name)
    (member,) = group.members
    (topic,) = member.target_assignment.topic_partitions
    assert ("vectors", [0, 1]) == (topic.topic_name, sorted(topic.partitions))
    assert 69 == nothing.error_code


def check_share_group_heartbeat(message: Any, version: int) -> None:
    """A member joined with the id that it chose and was assigned both partitions."""
    (topic,) = message.assignment.topic_partitions
    assert (0, 36, [0, 1]) == (message.error_code, len(message.member_id), sorted(topic.partitions))
    assert message.member_epoch > 0
    assert message.heartbeat_interval_ms > 0


def check_share_fetch(message: Any, version: int) -> None:
    """A member acquired records for the first time, for the duration of the acquisition lock."""
    assert (0, 30_000) == (message.error_code, message.acquisition_lock_timeout_ms)
    (topic,) = message.responses
    (partition,) = topic.partitions
    assert (1, 0, 0) == (partition.partition_index, partition.error_code, partition.acknowledge_error_code)
    (acquired,) = partition.acquired_records
    assert (1, 1) == (acquired.last_offset - acquired.first_offset, acquired.delivery_count)
    assert len(partition.records) > 0


def check_share_acknowledge(message: Any, version: int) -> None:
    """The records of a partition were acknowledged, and those of a partition that does not exist were not."""
    (topic,) = message.responses
    assert [(1, 0), (9, 3)] == [(row.partition_index, row.error_code) for row in topic.partitions]
    assert (30_000 if version >= 2 else 0) == message.acquisition_lock_timeout_ms


def check_alter_share_group_offsets(message: Any, version: int) -> None:
    """The offset of a partition was changed, and that of a partition that does not exist was not."""
    (topic,) = message.responses
    rows = [(row.partition_index, row.error_code, bool(row.error_message)) for row in topic.partitions]
    assert ("vectors", [(1, 0, False), (9, 3, True)]) == (topic.topic_name, rows)


def check_delete_share_group_offsets(message: Any, version: int) -> None:
    """The offsets of a topic were deleted, and those of a topic that does not exist were not."""
    rows = [(row.topic_name, row.error_code, bool(row.error_message)) for row in message.responses]
    assert [("vectors", 0, False), ("none", 3, True)] == rows


def check_share_group_describe(message: Any, version: int) -> None:
    """The response contains a share group with a member, and a group that does not exist."""
    group, nothing = message.groups
    assert (0, "shares", "Stable", "simple") == (
        group.error_code,
        group.group_id,
        group.group_state,
        group.assignor_name,
    )
    (member,) = group.members
    (topic,) = member.assignment.topic_partitions
    assert (["vectors"], "vectors", [0, 1]) == (
        member.subscribed_topic_names,
        topic.topic_name,
        sorted(topic.partitions),
    )
    assert 69 == nothing.error_code


def check_share_group_offsets(message: Any, version: int) -> None:
    """The response contains the start offsets of a share group, from v1 on with its lag, and no offsets of a group that
    does not exist.
    """
    group, nothing = message.groups
    assert (0, "shares") == (group.error_code, group.group_id)
    (topic,) = group.topics
    assert "vectors" == topic.topic_name
    started = [row for row in topic.partitions if row.start_offset >= 0]
    assert [1] == [row.partition_index for row in started]
    assert (version >= 1) == (started[0].lag >= 0)
    assert (0, []) == (nothing.error_code, nothing.topics)


def check_telemetry_subscriptions(message: Any, version: int) -> None:
    """The broker assigned a client instance id and requests all metrics."""
    assert (0, ["*"], 1000) == (message.error_code, message.requested_metrics, message.push_interval_ms)
    assert message.client_instance_id != ZERO_UUID
    assert {1, 2, 3, 4} == set(message.accepted_compression_types)
    assert message.telemetry_max_bytes > 0
    assert message.delta_temporality


def check_sasl(message: Any, version: int) -> None:
    """A listener without SASL rejects the request."""
    assert 34 == message.error_code


CHECKS = {
    "ApiVersions": check_api_versions,
    "Metadata": check_metadata,
    "FindCoordinator": check_find_coordinator,
    "JoinGroup": check_join_group,
    "SyncGroup": check_sync_group,
    "Heartbeat": check_no_error,
    "DeleteGroups": check_delete_groups,
    "LeaveGroup": check_leave_group,
    "OffsetCommit": check_offset_commit,
    "OffsetFetch": check_offset_fetch,
    "ListOffsets": check_list_offsets,
    "OffsetForLeaderEpoch": check_epoch_end,
    "Fetch": check_fetch,
    "ListGroups": check_list_groups,
    "DescribeGroups": check_describe_groups,
    "ConsumerGroupHeartbeat": check_consumer_group_heartbeat,
    "ConsumerGroupDescribe": check_consumer_group_describe,
    "ShareGroupHeartbeat": check_share_group_heartbeat,
    "ShareGroupDescribe": check_share_group_describe,
    "ShareFetch": check_share_fetch,
    "ShareAcknowledge": check_share_acknowledge,
    "AlterShareGroupOffsets": check_alter_share_group_offsets,
    "DeleteShareGroupOffsets": check_delete_share_group_offsets,
    "DescribeShareGroupOffsets": check_share_group_offsets,
    "GetTelemetrySubscriptions": check_telemetry_subscriptions,
    "PushTelemetry": check_no_error,
    "SaslHandshake": check_sasl,
    "SaslAuthenticate": check_sasl,
}
