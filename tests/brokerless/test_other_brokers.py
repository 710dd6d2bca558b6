"""Consumers with brokers other than Apache Kafka, whose ranges of versions no release of Kafka has."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.errors import UnsupportedVersionError
from kconsumer.schema import all_apis
from kconsumer.schema.dsl import Versions
from kconsumer.testing import FakeCluster
from kconsumer.testing.cluster import releases
from support.harnesses.polling import numbered, read, tps, values

#: What brokers announce. They do not have the APIs that are not named.
RANGES = {
    "librdkafka's mock cluster": {
        "ApiVersions": "0-2",
        "Metadata": "0-9",
        "Fetch": "0-11",
        "ListOffsets": "0-7",
        "OffsetForLeaderEpoch": "2",
        "FindCoordinator": "0-3",
        "JoinGroup": "0-6",
        "SyncGroup": "0-4",
        "Heartbeat": "0-5",
        "LeaveGroup": "0-4",
        "OffsetCommit": "0-8",
        "OffsetFetch": "0-6",
    },
    "Redpanda": {
        "ApiVersions": "0-3",
        "Metadata": "0-7",
        "Fetch": "4-11",
        "ListOffsets": "0-3",
        "OffsetForLeaderEpoch": "0-3",
        "FindCoordinator": "0-2",
        "JoinGroup": "0-5",
        "SyncGroup": "0-3",
        "Heartbeat": "0-3",
        "LeaveGroup": "0-3",
        "OffsetCommit": "1-8",
        "OffsetFetch": "1-4",
    },
}
# It announces versions of Fetch that name topics by id, but its versions of Metadata do not contain ids.
RANGES["Redpanda of 2026"] = {**RANGES["Redpanda"], "Fetch": "4-13", "Metadata": "0-8", "OffsetFetch": "1-7"}
ENGINES = {"classic": {}, "threaded": {"engine": "threaded"}}
PARTITIONS = tps("t", 0, 1)


@pytest.fixture(params=RANGES)
def servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yields the address of a model that has only these versions, with ten records in two partitions."""
    announced = RANGES[request.param]
    found = {}
    for key, api in all_apis().items():
        versions = Versions.parse(announced.get(api.name, ""))
        found[key] = Versions(max(versions.first, api.min_version), min(versions.last, api.max_version))
    found = {key: versions for key, versions in found.items() if versions.first <= versions.last}
    monkeypatch.setattr(releases, "versions_of", lambda _: found)
    with FakeCluster(version="3.9") as cluster:
        cluster.create_topic("t", partitions=2)
        for partition in range(2):
            cluster.produce("t", numbered(5, 5 * partition), partition=partition)
        yield cluster.bootstrap_servers


def use(servers: str, options: dict[str, Any]) -> None:
    """Read ten records in a group and commit. The next member begins at the committed offsets."""
    options = {"bootstrap_servers": servers, "group_id": "g", "auto_offset_reset": "earliest", **options}
    with Consumer("t", enable_auto_commit=False, **options) as consumer:
        assert sorted(numbered(10)) == sorted(filter(None, values(read(consumer, 10))))
        assert dict.fromkeys(PARTITIONS, 0) == consumer.beginning_offsets(PARTITIONS)
        ends = consumer.end_offsets(PARTITIONS)
        consumer.commit()
    with Consumer("t", enable_auto_commit=False, **options) as consumer:
        committed = consumer.committed(PARTITIONS)
        assert ends == {tp: known.offset for tp, known in committed.items() if known is not None}
        assert not consumer.poll(timeout=1)


@pytest.mark.parametrize("engine", ENGINES)
def test_versions_of_other_brokers(servers: str, engine: str) -> None:
    """The classic protocol needs none of the newer versions, nor a broker with the versions of one release."""
    use(servers, ENGINES[engine])


def test_the_consumer_protocol(servers: str) -> None:
    """A broker without ConsumerGroupHeartbeat is named as the reason."""
    with (
        Consumer("t", bootstrap_servers=servers, group_id="g", group_protocol="consumer") as consumer,
        pytest.raises(UnsupportedVersionError, match="ConsumerGroupHeartbeat"),
    ):
        read(consumer, 1)
