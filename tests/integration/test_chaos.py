"""A group of processes behind a proxy that injects faults; `tox -e chaos` runs ten minutes of each kind every night.

A run is random and cannot be repeated, so `make test` has none. It runs the same members and rules in virtual time.
"""

from __future__ import annotations

import os
import random

import pytest

from support.brokers.kafka_jars import CHOSEN_VERSION, release_of
from support.chaos.chaos import Chaos

SECONDS = float(os.environ.get("KCONSUMER_CHAOS_SECONDS", "10"))
SEED = os.environ.get("KCONSUMER_CHAOS_SEED")
KINDS = ("classic", "consumer", "share")
ORDERS = ("key", "partition", "none")
ASSIGNORS = ("cooperative-sticky", "range")
PROTOCOLS = ASSIGNORS if release_of(CHOSEN_VERSION) < (4, 0) else (*ASSIGNORS, "consumer")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(SECONDS * 1.5 + 400)
def test_a_group_under_faults(kind: str) -> None:
    """While members, brokers and connections fail, no rule of the simulation is violated."""
    seed = int(SEED) if SEED else random.randrange(1_000_000)
    # Seeds alternate between an assignor that revokes all partitions for a rebalance and one that does not.
    protocol = kind if kind in ("consumer", "share") else ASSIGNORS[seed % len(ASSIGNORS)]
    assert Chaos(protocol, seed).run(SECONDS)["records"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.timeout(SECONDS * 1.5 + 400)
def test_handlers_under_faults(order: str) -> None:
    """The same holds for members with each executor of `kconsumer.parallel`: nothing is lost or out of order, and what
    is committed, as at each clean stop, is not repeated.
    """
    seed = int(SEED) if SEED else random.randrange(1_000_000)
    assert Chaos(PROTOCOLS[seed % len(PROTOCOLS)], seed, order).run(SECONDS)["records"]
