"""Fetch sessions of the cluster model (KIP-227)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema import FETCH
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import ClusterClient, advance


class Reader:
    """A client with a fetch session. It reads partitions of topic `t`."""

    def __init__(self, slots: int = 1000) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(settings=Settings(max_incremental_fetch_session_cache_slots=slots))
        self.topic = self.cluster.create_topic("t", 3)
        self.client = ClusterClient(self.cluster, self.clock)
        self.topic_id = self.topic.id

    def fetch(
        self,
        session: tuple[int, int],
        rows: Sequence[tuple[int, int]] = (),
        forgotten: Sequence[int] = (),
        version: int = 18,
    ) -> Any:
        """Returns the response to a request with (session id, epoch) and rows of (partition, offset)."""
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index, offset in rows
        ]
        named = {"topic": "t", "topic_id": self.topic_id}
        request = FetchRequest(
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(**named, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(**named, partitions=list(forgotten))] if forgotten else [],
        )
        return self.client.call(FETCH, version, request)


def partitions(response: Any) -> list[int]:
    """Returns the partitions in a response."""
    return [result.partition_index for topic in response.responses for result in topic.partitions]


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_partitions_are_added_and_forgotten(reader: Reader) -> None:
    """A request adds partitions to its session and removes others. Without partitions the session ends."""
    session = reader.fetch((0, 0), [(0, 0)]).session_id
    assert [1] == partitions(reader.fetch((session, 1), [(1, 0)], [0]))
    for partition in reader.topic.partitions:
        partition.append(build_batch([b"a"]), 5)
    assert [1] == partitions(reader.fetch((session, 2)))
    response = reader.fetch((session, 3), [], [1])
    assert (Errors.NONE, 0) == (response.error_code, response.session_id)
    assert Errors.FETCH_SESSION_ID_NOT_FOUND == reader.fetch((session, 4)).error_code


def test_session_errors(reader: Reader) -> None:
    """A wrong epoch, an unknown session, and a session of another kind of topic names are errors of the response."""
    session = reader.fetch((0, 0), [(0, 0)]).session_id
    wrong = [
        ((session, 2), 18, Errors.INVALID_FETCH_SESSION_EPOCH),
        ((session + 1, 1), 18, Errors.FETCH_SESSION_ID_NOT_FOUND),
        ((session, 1), 12, Errors.FETCH_SESSION_TOPIC_ID_ERROR),
    ]
    for asked, version, error in wrong:
        response = reader.fetch(asked, version=version)
        assert (error, 0, []) == (response.error_code, response.session_id, response.responses)
    assert Errors.NONE == reader.fetch((session, 1)).error_code


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


def test_a_topic_that_is_created_again(reader: Reader) -> None:
    """A session with topic ids notices that a topic was deleted, and that its name has another id later."""
    session = reader.fetch((0, 0), [(0, 0)]).session_id
    reader.cluster.delete_topic("t")
    response = reader.fetch((session, 1))
    assert [Errors.UNKNOWN_TOPIC_OR_PARTITION] == [row.error_code for row in response.responses[0].partitions]
    reader.cluster.create_topic("t")
    response = reader.fetch((session, 2))
    assert [Errors.INCONSISTENT_TOPIC_ID] == [row.error_code for row in response.responses[0].partitions]
    assert [reader.topic_id] == [topic.topic_id for topic in response.responses]
