"""Messages of the protocol as type checkers see them: one definition has the fields and their types."""

from __future__ import annotations

from typing import assert_type

from kconsumer.schema.dsl import INT32, STRING, F, Message, array
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState


class Wrong(Message):
    """The kinds of these fields contradict their types."""

    number: str = F(INT32)  # type: ignore[assignment]
    text: str = F(STRING, null="2+")  # type: ignore[assignment]  # may be None
    topics: list[FetchPartition] = F(array(FetchTopic))  # type: ignore[arg-type]
    state: ReplicaState = F(ReplicaState, tag=1)  # type: ignore[assignment]  # may be None
    default: int = F(INT32, default="1")  # type: ignore[misc]


def messages() -> None:
    """No field is required, all are keyword arguments, and each has its type."""
    request = FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(partition=1)])])
    assert_type(request.topics, list[FetchTopic])
    assert_type(request.cluster_id, str | None)
    assert_type(request.replica_state, ReplicaState | None)
    FetchRequest("orders")  # type: ignore[call-arg]  # no keyword
    FetchRequest(max_wait=500)  # type: ignore[call-arg]  # misspelt
    FetchRequest(max_wait_ms="500")  # type: ignore[arg-type]  # not a number
    request.max_wait = 500  # type: ignore[attr-defined]
