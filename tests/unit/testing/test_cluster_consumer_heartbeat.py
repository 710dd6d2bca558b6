"""ConsumerGroupHeartbeat in the cluster model: how many members a group may have."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.consumer_members import FakeConsumerMember


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3, settings=Settings(group_consumer_max_size=3))
    cluster.create_topic("t", 3)
    return cluster


def test_group_max_size(cluster: Cluster, clock: VirtualClock) -> None:
    """A further member gets GROUP_MAX_SIZE_REACHED, but those in the group may join again."""
    members = [FakeConsumerMember(cluster, clock, f"m{i}") for i in range(4)]
    errors = [member.join().error_code for member in (*members, members[0])]
    assert [0, 0, 0, Errors.GROUP_MAX_SIZE_REACHED, 0] == errors
