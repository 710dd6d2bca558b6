"""A group of processes behind a proxy that injects faults; `tox -e chaos` runs ten minutes of each protocol.

`make test` runs one protocol, another one each day, for one or two storms of faults: enough to see that processes,
sockets and brokers take part. `make simulate` runs a hundred hours of such faults, in virtual time and repeatably.
"""

from __future__ import annotations

import os
import random
from datetime import date

import pytest

from support.soak.chaos import Chaos

SECONDS = float(os.environ.get("KCONSUMER_CHAOS_SECONDS", "10"))
SEED = os.environ.get("KCONSUMER_CHAOS_SEED")
PROTOCOLS = ("classic", "consumer")
CLASSIC = ("cooperative-sticky", "range")
TODAY = date.today().toordinal() % 2


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(name, marks=() if day == TODAY else pytest.mark.long) for day, name in enumerate(PROTOCOLS)],
)
@pytest.mark.timeout(SECONDS * 1.5 + 300)
def test_a_group_under_faults(protocol: str) -> None:
    """Members and coordinators are killed, suspended and disconnected. No record is lost or read again after its
    commit, no partition has two owners longer than fencing allows, and the group is stable two session timeouts later.
    """
    seed = int(SEED) if SEED else random.randrange(1_000_000)
    # Seeds alternate between an assignor that revokes all partitions for a rebalance and one that does not.
    chosen = CLASSIC[seed % len(CLASSIC)] if protocol == "classic" else protocol
    assert Chaos(chosen, seed).run(SECONDS)["records"]
