"""A soak test behind a proxy; `tox -e soak` runs it for half an hour.

`make test` runs it for one or two storms of faults. `make simulate` runs a hundred hours of such faults, in virtual
time and repeatably, but with neither real brokers nor memory that could grow.
"""

from __future__ import annotations

import os
import random

import pytest

from support.soak.soak import Soak

SECONDS = float(os.environ.get("KCONSUMER_SOAK_SECONDS", "10"))
SEED = os.environ.get("KCONSUMER_SOAK_SEED")


@pytest.mark.timeout(SECONDS * 1.5 + 400)
def test_nothing_is_lost_or_repeated_under_faults() -> None:
    """While leaders die, brokers and members freeze, and connections stall and break, readers lose and repeat no
    record.
    """
    seed = int(SEED) if SEED else random.randrange(1_000_000)
    numbers = Soak(seed).run(SECONDS)
    assert numbers["records"]
