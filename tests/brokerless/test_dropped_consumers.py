"""Consumers that are dropped unclosed while they have records buffered: the cycle collector frees them, and the batches
decompressed in advance, in any order. Also run with the sanitizers (`make sanitized`).
"""

from __future__ import annotations

import gc
import random
from functools import partial
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer._core.decode import PartitionFetch
from kconsumer.testing.batches import Rec, build_batch
from support.fakes.log_broker import LogBroker

TP = TopicPartition("t", 0)
BATCHES = 100
ORDERS = ["as made", "frozen"]


def batches() -> list[bytes]:
    """Returns Zstd batches of two records each."""
    rng = random.Random(7)
    values = [rng.randbytes(50) * 60 for _ in range(2 * BATCHES)]
    pairs = zip(values[::2], values[1::2], strict=True)
    return [build_batch([Rec(a), Rec(b)], base_offset=2 * n, codec="zstd") for n, (a, b) in enumerate(pairs)]


def collect(order: str) -> None:
    """Run the cycle collector. Calls of `freeze` and `unfreeze` before it change the order in which it finds
    objects.
    """
    if order == "frozen":
        gc.freeze()
        gc.unfreeze()
    gc.collect()


class Owner:
    """Has a reference to a fetch that has a reference to it, like a buffered fetch and its entry in the buffer."""

    fetch: PartitionFetch

    def hold(self, _memory: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize("order", ORDERS)
def test_batches_decompressed_ahead(order: str) -> None:
    """A reference cycle with batches that are being decompressed is freed, and the size of batches decompressed in
    advance is not counted twice.
    """
    data = b"".join(batches())
    for _ in range(20):
        owner = Owner()
        owner.fetch = PartitionFetch(TP, data, 0, on_decompressed=partial(Owner.hold, owner))
        assert 3 == len(owner.fetch.take(3))
        del owner
        collect(order)
    assert 2 * BATCHES == len(PartitionFetch(TP, data, 0).take(1_000))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_a_consumer_in_the_middle_of_a_backlog(engine: str, order: str) -> None:
    """A consumer that is dropped without close() between two polls is freed with all its fetched records."""
    with LogBroker() as broker:
        for batch in batches():
            broker.logs[0].add(batch, broker.logs[0].end + 2)
        for _ in range(5):
            consumer = Consumer(bootstrap_servers=broker.address, engine=engine, auto_offset_reset="earliest")
            consumer.assign([TP])
            consumer.seek(TP, 0)
            while not consumer.poll(1.0, max_records=3):
                pass
            assert 3 == len(consumer.poll(1.0, max_records=3))
            del consumer
            collect(order)
