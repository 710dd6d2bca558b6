"""The requests of a query's driver and their retries, with a client that returns responses from a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kconsumer.spark.admin import Admin, MissingTopicError
from kconsumer.spark.options import parse
from kconsumer.types import TopicPartition


class Client:
    """Returns the responses in order, and the last one repeatedly; raises those that are exceptions."""

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.requests = self.closed = 0

    def _respond(self) -> Any:
        self.requests += 1
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, Exception):
            raise response
        return response

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns the topics of the next response."""
        found: dict[str, Any] = self._respond()
        return found

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the end offsets of the next response."""
        return dict.fromkeys(partitions, self._respond())

    def close(self) -> None:
        """Records that connections are opened again."""
        self.closed += 1


def admin(client: Client, **options: str) -> Admin:
    """Returns the requests for topic t, without pauses between attempts."""
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "fetchOffset.retryIntervalMs": "0", **options}
    return Admin(parse(given, "stream"), client)  # type: ignore[arg-type]


def test_a_topic_that_stays_unknown_is_an_error() -> None:
    """After the configured number of attempts the error names the topic."""
    client = Client({})
    with pytest.raises(MissingTopicError, match=r"UnknownTopicOrPartition: topic t does not exist on b:1"):
        admin(client, **{"fetchOffset.numRetries": "4"}).partitions()
    assert 4 == client.requests
