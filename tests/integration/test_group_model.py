"""Random calls of the members of a group; `tox -e model` runs ten minutes of each protocol.

The simulated members of `make simulate` make such calls for hours, in virtual time and repeatably.
"""

from __future__ import annotations

import json
import os
import sys

import pytest

from support.brokers.kafka_admin import Kafka
from support.model.group_model import CALM_S, GroupModel

SECONDS = float(os.environ.get("KCONSUMER_MODEL_SECONDS", "8"))
SEED = int(os.environ.get("KCONSUMER_MODEL_SEED", "2026"))


@pytest.mark.timeout(SECONDS * 1.5 + CALM_S + 200)
@pytest.mark.parametrize(
    "protocol",
    ["range", "cooperative-sticky", pytest.param("consumer", marks=pytest.mark.consumer_protocol)],
)
def test_random_calls(kafka: Kafka, topic_name: str, protocol: str) -> None:
    """For random calls of members, commits cover only processed records, records are returned in order and without
    gaps, calls raise only documented errors and end in time, and all records are read in the end.
    """
    numbers = GroupModel(kafka, protocol, topic_name, SEED).run(SECONDS)
    print(json.dumps(numbers), file=sys.stderr, flush=True)
    assert numbers["rebalances"]
