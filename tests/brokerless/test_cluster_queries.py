"""A cluster is described, and its open transactions are found."""

from __future__ import annotations

import pytest

import kconsumer
from kconsumer import cli
from kconsumer.errors import StaleMetadataError
from kconsumer.testing import FakeCluster


def test_an_open_transaction_is_found_until_it_ends() -> None:
    """An open transaction is reported with producer, start, age and coordinator, and not after its end."""
    with FakeCluster(brokers=2) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t", 2)
        cluster.produce("t", [b"before"], partition=1)
        assert [] == kconsumer.cluster.stuck_transactions(["t"], servers)
        with cluster.transaction() as transaction:
            transaction.produce("t", [b"open"], partition=1)
            (found,) = kconsumer.cluster.stuck_transactions([("t", 0), ("t", 1)], servers)
            assert (("t", 1), 1, "Ongoing", False) == (
                found.partition,
                found.start_offset,
                found.state,
                found.hanging,
            )
            assert found.coordinator in kconsumer.cluster.describe(servers).brokers
            assert found.transactional_id is not None
            assert found.age_s is not None
            assert 0 <= found.age_s < 60
            assert [] == kconsumer.cluster.stuck_transactions([("t", 0)], servers)
        assert [] == kconsumer.cluster.stuck_transactions(["t"], servers)
        with pytest.raises(StaleMetadataError, match="no-such"):
            kconsumer.cluster.stuck_transactions(["no-such"], servers)


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands print the brokers and the open transactions, as a table or JSON."""
    with FakeCluster(brokers=2) as cluster, cluster.transaction() as transaction:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t", 2)
        transaction.produce("t", [b"open"], partition=1)
        assert 0 == cli.main(["cluster", "describe", "-b", servers, "--json"])
        assert 2 == len(capsys.readouterr().out.splitlines())
        assert 0 == cli.main(["cluster", "transactions", "t", "-b", servers])
        head, row = (line.split() for line in capsys.readouterr().out.splitlines())
        assert ("AGE-S", ["t", "1"], "0", "Ongoing") == (head[5], row[:2], row[4], row[6])
        assert 0 == cli.main(["cluster", "transactions", "t:0", "-b", servers, "--json"])
        assert "" == capsys.readouterr().out


def test_a_cluster_is_described() -> None:
    """The description has the brokers in the order of their ids, one of them as the controller."""
    with FakeCluster(brokers=3) as cluster:
        found = kconsumer.cluster.describe(cluster.bootstrap_servers)
    assert [1, 2, 3] == [len(found.brokers[:count]) for count in (1, 2, 3)]
    assert sorted(node.id for node in found.brokers) == [node.id for node in found.brokers]
    assert found.controller in found.brokers
    assert found.cluster_id
