"""The requests of a query's driver and their retries, with a client that returns responses from a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kconsumer.errors import AuthorizationError, BrokerConnectionError
from kconsumer.spark.admin import Admin, MissingTopicError
from kconsumer.spark.options import parse
from kconsumer.types import PartitionInfo, TopicPartition

T0 = TopicPartition("t", 0)


class Listing:
    """A topic with one partition."""

    internal = False
    partitions = (PartitionInfo("t", 0, None, (), (), ()),)


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


def test_an_unknown_topic_is_requested_again() -> None:
    """A topic that is not known yet, after a broker start or a re-creation, does not end a query at once."""
    client = Client({}, {}, {"t": Listing})
    assert {T0} == admin(client).partitions()
    assert (3, 2) == (client.requests, client.closed)


def test_a_topic_that_stays_unknown_is_an_error() -> None:
    """After the configured number of attempts the error names the topic."""
    client = Client({})
    with pytest.raises(MissingTopicError, match=r"UnknownTopicOrPartition: topic t does not exist on b:1"):
        admin(client, **{"fetchOffset.numRetries": "4"}).partitions()
    assert 4 == client.requests


def test_only_retriable_errors_are_retried() -> None:
    """A lost connection is retried; a missing permission is not."""
    lost = Client(BrokerConnectionError("lost"), {"t": Listing})
    assert {T0} == admin(lost).partitions()
    refused = Client(AuthorizationError("no"), {"t": Listing})
    with pytest.raises(AuthorizationError):
        admin(refused).partitions()
    assert (2, 1) == (lost.requests, refused.requests)


def test_a_lower_end_is_requested_again_and_then_used() -> None:
    """A lower end offset is requested again: a broker that lags returns it once, a re-created topic every time."""
    behind = Client(5, 20)
    assert {T0: 20} == admin(behind).latest([T0], known={T0: 10})
    recreated = Client(5)
    assert {T0: 5} == admin(recreated).latest([T0], known={T0: 10})
    assert (2, 3) == (behind.requests, recreated.requests)
