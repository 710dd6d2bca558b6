"""Groups of real processes on a real broker: members come, leave and die while records flow."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import Any

import pytest

from support.group_load import PARTITIONS, all_offsets, drained, everything, load, one_three_two
from support.kafka import Kafka
from support.members import (
    CONFLUENT_SCRIPT,
    JavaMember,
    MemberProcess,
    Partition,
    assert_all_seen,
    assert_one_owner_at_a_time,
    ownership,
    shared_out,
    wait_for,
)

EAGER = ("range", "roundrobin", "sticky")


def settings(kafka: Kafka, topic: str, assignor: str, **options: Any) -> dict[str, Any]:
    """A member of the test's group that reads from the beginning."""
    return {
        "topics": [topic],
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": topic,
        "assignors": [assignor],
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 6000,
        **options,
    }


def confluent_settings(kafka: Kafka, topic: str, assignor: str) -> dict[str, Any]:
    """The same for confluent-kafka."""
    return {
        "topics": [topic],
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": topic,
        "partition.assignment.strategy": assignor,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 300,
        "session.timeout.ms": 6000,
    }


@pytest.mark.parametrize("assignor", [*EAGER, "cooperative-sticky"])
def test_one_three_two_members_under_load(kafka: Kafka, topic_name: str, assignor: str) -> None:
    """1 → 3 → 2 members while records flow: each record once, in order, one owner at a time; under the cooperative
    protocol what stays is not interrupted."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    chosen = settings(kafka, topic, assignor)
    one_three_two(kafka, topic, chosen, keeps=assignor not in EAGER)


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_members_that_leave_in_the_middle_of_joins(kafka: Kafka, topic_name: str, assignor: str) -> None:
    """Members come and leave at random moments, many during a rebalance: each record is read, and read once."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    chosen = settings(kafka, topic, assignor, heartbeat_interval_ms=1000)
    rng = random.Random(5)
    with ExitStack() as stack:
        members: list[MemberProcess] = []
        live: list[MemberProcess] = []
        with load(kafka, topic):
            for number in range(10):
                members.append(stack.enter_context(MemberProcess(f"member {number}", chosen)))
                live.append(members[-1])
                time.sleep(rng.choice([0.05, 0.3, 0.8]))
                if len(live) > 2:
                    live.pop(rng.randrange(len(live))).stop()
        ends = drained(kafka, topic, members)
        for member in live:
            member.stop()
        assert_all_seen(members, ends, once=True)
        assert_one_owner_at_a_time(members)


def test_killed_member_is_replaced_from_its_commits(kafka: Kafka, topic_name: str) -> None:
    """SIGKILL: after the session timeout the other member takes the partitions over from the committed offsets."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    chosen = settings(kafka, topic, "range", auto_commit_interval_ms=200, session_timeout_ms=2000)
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
        assert taken_over[0]["at"] - (victim.killed_at or 0) < 2 + 3, "within the session timeout, give or take"
        inherited = victim.owned()
        for (name, partition), start in first_offsets(heir, taken_over[0]["at"]).items():
            if (name, partition) in inherited:
                assert committed.get(partition, 0) <= start, "not from before the last commit that was seen"


def first_offsets(member: MemberProcess, since: float) -> dict[Partition, int]:
    """The first offset of each partition that a member read after a moment."""
    first: dict[Partition, int] = {}
    for event in member.seen("records"):
        if event["at"] > since:
            first.setdefault(tuple(event["partition"]), event["offsets"][0])
    return first


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("leads", [True, False], ids=["kconsumer-leads", "confluent-leads"])
def test_group_shared_with_confluent_kafka(kafka: Kafka, topic_name: str, assignor: str, leads: bool) -> None:
    """A mixed group shares the partitions and each record is read; whoever joins first leads."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    ours = ("ours", settings(kafka, topic, assignor, log="INFO"), None)
    theirs = ("theirs", confluent_settings(kafka, topic, assignor), CONFLUENT_SCRIPT)
    order = [ours, theirs] if leads else [theirs, ours]
    with ExitStack() as stack:
        members: list[MemberProcess] = []
        with load(kafka, topic):
            for name, chosen, script in order:
                extra = {} if script is None else {"script": script}
                members.append(stack.enter_context(MemberProcess(name, chosen, **extra)))
                wait_for(lambda: shared_out(members, everything(topic)), f"{members[-1].name} to share", members)
            for member in members:
                before = member.consumed()
                wait_for(lambda: member.consumed() > before + 100, f"{member.name} to read", members)  # noqa: B023
        ends = drained(kafka, topic, members)
        wait_for(lambda: all_offsets(members, ends), "every record to be read by someone", members)
        for member in members:
            member.stop()
        assert_all_seen(members, ends, once=False)
        ours_process = next(member for member in members if member.name == "ours")
        assert ("(leader)" if leads else "(follower)") in ours_process.errors
        if assignor == "range":
            assert_one_owner_at_a_time(members)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("leads", [True, False], ids=["kconsumer-leads", "java-leads"])
def test_group_shared_with_java(kafka: Kafka, topic_name: str, assignor: str, leads: bool) -> None:
    """A group shared with Kafka's own Java consumer: each record is read, partitions have one owner at a time."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    with ExitStack() as stack:
        members: list[MemberProcess] = []

        def start_ours() -> None:
            chosen = settings(kafka, topic, assignor, log="INFO")
            members.append(stack.enter_context(MemberProcess("ours", chosen)))

        def start_theirs() -> None:
            theirs = JavaMember("java", kafka.bootstrap_servers, topic, assignor)
            members.append(stack.enter_context(theirs))

        with load(kafka, topic):
            for start in [start_ours, start_theirs] if leads else [start_theirs, start_ours]:
                start()
                wait_for(lambda: shared_out(members, everything(topic)), "the members to share", members)
            for member in members:
                before = member.consumed()
                wait_for(lambda: member.consumed() > before + 100, f"{member.name} to read", members)  # noqa: B023
        ends = drained(kafka, topic, members)
        ours = next(member for member in members if member.name == "ours")
        other = next(member for member in members if member is not ours)
        other.stop()
        wait_for(lambda: shared_out([ours], everything(topic)), "ours to take over", [ours])
        ours.stop()
        assert_all_seen(members, ends, once=False)
        assert ("(leader)" if leads else "(follower)") in ours.errors
        if assignor == "cooperative-sticky" and leads:
            kept = [partition for partition, spans in ownership([ours]).items() if len(spans) == 1]
            assert len(kept) >= 3, "half of the partitions stay where they were"
