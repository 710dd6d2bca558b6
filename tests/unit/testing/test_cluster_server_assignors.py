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

from kconsumer.testing.cluster.groups.server_assignors import ASSIGNORS, AssignorMember, Partitions

CASES = json.loads(Path(__file__).with_name("server_assignments.json").read_text())


def topic_id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def by_id(partitions: dict[str, list[int]]) -> Partitions:
    return {topic_id(text): set(found) for text, found in partitions.items()}


def figures(members: list[AssignorMember], assignment: dict[str, Partitions]) -> tuple[int, list[int], int]:
    """Returns the number of assigned partitions, how many each member has, sorted, and how many stay where they are."""
    sizes = sorted(sum(map(len, partitions.values())) for partitions in assignment.values())
    kept = sum(
        len(member.target.get(topic, set()) & indexes)
        for member in members
        for topic, indexes in assignment[member.id].items()
    )
    return sum(sizes), sizes, kept


@pytest.mark.parametrize("case", CASES)
def test_assignments_are_as_good_as_those_of_kafka(case: dict[str, Any]) -> None:
    """Range assigns what Kafka's assignor does; uniform assigns as evenly, and moves no more partitions."""
    members = [
        AssignorMember(row["id"], row["instance_id"], [*map(topic_id, row["topics"])], by_id(row["target"]))
        for row in case["members"]
    ]
    counts = {topic_id(text): count for text, count in case["topics"].items()}
    found = ASSIGNORS[case["assignor"]](members, counts)
    expected = {member_id: by_id(partitions) for member_id, partitions in case["assignment"].items()}
    found = {member_id: {k: v for k, v in found.get(member_id, {}).items() if v} for member_id in expected}
    if case["assignor"] == "range":
        assert expected == found
    (count, sizes, kept), (kafka_count, kafka_sizes, kafka_kept) = figures(members, found), figures(members, expected)
    owned = {(topic, index) for partitions in found.values() for topic, rows in partitions.items() for index in rows}
    assert (kafka_count, kafka_count) == (count, len(owned))
    assert all(topic in member.topic_ids for member in members for topic in found[member.id])
    assert sum(size * size for size in kafka_sizes) >= sum(size * size for size in sizes)
    assert kafka_kept <= kept
