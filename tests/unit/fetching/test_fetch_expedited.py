"""What the fetch in flight does not ask for is fetched at once on another connection, once, and taken once."""

from __future__ import annotations

import pytest

from kconsumer.errors import BrokerConnectionError
from kconsumer.fetching.manager import EXPEDITE_AFTER_MS
from kconsumer.managers import UnsentRequest
from support.harnesses.fetching import World

ALL = list(range(10))


def sought_world(sessions: int = 1) -> tuple[World, UnsentRequest]:
    """A world that was read to its end and sought back to 0 while a fetch waits at the broker, and that fetch."""
    world = World(sessions=sessions)
    world.logs[world.tps[0]].append(10)
    world.fetch()
    assert [ALL] == list(world.collect().values())
    (waiting,) = world.poll()
    world.seek(world.tps[0], 0)
    return world, waiting


def expedited(world: World) -> UnsentRequest:
    """The expedited fetch that is sent now."""
    (request,) = world.poll()
    message = request.message
    assert ("*0", 0, 0, -1) == (request.node, message.max_wait_ms, message.session_id, message.session_epoch)
    return request


@pytest.mark.parametrize("waiting_first", [False, True])
def test_seek_while_a_fetch_waits(waiting_first: bool) -> None:
    """The records after a seek are taken once, whichever of the two fetches ends first, and memory is given back."""
    world, waiting = sought_world()
    assert [] == world.poll()  # the fetch in flight may be answered in a moment
    world.wait(EXPEDITE_AFTER_MS)
    request = expedited(world)
    assert [] == world.poll()
    if waiting_first:
        world.answer(waiting)
        (following,) = world.poll()
        assert "0" == following.node
        world.answer(request)
        world.answer(following)
    else:
        world.answer(request)
    assert [ALL] == list(world.collect().values())
    if not waiting_first:
        world.answer(expedited(world))  # up to the end of the log
        assert ([], {}) == (world.poll(), world.collect())
        world.answer(waiting)
    world.logs[world.tps[0]].append(1)
    world.fetch()
    assert [[10]] == list(world.collect().values())
    assert 0 == world.buffer.memory.reserved


def test_a_failed_expedited_fetch_is_not_repeated() -> None:
    """With the second connection refused, reading continues when the fetch in flight ends, as without it."""
    world, waiting = sought_world()
    world.wait(EXPEDITE_AFTER_MS)
    world.reply(expedited(world), error=BrokerConnectionError("refused"))
    world.wait(1_000)
    assert [] == world.poll()
    world.answer(waiting)
    world.fetch()
    assert [ALL] == list(world.collect().values())


def test_no_expedited_fetch_while_records_wait() -> None:
    """What is buffered keeps the caller busy: nothing is expedited beside it."""
    world = World(2)
    world.logs[world.tps[1]].append(10)
    world.fetch()
    world.poll()
    world.seek(world.tps[0], 0)
    world.wait(EXPEDITE_AFTER_MS)
    assert [] == [request.node for request in world.poll() if request.node != "0"]
