"""The API versions that the brokers of each release of Kafka support.

`HISTORY` contains the versions that a broker of each release announces by default. Of these versions, the model
supports those that `kconsumer.schema` defines.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kconsumer.schema import all_apis
from kconsumer.schema.dsl import Versions

RELEASES = (
    "2.1",
    "2.2",
    "2.3",
    "2.4",
    "2.5",
    "2.6",
    "2.7",
    "2.8",
    "3.0",
    "3.1",
    "3.2",
    "3.3",
    "3.4",
    "3.5",
    "3.6",
    "3.7",
    "3.8",
    "3.9",
    "4.0",
    "4.1",
    "4.2",
    "4.3",
    "4.4",
)
NEWEST = RELEASES[-1]

#: For each API: the first release with a range of versions, and the range. It is valid until the next entry.
HISTORY: dict[str, str] = {
    "Produce": "2.1:0-7 2.4:0-8 2.8:0-9 3.7:0-10 3.8:0-11 4.0:3-12 4.1:3-13",
    "Fetch": "2.1:0-10 2.3:0-11 2.7:0-12 3.1:0-13 3.5:0-15 3.7:0-16 3.9:0-17 4.0:4-17 4.1:4-18",
    "ListOffsets": "2.1:0-4 2.2:0-5 2.8:0-6 3.0:0-7 3.5:0-8 3.9:0-9 4.0:1-10 4.2:1-11",
    "Metadata": "2.1:0-7 2.3:0-8 2.4:0-9 2.8:0-11 3.1:0-12 4.0:0-13",
    "OffsetCommit": "2.1:0-6 2.3:0-7 2.4:0-8 3.7:0-9 4.0:2-9 4.2:2-10",
    "OffsetFetch": "2.1:0-5 2.4:0-6 2.5:0-7 3.0:0-8 3.7:0-9 4.0:1-9 4.2:1-10",
    "FindCoordinator": "2.1:0-2 2.4:0-3 3.0:0-4 3.8:0-5 3.9:0-6",
    "JoinGroup": "2.1:0-3 2.2:0-4 2.3:0-5 2.4:0-6 2.5:0-7 3.2:0-9 4.0:2-9 4.1:0-9",
    "Heartbeat": "2.1:0-2 2.3:0-3 2.4:0-4",
    "LeaveGroup": "2.1:0-2 2.4:0-4 3.2:0-5",
    "SyncGroup": "2.1:0-2 2.3:0-3 2.4:0-4 2.5:0-5",
    "DescribeGroups": "2.1:0-2 2.3:0-3 2.4:0-5 4.0:0-6",
    "ListGroups": "2.1:0-2 2.4:0-3 2.6:0-4 3.8:0-5",
    "SaslHandshake": "2.1:0-1",
    "ApiVersions": "2.1:0-2 2.4:0-3 3.9:0-4 4.4:0-5",
    "CreateTopics": "2.1:0-3 2.4:0-5 2.7:0-6 2.8:0-7 4.0:2-7",
    "DeleteTopics": "2.1:0-3 2.4:0-4 2.7:0-5 2.8:0-6 4.0:1-6",
    "DeleteRecords": "2.1:0-1 2.6:0-2",
    "InitProducerId": "2.1:0-1 2.4:0-2 2.5:0-3 2.7:0-4 3.8:0-5",
    "OffsetForLeaderEpoch": "2.1:0-2 2.3:0-3 2.8:0-4 4.0:2-4",
    "AddPartitionsToTxn": "2.1:0-1 2.7:0-2 2.8:0-3 3.6:0-4 3.8:0-5",
    "AddOffsetsToTxn": "2.1:0-1 2.7:0-2 2.8:0-3 3.8:0-4",
    "EndTxn": "2.1:0-1 2.7:0-2 2.8:0-3 3.8:0-4 4.0:0-5",
    "TxnOffsetCommit": "2.1:0-2 2.5:0-3 3.8:0-4 4.0:0-5 4.4:0-6",
    "DescribeConfigs": "2.1:0-2 2.6:0-3 2.8:0-4 4.0:1-4",
    "SaslAuthenticate": "2.1:0 2.2:0-1 2.5:0-2",
    "CreatePartitions": "2.1:0-1 2.5:0-2 2.7:0-3",
    "DeleteGroups": "2.1:0-1 2.4:0-2 4.4:0-3",
    "IncrementalAlterConfigs": "2.3:0 2.4:0-1",
    "AlterConfigs": "2.1:0-1 2.8:0-2",
    "OffsetDelete": "2.4:0",
    "DescribeCluster": "2.8:0 3.7:0-1 4.0:0-2",
    "DescribeTopicPartitions": "3.7:0",
    "CreateAcls": "2.1:0-1 2.4:0-2 3.3:0-3 4.0:1-3",
    "DeleteAcls": "2.1:0-1 2.4:0-2 3.3:0-3 4.0:1-3",
    "DescribeAcls": "2.1:0-1 2.4:0-2 3.3:0-3 4.0:1-3",
    "DescribeProducers": "2.8:0",
    "DescribeTransactions": "3.0:0",
    "ListTransactions": "3.0:0 3.8:0-1 4.1:0-2",
    "ConsumerGroupHeartbeat": "4.0:0-1",
    "ConsumerGroupDescribe": "4.0:0-1",
    "GetTelemetrySubscriptions": "3.7:0",
    "PushTelemetry": "3.7:0",
    "ListConfigResources": "3.7:0 4.1:0-1",
    "ShareGroupHeartbeat": "4.2:1",
    "ShareGroupDescribe": "4.2:1",
    "ShareFetch": "4.2:1-2",
    "ShareAcknowledge": "4.2:1-2",
    "DescribeShareGroupOffsets": "4.2:0-1",
    "AlterShareGroupOffsets": "4.2:0",
    "DeleteShareGroupOffsets": "4.2:0",
}


#: What brokers announce and the model does not, by subject. The broker closes the connection, as for an unknown API.
NOT_MODELLED: dict[str, dict[int, str]] = {
    "quotas of clients": {48: "DescribeClientQuotas", 49: "AlterClientQuotas"},
    "SCRAM users": {50: "DescribeUserScramCredentials", 51: "AlterUserScramCredentials"},
    "log directories": {34: "AlterReplicaLogDirs", 35: "DescribeLogDirs"},
    "delegation tokens": {
        38: "CreateDelegationToken",
        39: "RenewDelegationToken",
        40: "ExpireDelegationToken",
        41: "DescribeDelegationToken",
    },
    "elections and reassignments": {
        43: "ElectLeaders",
        45: "AlterPartitionReassignments",
        46: "ListPartitionReassignments",
    },
    "groups of Kafka Streams": {
        88: "StreamsGroupHeartbeat",
        89: "StreamsGroupDescribe",
        93: "StreamsGroupTopologyDescriptionUpdate",
    },
    "controllers, features and brokers": {
        55: "DescribeQuorum",
        57: "UpdateFeatures",
        64: "UnregisterBroker",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
        94: "UnregisterController",
    },
    "requests between brokers": {
        27: "WriteTxnMarkers",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
    },
}

#: The features that are enabled since a release, with their levels (KIP-584).
FEATURES = {
    "4.0": {"group.version": 1, "transaction.version": 2},
    "4.4": {
        "eligible.leader.replicas.version": 1,
        "metadata.version": 33,
        "share.version": 2,
        "streams.version": 1,
    },
}
MIN_LEVELS = {"metadata.version": 7}  # the smallest levels that brokers support, if they are not 0


def is_at_least(release: str, other: str) -> bool:
    """Returns whether `release` is the same as `other`, or newer."""
    return RELEASES.index(release) >= RELEASES.index(other)


def features_of(release: str) -> Mapping[str, int]:
    """Returns the features that are enabled on brokers of a release, with their levels."""
    position = RELEASES.index(release)
    since = (found for first, found in FEATURES.items() if RELEASES.index(first) <= position)
    return {name: level for found in since for name, level in found.items()}


@cache
def versions_of(release: str) -> Mapping[int, Versions]:
    """Returns the versions that brokers of a release support, by API key. Raises ValueError for an unknown release."""
    if release not in RELEASES:
        raise ValueError(f"the model has no Kafka {release!r}; it has {', '.join(RELEASES)}")
    found = {}
    for key, api in all_apis().items():
        announced = _announced(api.name, release)
        versions = Versions(max(announced.first, api.min_version), min(announced.last, api.max_version))
        if versions.first <= versions.last:
            found[key] = versions
    return found


def _announced(name: str, release: str) -> Versions:
    """Returns the versions of an API in a release. The range is empty if the release does not have the API."""
    found = Versions.parse("")
    for entry in HISTORY[name].split():
        first, _, versions = entry.partition(":")
        if RELEASES.index(first) <= RELEASES.index(release):
            found = Versions.parse(versions)
    return found
