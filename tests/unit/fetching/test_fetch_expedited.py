"""Partitions that the fetch in flight does not request are fetched at once on another connection; records are returned
once.
"""

from __future__ import annotations

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.errors import BrokerConnectionError
from kconsumer.fetching import manager
from kconsumer.fetching.buffer import FetchChain
from kconsumer.fetching.manager import EXPEDITE_AFTER_MS
from support.harnesses.fetching import FetchHarness

ALL = list(range(10))


def sought_world(sessions: int = 1) -> tuple[FetchHarness, UnsentRequest]:
    """Return a harness that was read to its end and sought back to 0 while a fetch waits at the broker,
    and that fetch.
    """
    harness = FetchHarness(sessions=sessions)
    harness.logs[harness.tps[0]].append(10)
    harness.fetch()
    assert [ALL] == list(harness.collect().values())
    (waiting,) = harness.poll()
    harness.seek(harness.tps[0], 0)
    return harness, waiting


def expedited(harness: FetchHarness) -> UnsentRequest:
    """Return the expedited fetch that is sent now."""
    (request,) = harness.poll()
    message = request.message
    assert ("*0", 0, 0, -1) == (request.node, message.max_wait_ms, message.session_id, message.session_epoch)
    return request


@pytest.mark.parametrize("waiting_first", [False, True])
def test_seek_while_a_fetch_waits(waiting_first: bool) -> None:
    """The records after a seek are returned once, whichever of the two fetches ends first, and their
    memory is freed.
    """
    harness, waiting = sought_world()
    assert [] == harness.poll()  # the fetch in flight may have a response soon
    harness.wait(EXPEDITE_AFTER_MS)
    request = expedited(harness)
    assert [] == harness.poll()
    if waiting_first:
        harness.respond(waiting)
        (following,) = harness.poll()
        assert "0" == following.node
        harness.respond(request)
        harness.respond(following)
    else:
        harness.respond(request)
    assert [ALL] == list(harness.collect().values())
    if not waiting_first:
        harness.respond(expedited(harness))  # up to the end of the log
        assert ([], {}) == (harness.poll(), harness.collect())
        harness.respond(waiting)
    harness.logs[harness.tps[0]].append(1)
    harness.fetch()
    assert [[10]] == list(harness.collect().values())
    assert 0 == harness.buffer.memory.reserved


def test_a_failed_expedited_fetch_is_not_repeated() -> None:
    """If the second connection is refused, reading continues when the fetch in flight ends."""
    harness, waiting = sought_world()
    harness.wait(EXPEDITE_AFTER_MS)
    harness.reply(expedited(harness), error=BrokerConnectionError("refused"))
    harness.wait(1_000)
    assert [] == harness.poll()
    harness.respond(waiting)
    harness.fetch()
    assert [ALL] == list(harness.collect().values())


def test_no_expedited_fetch_while_records_wait() -> None:
    """No expedited fetch is sent while the caller has buffered records to process."""
    harness = FetchHarness(2)
    harness.logs[harness.tps[1]].append(10)
    harness.fetch()
    harness.poll()
    harness.seek(harness.tps[0], 0)
    harness.wait(EXPEDITE_AFTER_MS)
    assert [] == [request.node for request in harness.poll() if request.node != "0"]


@pytest.mark.parametrize("partitions", [10, 1_000])
def test_only_changed_partitions_are_checked(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While fetches wait, a poll checks only partitions that changed, however many there are."""
    harness = FetchHarness(partitions, brokers=2, sessions=2)
    harness.fetch()
    harness.poll()
    harness.seek(harness.tps[0], 5)
    harness.wait(EXPEDITE_AFTER_MS)
    checked: list[FetchChain] = []
    original = manager.has_room
    monkeypatch.setattr(manager, "has_room", lambda chain: checked.append(chain) or original(chain))
    assert ["*0"] == [request.node for request in harness.poll()]
    assert [harness.tps[0]] == [chain.topic_partition for chain in checked]
