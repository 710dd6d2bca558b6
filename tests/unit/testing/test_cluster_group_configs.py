"""The settings of single groups in the cluster model, and what ACLs hide from members."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.topics import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.acls import GROUP, TOPIC, Acl
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import advance
from support.fakes.consumer_members import FakeConsumerMember, describe, settle

GROUP_RESOURCE = 32
SET, DELETE, APPEND = range(3)
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"


@pytest.fixture
def cluster() -> Cluster:
    """A cluster whose groups may have short intervals and timeouts."""
    limits = {"group_consumer_min_session_timeout_ms": 1000, "group_consumer_min_heartbeat_interval_ms": 200}
    cluster = Cluster(settings=Settings(**limits))
    cluster.create_topic("t")
    return cluster


@pytest.fixture
def member(cluster: Cluster, clock: VirtualClock) -> FakeConsumerMember:
    return FakeConsumerMember(cluster, clock)


def alter(member: FakeConsumerMember, name: str, value: str | None, operation: int = SET, group: str = "g") -> Any:
    """Returns the response to a change of a setting of the group."""
    config = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (row,) = member.client.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return row


def settings(member: FakeConsumerMember) -> dict[str, tuple[str, int]]:
    """Returns the value and the source of each setting of the group."""
    resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configuration_keys=None)
    (row,) = member.client.call(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource])).results
    return {config.name: (config.value, config.config_source) for config in row.configs}


def test_settings_of_a_group(cluster: Cluster, clock: VirtualClock, member: FakeConsumerMember) -> None:
    """A group may have another interval between heartbeats and another session timeout than the broker.

    The source of a setting is the group, or the default if neither the group nor the broker has a value.
    """
    assert [0, 0] == [alter(member, name, value).error_code for name, value in ((HEARTBEAT, "700"), (SESSION, "9000"))]
    assert (("700", 8), ("1000", 5)) == (
        (found := settings(member))[HEARTBEAT],
        found["consumer.assignment.interval.ms"],
    )
    assert 700 == member.join().heartbeat_interval_ms
    advance(cluster, clock, 9_000)
    assert Errors.UNKNOWN_MEMBER_ID == member.heartbeat().error_code
    alter(member, HEARTBEAT, None, DELETE)
    assert 5_000 == member.join().heartbeat_interval_ms


@pytest.mark.parametrize(
    ("name", "value", "operation", "group", "error", "message"),
    [
        ("x", "1", SET, "g", Errors.INVALID_CONFIG, "Unknown group config name: x"),
        (
            HEARTBEAT,
            "x",
            SET,
            "g",
            Errors.INVALID_CONFIG,
            f"Invalid value x for configuration {HEARTBEAT}: Not a number of type INT",
        ),
        (
            HEARTBEAT,
            "1",
            APPEND,
            "g",
            Errors.INVALID_CONFIG,
            f"Can't APPEND to key {HEARTBEAT} because its type is not LIST.",
        ),
        (HEARTBEAT, "1", SET, "", Errors.INVALID_REQUEST, "Default group resources are not allowed."),
    ],
)
def test_changes_that_are_refused(
    member: FakeConsumerMember, name: str, value: str, operation: int, group: str, error: int, message: str
) -> None:
    """An unknown setting, a value of another type and a group without a name get an error."""
    row = alter(member, name, value, operation, group)
    assert (error, message) == (row.error_code, row.error_message)


# --- ACLs ---


def test_an_expression_matches_only_topics_that_the_member_may_describe(cluster: Cluster, clock: VirtualClock) -> None:
    """The broker leaves out topics that a member must not know."""
    for name in ("t1", "t2"):
        cluster.create_topic(name)
    cluster.acls.add(Acl("User:*", "ALL", GROUP))
    cluster.acls.add(Acl("User:*", "READ", TOPIC, "t1"))
    member = FakeConsumerMember(cluster, clock, "m", None, subscribed_topic_regex="t.")
    member.join()
    settle(member)
    assert ["t1"] == list(member.assigned)


def test_a_description_needs_the_topics_of_all_members(cluster: Cluster, member: FakeConsumerMember) -> None:
    """ConsumerGroupDescribe has an error in place of members, if the client may not describe their topics."""
    member.join()
    cluster.acls.add(Acl("User:*", "ALL", GROUP))
    found = describe(member)
    message = "The group has described topic(s) that the client is not authorized to describe."
    assert (Errors.TOPIC_AUTHORIZATION_FAILED, message, []) == (found.error_code, found.error_message, found.members)
    cluster.acls.add(Acl("User:*", "DESCRIBE", TOPIC, "t"))
    assert 1 == len(describe(member).members)
