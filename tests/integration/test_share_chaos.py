"""A share group whose members are killed in the middle of batches, and whose leaders die.

`make test` runs it for some seconds on the model, `tox -e share-chaos` for ten minutes on Kafka.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from support.soak.share_chaos import ShareChaos, check

SECONDS = float(os.environ.get("KCONSUMER_CHAOS_SECONDS", "6"))
SEED = os.environ.get("KCONSUMER_CHAOS_SEED")


@pytest.mark.consumer_protocol
@pytest.mark.timeout(SECONDS * 1.5 + 300)
def test_a_share_group_under_faults(kafka_cluster3: Any, topic_name: str, tmp_path: Path) -> None:
    """Every record is received. After its acknowledgement was confirmed, no member receives it again."""
    seed = int(SEED) if SEED else random.randrange(1_000_000)
    chaos = ShareChaos(kafka_cluster3, topic_name, tmp_path, seed)
    chaos.run(SECONDS)
    found = check(chaos.events(), chaos.written)
    print(f"seed {seed}, {chaos.faults} faults: {found}")
    assert found["settled"] > 0
    assert chaos.faults > 0
