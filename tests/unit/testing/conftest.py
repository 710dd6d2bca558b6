"""What the tests of the cluster model share. A module that needs another cluster has a fixture of the same name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import Partition
from support.fakes.classic_members import FakeMember
from support.fakes.cluster_client import ClusterClient


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


@pytest.fixture
def client(cluster: Cluster, clock: VirtualClock) -> ClusterClient:
    return ClusterClient(cluster, clock)


@pytest.fixture
def partition(cluster: Cluster) -> Partition:
    return cluster.topics["t"].partitions[0]


@pytest.fixture
def member(cluster: Cluster, clock: VirtualClock) -> Callable[..., FakeMember]:
    return lambda **options: FakeMember(cluster, clock, **options)
