"""The engine's part of rebalance callbacks: which callback runs if the network thread changed the membership just
before.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.waiting import run
from support.harnesses.consumer_harness import INTERVAL_MS, ConsumerGroupHarness
from support.harnesses.group_harness import tps

pytestmark = pytest.mark.network_thread


class FencingLock:
    """A lock that simulates a network thread which held it just before and found that the member is fenced."""

    def __init__(self, group: ConsumerGroupHarness) -> None:
        self._group = group
        self._fenced = False

    def __enter__(self) -> None:
        if not self._fenced:
            self._fenced = True
            self._group.now += INTERVAL_MS
            (beat,) = self._group.background()
            self._group.refuse(beat, 110)

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("target", [[0], [0, 1, 2]], ids=["on_revoke is due", "on_assign is due"])
def test_fenced_before_the_callback_began(target: list[int]) -> None:
    """If the member is fenced after the engine selected a callback and before it runs, only on_lost is called, for all
    owned partitions.
    """
    group = ConsumerGroupHarness()
    group.joined({"t": [0, 1]})
    group.target({"t": target}, 2)
    group.poll()
    assert group.membership.due_callback is not None
    called: list[tuple[str, Any]] = []
    metrics = SimpleNamespace(callback_ran=lambda *_: None)
    lock = FencingLock(group)
    parts: Any = SimpleNamespace(
        group=SimpleNamespace(membership=group.membership, metrics=metrics),
        clock=SimpleNamespace(now=lambda: group.now),
        lock=lock,
        changing=lambda: lock,
    )
    consumer: Any = group
    callbacks = Callbacks(parts)
    callbacks.set_consumer(consumer)
    listener: Any = SimpleNamespace(
        on_partitions_assigned=lambda _, partitions: called.append(("assigned", partitions)),
        on_partitions_revoked=lambda _, partitions: called.append(("revoked", partitions)),
        on_partitions_lost=lambda _, partitions: called.append(("lost", partitions)),
    )
    callbacks.set_listener(listener)
    run(callbacks.run_due(), lambda _: None)
    assert [("lost", tps("t", 0, 1))] == called
