"""A group in bad weather behind a proxy, in its short form; `tox -e chaos` runs ten minutes of each protocol."""

from __future__ import annotations

import os
import random

import pytest

from support.soak.chaos import Chaos

SECONDS = float(os.environ.get("KCONSUMER_CHAOS_SECONDS", "60"))
SEED = os.environ.get("KCONSUMER_CHAOS_SEED")
CLASSIC = ("cooperative-sticky", "range")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.timeout(SECONDS * 1.5 + 300)
def test_a_group_in_bad_weather(protocol: str) -> None:
    """Members and coordinators die, stand still and are cut off: no record is lost or read again after its commit, no
    partition has two owners beyond what fencing allows, and all is stable two session timeouts later."""
    seed = int(SEED) if SEED else random.randrange(1_000_000)
    # Every other seed has the other assignor: one that gives everything up for a rebalance, and one that does not.
    chosen = CLASSIC[seed % len(CLASSIC)] if protocol == "classic" else protocol
    assert Chaos(chosen, seed).run(SECONDS)["records"]
