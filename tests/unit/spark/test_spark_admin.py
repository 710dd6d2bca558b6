"""What the driver of a Spark query asks brokers, and how often, with a client that answers from a list."""

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
    """A topic of one partition."""

    internal = False
    partitions = (PartitionInfo("t", 0, None, (), (), ()),)


class Client:
    """Gives the answers in turn, the last one for ever; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = self.closed = 0

    def _answer(self) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """The topics there are."""
        found: dict[str, Any] = self._answer()
        return found

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where all partitions end."""
        return dict.fromkeys(partitions, self._answer())

    def close(self) -> None:
        """Connections are made again."""
        self.closed += 1


def admin(client: Client, **options: str) -> Admin:
    """Questions about the topic t, with no pause between tries."""
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "fetchOffset.retryIntervalMs": "0", **options}
    return Admin(parse(given, "stream"), client)  # type: ignore[arg-type]


def test_a_topic_that_is_not_known_yet_is_asked_for_again() -> None:
    """A broker that has just started, or a topic that is made anew, does not end a query at once."""
    client = Client({}, {}, {"t": Listing})
    assert {T0} == admin(client).partitions()
    assert (3, 2) == (client.asked, client.closed)


def test_a_topic_that_stays_unknown_is_an_error_that_names_it() -> None:
    """After as many tries as the option says."""
    client = Client({})
    with pytest.raises(MissingTopicError, match=r"UnknownTopicOrPartition: topic t does not exist on b:1"):
        admin(client, **{"fetchOffset.numRetries": "4"}).partitions()
    assert 4 == client.asked


def test_errors_that_may_pass_are_tried_again_and_others_are_not() -> None:
    """A lost connection is, a lack of rights is not."""
    lost = Client(BrokerConnectionError("lost"), {"t": Listing})
    assert {T0} == admin(lost).partitions()
    refused = Client(AuthorizationError("no"), {"t": Listing})
    with pytest.raises(AuthorizationError):
        admin(refused).partitions()
    assert (2, 1) == (lost.asked, refused.asked)


def test_an_end_that_went_back_is_asked_for_again_and_then_believed() -> None:
    """A broker that is behind says so once; a topic that was made anew says so every time."""
    behind = Client(5, 20)
    assert {T0: 20} == admin(behind).latest([T0], known={T0: 10})
    anew = Client(5)
    assert {T0: 5} == admin(anew).latest([T0], known={T0: 10})
    assert (2, 3) == (behind.asked, anew.asked)
