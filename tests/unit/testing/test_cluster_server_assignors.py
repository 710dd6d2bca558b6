"""The server-side assignors of the cluster model.

`server_assignments.json` has what Kafka 4.4.0's assignors return for members with various subscriptions and present
assignments.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kconsumer.testing.cluster.groups.assignor_input import AssignorGroup, AssignorMember, Partitions
from kconsumer.testing.cluster.groups.map_order import hash_map_order, topic_order
from kconsumer.testing.cluster.groups.server_assignors import ASSIGNORS
from kconsumer.testing.cluster.hashes import java_hash_code

CASES = json.loads(Path(__file__).with_name("server_assignments.json").read_text())


def topic_id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def by_id(partitions: dict[str, list[int]]) -> Partitions:
    return {topic_id(text): set(found) for text, found in partitions.items()}


def assign(case: dict[str, Any]) -> dict[str, Partitions]:
    """Returns the assignment for a group in a row of the file."""
    rows = {row["id"]: row for row in case["members"]}
    members = []
    for member_id in hash_map_order(rows, java_hash_code):
        row = rows[member_id]
        topics = topic_order(map(topic_id, row["topics"]))
        members.append(AssignorMember(member_id, row["instance_id"], topics, by_id(row["target"])))
    homogeneous = len({frozenset(row["topics"]) for row in case["members"]}) == 1
    counts = {topic_id(text): count for text, count in case["topics"].items()}
    return ASSIGNORS[case["assignor"]](AssignorGroup(members, counts, homogeneous))


@pytest.mark.parametrize("case", CASES)
def test_assignments_equal_those_of_kafka(case: dict[str, Any]) -> None:
    """Each member gets the partitions that Kafka's assignor gives it."""
    found = assign(case)
    expected = {member_id: by_id(partitions) for member_id, partitions in case["assignment"].items()}
    assert expected == {member_id: found.get(member_id, {}) for member_id in expected}
