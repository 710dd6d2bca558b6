"""Scenarios of the consumer group protocol (KIP-848)."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.admin import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS
from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatTopicPartitions
from kconsumer.schema.group_deletion import DELETE_GROUPS
from kconsumer.schema.topics import CREATE_PARTITIONS, DELETE_TOPICS, CreatePartitionsTopic
from support.scenarios.classic_groups import join
from support.scenarios.commits import commit, committed
from support.scenarios.scenario import SETTLE_MS, Run, scenarios

MEMBER, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2


def heartbeat(run: Run, version: int, epoch: int, member: str = MEMBER, **fields: Any) -> Any:
    """Record the response to ConsumerGroupHeartbeat."""
    known = {"group_id": run.name("g"), "member_id": member, "member_epoch": epoch}
    return run.call(CONSUMER_GROUP_HEARTBEAT, version, **{**known, **fields})


def enter(run: Run, version: int, *topics: str, member: str = MEMBER, **fields: Any) -> Any:
    """Record how a member joins, when the coordinator has had time to get to know new topics."""
    run.sleep(SETTLE_MS * 3)
    return heartbeat(run, version, JOIN, member, **{**joining(*topics), **fields})


def joining(*topics: str) -> dict[str, Any]:
    """Returns the fields with which a member joins."""
    return {"rebalance_timeout_ms": 5000, "subscribed_topic_names": list(topics), "topic_partitions": []}


def heartbeat_until_reassigned(run: Run, version: int, epoch: int) -> Any:
    """Send heartbeats until the coordinator knows a changed topic and has made a new assignment, which is at most one
    assignment interval later. Record the last one's response.
    """

    def reassigned(response: Any) -> bool:
        return response.error_code != 0 or response.member_epoch != epoch or response.assignment is not None

    return heartbeat(run, version, epoch, until=reassigned)


def owned(run: Run, topic: str, *partitions: int) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    """Returns the partitions that a member owns."""
    return [ConsumerGroupHeartbeatTopicPartitions(topic_id=run.topic_id(topic), partitions=list(partitions))]


def describe(run: Run, version: int = 1, *groups: str) -> Any:
    """Record the description of groups."""
    return run.call(CONSUMER_GROUP_DESCRIBE, version, group_ids=list(groups) or [run.name("g")])


@scenarios(CONSUMER_GROUP_HEARTBEAT)
def one_member(run: Run, version: int) -> None:
    """A member joins, owns all partitions and leaves."""
    topic = run.topic(partitions=3)
    member = "" if version == 0 else MEMBER
    joined = enter(run, version, topic, member=member)
    member = joined.member_id
    heartbeat(run, version, joined.member_epoch, member, topic_partitions=owned(run, topic, 0, 1, 2))
    heartbeat(run, version, joined.member_epoch, member)
    describe(run)
    heartbeat(run, version, LEAVE, member)
    describe(run)


INVALID: dict[str, dict[str, Any]] = {
    "no-group": {"group_id": ""},
    "no-member": {"member_id": ""},
    "no-topics": {"subscribed_topic_names": None},
    "no-timeout": {"rebalance_timeout_ms": -1},
    "no-partitions": {"topic_partitions": None},
    "empty-instance": {"instance_id": ""},
    "empty-rack": {"rack_id": ""},
    "unknown-assignor": {"server_assignor": "nonsense"},
    "epoch": {"member_epoch": -5},
    "stranger": {"member_epoch": 3},
    "stranger-leaves": {"member_epoch": -1},
    "static-stranger-leaves": {"member_epoch": -2, "instance_id": "i"},
    "static-without-instance": {"member_epoch": -2},
    "wrong-regex": {"subscribed_topic_regex": "["},
    "empty-topics": {"subscribed_topic_names": []},
}


@scenarios(CONSUMER_GROUP_HEARTBEAT, cases=INVALID)
def invalid(run: Run, version: int, fields: dict[str, Any]) -> None:
    """Requests with fields that the coordinator refuses."""
    topic = run.topic()
    known = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": [topic], "topic_partitions": []}
    epoch = fields.get("member_epoch", JOIN)
    heartbeat(run, version, epoch, **{**known, **{k: v for k, v in fields.items() if k != "member_epoch"}})


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1], cases={"newer": 9, "older": -9, "zero": 0})
def wrong_epoch(run: Run, version: int, change: int) -> None:
    """A member epoch that is not the member's."""
    topic = run.topic()
    joined = enter(run, version, topic)
    heartbeat(run, version, joined.member_epoch + change if change else 0)
    heartbeat(run, version, joined.member_epoch, OTHER)
    heartbeat(run, version, joined.member_epoch)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[0, 1], cases=["uniform", "range"])
def two_members(run: Run, version: int, assignor: str) -> None:
    """A second member gets partitions when the first one has revoked them."""
    topic = run.topic(partitions=4)
    chosen = {"server_assignor": assignor}
    first = enter(run, version, topic, **chosen)
    heartbeat(run, version, first.member_epoch, topic_partitions=owned(run, topic, 0, 1, 2, 3))
    second = enter(run, version, topic, member=OTHER, **chosen)
    reply = heartbeat(run, version, first.member_epoch)
    kept = reply.assignment.topic_partitions[0].partitions if reply.assignment else []
    heartbeat(run, version, second.member_epoch, OTHER)
    reply = heartbeat(run, version, reply.member_epoch, topic_partitions=owned(run, topic, *kept))
    heartbeat(run, version, second.member_epoch, OTHER)
    describe(run)
    heartbeat(run, version, LEAVE)
    heartbeat(run, version, second.member_epoch, OTHER)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def two_topics(run: Run, version: int) -> None:
    """A member changes its subscription."""
    one, two = run.topic("one", 2), run.topic("two")
    joined = enter(run, version, one)
    heartbeat(run, version, joined.member_epoch, topic_partitions=owned(run, one, 0, 1))
    reply = heartbeat(run, version, joined.member_epoch, subscribed_topic_names=[two])
    reply = heartbeat(run, version, reply.member_epoch, topic_partitions=[])
    heartbeat(run, version, reply.member_epoch, topic_partitions=owned(run, two, 0))
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[0, 1])
def unknown_topic(run: Run, version: int) -> None:
    """A member subscribes to a topic that does not exist, which is created later."""
    joined = enter(run, version, run.name("later"))
    run.topic("later")
    heartbeat(run, version, joined.member_epoch)
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def regular_expression(run: Run, version: int) -> None:
    """A subscription by regular expression, which the coordinator evaluates later."""
    topic = run.topic("matching")
    run.topic("different")
    joined = enter(run, version, subscribed_topic_names=[], subscribed_topic_regex=f"{run.prefix}match.*")
    epoch = joined.member_epoch
    for _ in range(3):
        run.sleep(1000)
        response = run.prepare(
            CONSUMER_GROUP_HEARTBEAT, version, group_id=run.name("g"), member_id=MEMBER, member_epoch=epoch
        )
        epoch = response.member_epoch
        if response.assignment:
            found = [row.topic_id == run.topic_id(topic) for row in response.assignment.topic_partitions]
            run.note("assigned", (found, epoch))
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[0, 1])
def static_member(run: Run, version: int) -> None:
    """A static member leaves for a while and returns with another id; another one with its name is refused."""
    topic = run.topic(partitions=2)
    joined = enter(run, version, topic, instance_id="i")
    heartbeat(run, version, joined.member_epoch, topic_partitions=owned(run, topic, 0, 1), instance_id="i")
    enter(run, version, topic, member=OTHER, instance_id="i")
    heartbeat(run, version, LEAVE_STATIC, instance_id="i")
    describe(run)
    again = enter(run, version, topic, member=OTHER, instance_id="i")
    heartbeat(run, version, joined.member_epoch, instance_id="i")
    heartbeat(run, version, again.member_epoch, OTHER, instance_id="i")
    heartbeat(run, version, LEAVE, OTHER, instance_id="i")
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def member_dies(run: Run, version: int) -> None:
    """A member without heartbeats is fenced after the session timeout of the broker."""
    joined = enter(run, version, run.topic())
    run.sleep(7500)
    heartbeat(run, version, joined.member_epoch)
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def does_not_revoke(run: Run, version: int) -> None:
    """A member that does not revoke its partitions within its rebalance timeout is fenced."""
    topic = run.topic(partitions=2)
    first = enter(run, version, topic, rebalance_timeout_ms=1000)
    heartbeat(run, version, first.member_epoch, topic_partitions=owned(run, topic, 0, 1))
    second = enter(run, version, topic, member=OTHER)
    reply = heartbeat(run, version, first.member_epoch)
    run.sleep(2000)
    heartbeat(run, version, reply.member_epoch)
    heartbeat(run, version, second.member_epoch, OTHER)


@scenarios(CONSUMER_GROUP_DESCRIBE)
def describing(run: Run, version: int) -> None:
    """A group of the protocol, a classic one, and one that does not exist."""
    enter(run, 1, run.topic(), client="member")
    join(run, 3, group_id=run.name("classic"))
    for group in (run.name("g"), run.name("classic"), run.name("none")):
        describe(run, version, group)


@scenarios(DESCRIBE_GROUPS, versions=[0, 5, 6], releases=["4.4"])
def described_as_classic(run: Run, version: int) -> None:
    """DescribeGroups of a group of the consumer protocol."""
    enter(run, 1, run.topic())
    run.call(DESCRIBE_GROUPS, version, groups=[run.name("g")])


@scenarios(LIST_GROUPS, versions=[4, 5], releases=["4.4"])
def listing(run: Run, version: int) -> None:
    """ListGroups of a group of the consumer protocol, with and without members."""
    enter(run, 1, run.topic())
    for _ in range(2):
        response = run.prepare(LIST_GROUPS, version)
        rows = [
            (row.protocol_type, row.group_state, row.group_type)
            for row in response.groups
            if row.group_id == run.name("g")
        ]
        run.note("listed", rows)
        heartbeat(run, 1, LEAVE)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def commits(run: Run, version: int) -> None:
    """Commits and committed offsets of a member, with the right and the wrong epoch."""
    topic = run.topic(partitions=2)
    joined = enter(run, version, topic)
    for member, epoch in ((MEMBER, joined.member_epoch), (MEMBER, 40), (OTHER, 1), (MEMBER, 0), ("", -1)):
        commit(run, 9, topic, member_id=member, generation_id_or_member_epoch=epoch)
        committed(run, 9, {topic: [0]}, member_id=member or None, member_epoch=epoch)
    commit(run, 8, topic, member_id=MEMBER, generation_id_or_member_epoch=joined.member_epoch)
    commit(run, 8, topic, member_id=MEMBER, generation_id_or_member_epoch=40)


@scenarios(DELETE_GROUPS, versions=[2, 3], releases=["4.4"])
def deleting(run: Run, version: int) -> None:
    """A group of the consumer protocol is deleted when it has no members."""
    enter(run, 1, run.topic())
    run.call(DELETE_GROUPS, version, groups_names=[run.name("g")])
    heartbeat(run, 1, LEAVE)
    run.call(DELETE_GROUPS, version, groups_names=[run.name("g")])
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def classic_member_meets_consumer_group(run: Run, version: int) -> None:
    """A classic member without an embedded subscription joins a group of the consumer protocol."""
    enter(run, version, run.topic())
    join(run, 3)
    join(run, 3, protocol_type="connect")


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def classic_group_is_empty(run: Run, version: int) -> None:
    """A group with committed offsets becomes a group of the consumer protocol."""
    topic = run.topic()
    commit(run, 8, topic)
    enter(run, version, topic)
    committed(run, 7, {topic: [0]})
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[0, 1])
def new_partitions(run: Run, version: int) -> None:
    """A topic gets more partitions, which the member gets."""
    topic = run.topic(partitions=1)
    joined = enter(run, version, topic)
    heartbeat(run, version, joined.member_epoch, topic_partitions=owned(run, topic, 0))
    rows = [CreatePartitionsTopic(name=topic, count=3, assignments=None)]
    run.prepare(CREATE_PARTITIONS, 0, topics=rows, timeout_ms=5000)
    heartbeat_until_reassigned(run, version, joined.member_epoch)
    describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def deleted_topic(run: Run, version: int) -> None:
    """One of two topics is deleted. How the member joins is not recorded: brokers order topics by their random ids."""
    one, two = run.topic("one"), run.topic("two")
    run.sleep(SETTLE_MS * 3)
    fields = {"group_id": run.name("g"), "member_id": MEMBER, "member_epoch": JOIN, **joining(one, two)}
    joined = run.prepare(CONSUMER_GROUP_HEARTBEAT, version, **fields)
    run.prepare(DELETE_TOPICS, 5, topic_names=[one], timeout_ms=5000)
    reply = heartbeat_until_reassigned(run, version, joined.member_epoch)
    heartbeat(run, version, reply.member_epoch, topic_partitions=owned(run, two, 0))


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1], cases=["uniform", "range"])
def different_subscriptions(run: Run, version: int, assignor: str) -> None:
    """Two members subscribe to different topics, one of which is common."""
    one, two, three = (run.topic(name, 2) for name in ("one", "two", "three"))
    first = enter(run, version, one, two, server_assignor=assignor)
    second = enter(run, version, two, three, member=OTHER, server_assignor=assignor)
    for _ in range(2):
        first = heartbeat(run, version, first.member_epoch)
        second = heartbeat(run, version, second.member_epoch, OTHER)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def lost_response(run: Run, version: int) -> None:
    """A member sends its last epoch again, with the partitions that it owns and with others."""
    topic = run.topic(partitions=2)
    enter(run, version, topic)
    joined = enter(run, version, topic)
    heartbeat(run, version, joined.member_epoch - 1, topic_partitions=[])
    heartbeat(run, version, joined.member_epoch - 1, topic_partitions=owned(run, topic, 0))
    heartbeat(run, version, joined.member_epoch, topic_partitions=owned(run, topic, 0, 1))
    heartbeat(run, version, joined.member_epoch - 1, topic_partitions=owned(run, topic, 0, 1, 7))
