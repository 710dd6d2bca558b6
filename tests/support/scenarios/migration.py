"""Scenarios of groups in which members of the classic and the consumer protocol meet (KIP-848)."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.admin import DESCRIBE_GROUPS, LIST_GROUPS
from kconsumer.schema.classic_group import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, MemberIdentity
from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT
from support.scenarios import classic_groups as classic
from support.scenarios import consumer_groups as consumer
from support.scenarios.scenario import SETTLE_MS, Run, scenarios


def assignment(*partitions: tuple[str, int]) -> bytes:
    """Returns an encoded assignment of one partition of each topic."""
    rows = b"".join(
        len(topic).to_bytes(2) + topic.encode() + (1).to_bytes(4) + index.to_bytes(4) for topic, index in partitions
    )
    return bytes(2) + len(partitions).to_bytes(4) + rows + b"\xff\xff\xff\xff"


def group_type(run: Run) -> None:
    """Record the type and state of the group."""
    response = run.prepare(LIST_GROUPS, 5)
    rows = [(row.group_type, row.group_state) for row in response.groups if row.group_id == run.name("g")]
    run.note("group", rows)


def classic_member(run: Run, topic: str, version: int = 3, **fields: Any) -> Any:
    """Record how a classic member joins and gets its assignment."""
    run.sleep(SETTLE_MS * 3)
    joined = classic.join(run, version, protocols={"range": classic.subscription(topic)}, **fields)
    if version >= 4 and joined.error_code:
        known = joined.member_id
        joined = classic.join(run, version, member_id=known, protocols={"range": classic.subscription(topic)}, **fields)
    run.call(SYNC_GROUP, 3, **classic.sync_fields(run, joined, assign={joined.member_id: assignment((topic, 0))}))
    return joined


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[0, 1])
def upgrade(run: Run, version: int) -> None:
    """A member of the consumer protocol joins a classic group of one member, which becomes a consumer group."""
    topic = run.topic()
    first = classic_member(run, topic)
    group_type(run)
    consumer.enter(run, version, topic)
    group_type(run)
    classic.heartbeat(run, first)
    consumer.describe(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1], cases={"type": "connect", "metadata": "consumer"})
def no_upgrade(run: Run, version: int, protocol_type: str) -> None:
    """A classic group of another protocol type, or without subscriptions, is not a consumer group."""
    topic = run.topic()
    protocols = {"range": b"nonsense"}
    joined = classic.join(run, 3, protocol_type=protocol_type, protocols=protocols)
    classic.sync(run, joined)
    consumer.enter(run, version, topic)
    group_type(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def downgrade(run: Run, version: int) -> None:
    """The last member of the consumer protocol leaves: the group becomes classic again."""
    topic = run.topic()
    first = classic_member(run, topic)
    consumer.enter(run, version, topic)
    consumer.heartbeat(run, version, consumer.LEAVE)
    group_type(run)
    classic.heartbeat(run, first)
    run.call(DESCRIBE_GROUPS, 5, groups=[run.name("g")])


@scenarios(HEARTBEAT, versions=[0, 4], releases=["4.4"])
def classic_in_consumer_group(run: Run, version: int) -> None:
    """A classic member joins a group of the consumer protocol, heartbeats and leaves."""
    topic = run.topic()
    member = consumer.enter(run, 1, topic)
    joined = classic_member(run, topic)
    classic.heartbeat(run, joined, version)
    classic.heartbeat(run, joined, version, generation_id=40)
    consumer.heartbeat(run, 1, member.member_epoch)
    members = [MemberIdentity(member_id=joined.member_id)]
    run.call(LEAVE_GROUP, 3, group_id=run.name("g"), members=members)
    consumer.heartbeat(run, 1, member.member_epoch)
    group_type(run)


@scenarios(JOIN_GROUP, versions=[4, 5, 6, 7, 9], releases=["4.4"])
def joining_a_consumer_group(run: Run, version: int) -> None:
    """A classic member joins a group of the consumer protocol, in the versions that name members first."""
    topic = run.topic()
    consumer.enter(run, 1, topic)
    classic_member(run, topic, version)
    group_type(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def empty_consumer_group(run: Run, version: int) -> None:
    """A classic member joins a group of the consumer protocol without members, which becomes classic."""
    topic = run.topic()
    consumer.enter(run, version, topic)
    consumer.heartbeat(run, version, consumer.LEAVE)
    classic_member(run, topic)
    group_type(run)


@scenarios(CONSUMER_GROUP_HEARTBEAT, versions=[1])
def static_member_changes(run: Run, version: int) -> None:
    """A static member of the classic protocol returns with the consumer protocol."""
    topic = run.topic()
    first = classic_member(run, topic, 5, group_instance_id="i")
    consumer.enter(run, version, topic, instance_id="i")
    classic.heartbeat(run, first, group_instance_id="i")
    group_type(run)
