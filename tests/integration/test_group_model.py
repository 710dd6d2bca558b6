"""Random calls of the members of a group, in their short form; `tox -e model` runs ten minutes of each protocol."""

from __future__ import annotations

import json
import os
import sys

import pytest

from support.brokers.kafka_admin import Kafka
from support.model.group_model import CALM_S, GroupModel

SECONDS = float(os.environ.get("KCONSUMER_MODEL_SECONDS", "20"))
SEED = int(os.environ.get("KCONSUMER_MODEL_SEED", "2026"))


@pytest.mark.timeout(SECONDS * 1.5 + CALM_S + 200)
@pytest.mark.parametrize(
    "protocol",
    ["range", "cooperative-sticky", pytest.param("consumer", marks=pytest.mark.consumer_protocol)],
)
def test_random_calls(kafka: Kafka, topic_name: str, protocol: str) -> None:
    """Whatever members call: commits cover nothing but what was processed, records come in order and without a gap,
    calls raise what is documented and end in time, and in the end everything is read."""
    numbers = GroupModel(kafka, protocol, topic_name, SEED).run(SECONDS)
    print(json.dumps(numbers), file=sys.stderr, flush=True)
    assert numbers["rebalances"]
