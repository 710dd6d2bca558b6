"""Fetch sessions of the cluster model (KIP-227)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import ClusterClient, advance


class Reader:
    """A client with a fetch session. It reads partitions of topic `t`."""

    def __init__(self, slots: int = 1000) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(settings=Settings(max_incremental_fetch_session_cache_slots=slots))
        self.topic_id = self.cluster.create_topic("t", 3).id
        self.client = ClusterClient(self.cluster, self.clock)

    def fetch(self, session: tuple[int, int], rows: Sequence[tuple[int, int]] = ()) -> Any:
        """Returns the response to a request with (session id, epoch) and rows of (partition, offset)."""
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index, offset in rows
        ]
        request = FetchRequest(
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)] if partitions else [],
        )
        return self.client.call(FETCH, 18, request)


def partitions(response: Any) -> list[int]:
    """Returns the partitions in a response."""
    return [result.partition_index for topic in response.responses for result in topic.partitions]


def test_a_full_cache() -> None:
    """A session is evicted by others only after two minutes, by age or by a larger one."""
    reader = Reader(slots=1)
    first = reader.fetch((0, 0), [(0, 0)]).session_id
    assert 0 == reader.fetch((0, 0), [(0, 0), (1, 0)]).session_id
    advance(reader.cluster, reader.clock, 100_000)
    reader.fetch((first, 1))
    advance(reader.cluster, reader.clock, 20_001)
    second = reader.fetch((0, 0), [(0, 0), (1, 0)]).session_id
    assert second > 0
    assert Errors.FETCH_SESSION_ID_NOT_FOUND == reader.fetch((first, 2)).error_code
    advance(reader.cluster, reader.clock, 100_000)
    reader.fetch((second, 1))
    advance(reader.cluster, reader.clock, 20_001)
    assert 0 == reader.fetch((0, 0), [(0, 0)]).session_id
    advance(reader.cluster, reader.clock, 100_000)
    assert reader.fetch((0, 0), [(0, 0)]).session_id > 0


def test_no_sessions() -> None:
    """A broker without session slots gives no session id."""
    reader = Reader(slots=0)
    response = reader.fetch((0, 0), [(0, 0)])
    assert (0, [0]) == (response.session_id, partitions(response))
