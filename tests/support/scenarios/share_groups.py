"""Scenarios of share groups (KIP-932): their members, and the offsets at which they begin."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.admin import LIST_GROUPS
from kconsumer.schema.group_deletion import DELETE_GROUPS
from kconsumer.schema.share_group import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kconsumer.schema.topics import (
    CREATE_PARTITIONS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    CreatePartitionsTopic,
    DescribeConfigsResource,
)
from support.scenarios.scenario import SETTLE_MS, Run, scenarios

MEMBER, OTHER, THIRD = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"
JOIN, LEAVE = 0, -1
GROUP_RESOURCE, SET, DELETE = 32, 0, 1
RELEASES = ["4.4"]  # that have share groups without an early access setting
INTERVAL_MS = 1100  # a little more than the assignment interval of a broker


def heartbeat(run: Run, epoch: int, member: str = MEMBER, **fields: Any) -> Any:
    """Record the response to ShareGroupHeartbeat."""
    known = {"group_id": run.name("g"), "member_id": member, "member_epoch": epoch}
    return run.call(SHARE_GROUP_HEARTBEAT, 1, **{**known, **fields})


def enter(run: Run, *topics: str, member: str = MEMBER) -> int:
    """Let a member join and get partitions, without recording how. Returns its epoch.

    The coordinator assigns partitions whose state it has initialized, which it does after the first heartbeat.
    """
    run.sleep(SETTLE_MS * 3)
    known = {"group_id": run.name("g"), "member_id": member}
    joined = run.prepare(SHARE_GROUP_HEARTBEAT, 1, **known, member_epoch=JOIN, subscribed_topic_names=list(topics))
    for _ in range(10):
        if joined.assignment is not None and joined.assignment.topic_partitions:
            break
        run.sleep(INTERVAL_MS)
        joined = run.prepare(SHARE_GROUP_HEARTBEAT, 1, **known, member_epoch=joined.member_epoch)
    epoch: int = joined.member_epoch
    return epoch


def configure(run: Run, **configs: str) -> None:
    """Set configs of the group. `configs`: with underscores for dots."""
    rows = [AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=configs[key]) for key in configs]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=run.name("g"), configs=rows)
    run.prepare(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    run.sleep(SETTLE_MS)


def describe(run: Run, *groups: str, **fields: Any) -> Any:
    """Record the description of share groups."""
    return run.call(SHARE_GROUP_DESCRIBE, 1, group_ids=list(groups) or [run.name("g")], **fields)


def offsets(run: Run, version: int = 1, *topics: str, group: str | None = None) -> Any:
    """Record the start offsets of the group."""
    rows = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0]) for name in topics]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group or run.name("g"), topics=rows or None)
    return run.call(DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=[asked])


# --- members ------------------------------------------------------------------------------------------------


@scenarios(SHARE_GROUP_HEARTBEAT)
def one_member(run: Run, version: int) -> None:
    """A member joins, gets all partitions, and leaves."""
    topic = run.topic(partitions=3)
    run.sleep(SETTLE_MS * 3)
    joined = heartbeat(run, JOIN, subscribed_topic_names=[topic])
    run.sleep(INTERVAL_MS)
    assigned = heartbeat(run, joined.member_epoch)
    heartbeat(run, assigned.member_epoch)
    heartbeat(run, joined.member_epoch)
    heartbeat(run, assigned.member_epoch, subscribed_topic_names=[topic])
    describe(run)
    heartbeat(run, LEAVE)
    describe(run)
    heartbeat(run, assigned.member_epoch)


INVALID: dict[str, dict[str, Any]] = {
    "no-group": {"group_id": ""},
    "no-member": {"member_id": ""},
    "long-member": {"member_id": "m" * 37},
    "no-topics": {"subscribed_topic_names": None},
    "empty-topics": {"subscribed_topic_names": []},
    "empty-rack": {"rack_id": ""},
    "epoch": {"member_epoch": -5},
    "stranger": {"member_epoch": 3},
    "stranger-leaves": {"member_epoch": -1},
    "name": {"member_id": "any name"},
}


@scenarios(SHARE_GROUP_HEARTBEAT, cases=INVALID)
def invalid(run: Run, version: int, fields: dict[str, Any]) -> None:
    """Requests with fields that the coordinator refuses, or that look wrong."""
    topic = run.topic()
    epoch = fields.get("member_epoch", JOIN)
    known = {"subscribed_topic_names": [topic]}
    heartbeat(run, epoch, **{**known, **{k: v for k, v in fields.items() if k != "member_epoch"}})


@scenarios(SHARE_GROUP_HEARTBEAT, cases={"newer": 9, "older": -9, "zero": 0})
def wrong_epoch(run: Run, version: int, change: int) -> None:
    """A member epoch that is not the member's."""
    topic = run.topic()
    epoch = enter(run, topic)
    heartbeat(run, epoch + change if change else 0, subscribed_topic_names=[topic])
    heartbeat(run, epoch, OTHER)
    heartbeat(run, epoch)


@scenarios(SHARE_GROUP_HEARTBEAT, cases={"4": 4, "1": 1, "3": 3})
def two_members(run: Run, version: int, partitions: int) -> None:
    """A second member shares the partitions, and gets all of them when the first one leaves."""
    topic = run.topic(partitions=partitions)
    epochs = enter_all(run, topic, MEMBER, OTHER)
    note_sizes(run)
    heartbeat(run, LEAVE)
    run.sleep(INTERVAL_MS)
    heartbeat(run, epochs[OTHER], OTHER)
    note_sizes(run)


@scenarios(SHARE_GROUP_HEARTBEAT)
def three_members(run: Run, version: int) -> None:
    """Three members share two partitions, so that one of these has two members."""
    topic = run.topic(partitions=2)
    enter_all(run, topic, MEMBER, OTHER, THIRD)
    note_sizes(run)


def enter_all(run: Run, topic: str, *members: str) -> dict[str, int]:
    """Let members join one after the other, and get their parts of the partitions. Returns their epochs."""
    epochs = {}
    for member in members:
        epochs[member] = enter(run, topic, member=member)
        run.sleep(INTERVAL_MS)
    for member in members:
        response = run.prepare(
            SHARE_GROUP_HEARTBEAT, 1, group_id=run.name("g"), member_id=member, member_epoch=epochs[member]
        )
        epochs[member] = response.member_epoch
    return epochs


def note_sizes(run: Run) -> None:
    """Record how many partitions members have. Which ones depends on the random topic id."""
    group = run.prepare(SHARE_GROUP_DESCRIBE, 1, group_ids=[run.name("g")]).groups[0]
    found = [[p for t in row.assignment.topic_partitions for p in t.partitions] for row in group.members]
    run.note("sizes", (group.group_epoch, group.assignment_epoch, sorted(map(len, found))))
    run.note("partitions", sorted({partition for partitions in found for partition in partitions}))


@scenarios(SHARE_GROUP_HEARTBEAT)
def two_topics(run: Run, version: int) -> None:
    """A member changes its subscription."""
    one, two = run.topic("one", 2), run.topic("two")
    epoch = enter(run, one)
    run.sleep(INTERVAL_MS)
    changed = heartbeat(run, epoch, subscribed_topic_names=[two])
    run.sleep(INTERVAL_MS)
    heartbeat(run, changed.member_epoch)
    describe(run)
    offsets(run)


@scenarios(SHARE_GROUP_HEARTBEAT)
def unknown_topic(run: Run, version: int) -> None:
    """A member subscribes to a topic that does not exist, which is created later."""
    heartbeat(run, JOIN, subscribed_topic_names=[run.name("later")])
    describe(run)
    run.topic("later")
    run.sleep(INTERVAL_MS)
    joined = heartbeat(run, JOIN, subscribed_topic_names=[run.name("later")])
    run.sleep(INTERVAL_MS)
    heartbeat(run, joined.member_epoch)
    describe(run)


@scenarios(SHARE_GROUP_HEARTBEAT)
def more_partitions(run: Run, version: int) -> None:
    """A topic gets another partition."""
    topic = run.topic()
    epoch = enter(run, topic)
    row = CreatePartitionsTopic(name=topic, count=2, assignments=None)
    run.prepare(CREATE_PARTITIONS, 3, topics=[row], timeout_ms=10_000, validate_only=False)
    run.await_topic(topic, 2)
    run.sleep(INTERVAL_MS)
    changed = heartbeat(run, epoch)
    run.sleep(INTERVAL_MS)
    heartbeat(run, changed.member_epoch)
    describe(run)
    offsets(run)


@scenarios(SHARE_GROUP_HEARTBEAT)
def hasty(run: Run, version: int) -> None:
    """Heartbeats that come sooner than a new assignment may be computed."""
    topic = run.topic()
    run.sleep(SETTLE_MS * 3)
    joined = heartbeat(run, JOIN, subscribed_topic_names=[topic])
    for _ in range(3):
        run.sleep(SETTLE_MS)
        heartbeat(run, joined.member_epoch)
    describe(run)
    run.sleep(INTERVAL_MS)
    heartbeat(run, joined.member_epoch)
    describe(run)


@scenarios(SHARE_GROUP_HEARTBEAT)
def rejoin(run: Run, version: int) -> None:
    """A member joins again with its id."""
    topic = run.topic()
    enter(run, topic)
    heartbeat(run, JOIN, subscribed_topic_names=[topic])
    heartbeat(run, LEAVE)
    run.sleep(INTERVAL_MS)
    heartbeat(run, JOIN, subscribed_topic_names=[topic])


# --- descriptions and offsets -------------------------------------------------------------------------------


@scenarios(LIST_GROUPS, versions=[4, 5], releases=RELEASES)
def listed(run: Run, version: int) -> None:
    """Share groups in the list of groups."""
    topic = run.topic()
    enter(run, topic)

    def own(**fields: Any) -> None:
        found = run.prepare(LIST_GROUPS, version, **fields).groups
        rows = [(g.protocol_type, g.group_state, g.group_type) for g in found if g.group_id == run.name("g")]
        run.note("groups", rows)

    own()
    own(states_filter=["Stable"])
    if version >= 5:
        own(types_filter=["share"])
        own(types_filter=["consumer"])
    run.prepare(SHARE_GROUP_HEARTBEAT, 1, group_id=run.name("g"), member_id=MEMBER, member_epoch=LEAVE)
    own()


@scenarios(SHARE_GROUP_DESCRIBE)
def described(run: Run, version: int) -> None:
    """Groups that exist or not, with authorized operations."""
    topic = run.topic()
    enter(run, topic)
    describe(run, run.name("g"), run.name("none"), include_authorized_operations=True)


@scenarios(DESCRIBE_SHARE_GROUP_OFFSETS)
def start_offsets(run: Run, version: int) -> None:
    """Start offsets of partitions of which nothing was fetched yet, and of a group that does not exist."""
    topic = run.topic(partitions=2)
    run.produce_values(topic, b"one", b"two")
    enter(run, topic)
    offsets(run, version)
    offsets(run, version, topic)
    offsets(run, version, topic, run.name("no-topic"))
    offsets(run, version, group=run.name("none"))
    offsets(run, version, topic, group=run.name("none"))


def alter(run: Run, topic: str, start: int, *partitions: int) -> Any:
    """Record how the start offsets of partitions are set."""
    rows = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start) for index in partitions or [0]
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=rows)]
    return run.call(ALTER_SHARE_GROUP_OFFSETS, 0, group_id=run.name("g"), topics=topics)


@scenarios(ALTER_SHARE_GROUP_OFFSETS)
def alter_offsets(run: Run, version: int) -> None:
    """Start offsets are set, which needs a group without members."""
    topic = run.topic(partitions=2)
    run.produce_values(topic, b"one", b"two")
    alter(run, topic, 1)
    offsets(run)
    enter(run, topic)
    alter(run, topic, 0)
    heartbeat(run, LEAVE)
    alter(run, topic, 0)
    run.sleep(SETTLE_MS)
    offsets(run)
    alter(run, run.name("no-topic"), 0)
    alter(run, topic, 2, 0, 7)
    offsets(run)
    describe(run)


@scenarios(DELETE_SHARE_GROUP_OFFSETS)
def delete_offsets(run: Run, version: int) -> None:
    """Start offsets of topics are deleted, which needs a group without members."""
    topic, other = run.topic(), run.topic("other")
    run.produce_values(topic, b"one", b"two")

    def delete(*names: str) -> None:
        rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        run.call(DELETE_SHARE_GROUP_OFFSETS, 0, group_id=run.name("g"), topics=rows)

    delete(topic)
    enter(run, topic)
    delete(topic)
    heartbeat(run, LEAVE)
    delete(other, run.name("no-topic"))
    delete(topic)
    run.sleep(SETTLE_MS)
    offsets(run)
    describe(run)


@scenarios(DELETE_GROUPS, versions=[2], releases=RELEASES)
def delete_groups(run: Run, version: int) -> None:
    """A share group is deleted, which must have no members."""
    topic = run.topic()
    enter(run, topic)
    run.call(DELETE_GROUPS, version, groups_names=[run.name("g")])
    heartbeat(run, LEAVE)
    run.call(DELETE_GROUPS, version, groups_names=[run.name("g")])
    describe(run)


# --- configs ------------------------------------------------------------------------------------------------

CONFIGS: dict[str, tuple[str, str]] = {
    "reset": ("share.auto.offset.reset", "earliest"),
    "reset-duration": ("share.auto.offset.reset", "by_duration:PT1H"),
    "reset-wrong": ("share.auto.offset.reset", "none"),
    "isolation": ("share.isolation.level", "read_committed"),
    "isolation-wrong": ("share.isolation.level", "serializable"),
    "lock": ("share.record.lock.duration.ms", "20000"),
    "lock-short": ("share.record.lock.duration.ms", "10"),
    "lock-long": ("share.record.lock.duration.ms", "1000000"),
    "limit": ("share.delivery.count.limit", "3"),
    "limit-large": ("share.delivery.count.limit", "30"),
    "locks": ("share.partition.max.record.locks", "200"),
    "locks-few": ("share.partition.max.record.locks", "2"),
    "renew": ("share.renew.acknowledge.enable", "false"),
    "renew-wrong": ("share.renew.acknowledge.enable", "no"),
    "session": ("share.session.timeout.ms", "7000"),
    "heartbeat": ("share.heartbeat.interval.ms", "700"),
    "interval": ("share.assignment.interval.ms", "500"),
    "unknown": ("share.nonsense", "1"),
}


@scenarios(INCREMENTAL_ALTER_CONFIGS, versions=[1], cases=CONFIGS, releases=RELEASES)
def configs(run: Run, version: int, change: tuple[str, str]) -> None:
    """Settings of a share group."""
    name, value = change
    rows = [AlterableConfig(name=name, config_operation=SET, value=value)]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=run.name("g"), configs=rows)
    run.call(INCREMENTAL_ALTER_CONFIGS, version, resources=[resource])
    run.sleep(SETTLE_MS)
    asked = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=run.name("g"), configuration_keys=[name]
    )
    found = run.prepare(DESCRIBE_CONFIGS, 4, resources=[asked]).results[0].configs
    run.note("config", [(row.name, row.value, row.config_source, row.config_type) for row in found])
