"""Groups of processes on a real broker: members join, leave and die while records are produced."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from support.brokers.kafka import Kafka
from support.members.clients import settings
from support.members.group_load import PARTITIONS, all_offsets, drained, everything, load, one_three_two
from support.members.members import (
    MemberProcess,
    Partition,
    assert_all_seen,
    shared_out,
    wait_for,
)

CONSUMER = pytest.mark.consumer_protocol, pytest.mark.network_thread


@pytest.mark.parametrize(
    ("assignors", "options", "keeps"),
    [
        pytest.param(["range"], {}, False, id="range"),
        pytest.param(["roundrobin"], {}, False, id="roundrobin"),
        pytest.param(["sticky"], {}, False, id="sticky"),
        pytest.param(["cooperative-sticky"], {}, True, id="cooperative-sticky"),
        pytest.param(None, {"group_remote_assignor": "uniform"}, True, id="uniform", marks=CONSUMER),
        pytest.param(None, {"group_remote_assignor": "range"}, True, id="consumer-range", marks=CONSUMER),
    ],
)
def test_one_three_two_members_under_load(
    kafka: Kafka, topic_name: str, assignors: list[str] | None, options: dict[str, str], keeps: bool
) -> None:
    """While the group grows from one to three members and shrinks to two, each record is read once and in order, and
    each partition has one owner at a time. If the protocol is not eager, retained partitions are not interrupted.
    """
    topic = kafka.create_topic(topic_name, PARTITIONS)
    one_three_two(kafka, topic, settings(kafka, topic, assignors, **options), keeps=keeps)


@pytest.mark.parametrize(
    ("assignors", "options"),
    [
        pytest.param(["range"], {"session_timeout_ms": 2000}, id="classic"),
        pytest.param(None, {}, id="consumer", marks=CONSUMER),
    ],
)
def test_killed_member_is_replaced_from_its_commits(
    kafka: Kafka, topic_name: str, assignors: list[str] | None, options: dict[str, int]
) -> None:
    """After SIGKILL and the session timeout, the other member takes over the partitions from the committed offsets."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    chosen = settings(kafka, topic, assignors, auto_commit_interval_ms=200, **options)
    with ExitStack() as stack:
        with load(kafka, topic):
            victim = stack.enter_context(MemberProcess("victim", chosen))
            heir = stack.enter_context(MemberProcess("heir", chosen))
            members = [victim, heir]
            wait_for(lambda: shared_out(members, everything(topic)), "two members to share", members)
            wait_for(lambda: victim.consumed() > 500, "the victim to read", members)
            committed = kafka.committed(topic, topic)
            victim.kill()
            wait_for(lambda: shared_out([heir], everything(topic)), "the heir to own all", [heir])
        ends = drained(kafka, topic, members)
        wait_for(lambda: all_offsets(members, ends), "every record to be read by someone", members)
        heir.stop()
        assert_all_seen(members, ends, once=False)
        taken_over = [e for e in heir.seen("assigned") if e["at"] > (victim.killed_at or 0)]
        if assignors is not None:
            assert taken_over[0]["at"] - (victim.killed_at or 0) < 2 + 3, "within the session timeout, give or take"
        inherited = victim.owned()
        for (name, partition), start in first_offsets(heir, taken_over[0]["at"]).items():
            if (name, partition) in inherited:
                assert committed.get(partition, 0) <= start, "not from before the last commit that was seen"


def first_offsets(member: MemberProcess, since: float) -> dict[Partition, int]:
    """Returns the first offset that a member read of each partition after a point in time."""
    first: dict[Partition, int] = {}
    for event in member.seen("records"):
        if event["at"] > since:
            first.setdefault(tuple(event["partition"]), event["offsets"][0])
    return first
