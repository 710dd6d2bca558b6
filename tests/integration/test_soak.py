"""A soak test behind a proxy, in its short form; `tox -e soak` runs it for half an hour."""

from __future__ import annotations

import os
import random

import pytest

from support.soak.soak import Soak

SECONDS = float(os.environ.get("KCONSUMER_SOAK_SECONDS", "40"))
SEED = os.environ.get("KCONSUMER_SOAK_SEED")


@pytest.mark.timeout(SECONDS * 1.5 + 400)
def test_nothing_is_lost_or_repeated_under_faults() -> None:
    """While leaders die, brokers and members freeze, and connections stall and break, readers lose and repeat no
    record.
    """
    seed = int(SEED) if SEED else random.randrange(1_000_000)
    numbers = Soak(seed).run(SECONDS)
    assert numbers["records"]
