"""Share groups on FakeCluster: its own methods, and `kconsumer groups`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kconsumer import ShareConsumer, ShareRecord
from kconsumer.cli import main
from kconsumer.testing import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.configure_group("g", share_auto_offset_reset="earliest")
        yield cluster


def member(cluster: FakeCluster) -> ShareConsumer:
    """Returns a member of the group."""
    return ShareConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", share_acknowledgement_mode="explicit"
    )


def receive(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Returns the next `count` records."""
    found: list[ShareRecord] = []
    while len(found) < count:
        found += [record for record in consumer.poll(5.0) if isinstance(record, ShareRecord)]
    return found


def shown(capsys: pytest.CaptureFixture[str], cluster: FakeCluster, *command: str) -> list[list[str]]:
    """Returns the words of each line that `kconsumer groups` prints."""
    assert 0 == main(["groups", *command, "-b", cluster.bootstrap_servers])
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_groups_shows_share_groups(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands show type, members, start offsets and lag; a group without members can be deleted."""
    cluster.produce("t", [b"%d" % i for i in range(4)], partition=0)
    with member(cluster) as consumer:
        first, second, third, _ = records = receive(consumer, 4)
        first.ack()
        second.reject()
        third.release()
        records[3].release()
        consumer.commit()
        assert ("share", "Stable", 1) == ((found := cluster.group("g")).type, found.state, len(found.members))
        assert ["g", "share", "Stable", "share"] in shown(capsys, cluster, "list")
        (_, members) = shown(capsys, cluster, "members", "g")
        assert ["2", "t(0,1)"] == members[-2:]
        _, offsets, _ = shown(capsys, cluster, "offsets", "g")
        assert ["g", "t", "0", "0", "0", "4", "2"] == offsets[:7]
        (_, lag) = shown(capsys, cluster, "lag", "g")
        assert ["g", "Stable", "1", "2", "1", "2", "2", "t-0"] == lag
        (_, described, *_) = shown(capsys, cluster, "describe", "g")
        assert ["g", "share", "Stable", "simple"] == described[:4]
        receive(consumer, 2)[0].ack()
        consumer.unsubscribe()
    assert "Empty" == cluster.group("g").state
    shown(capsys, cluster, "delete", "g")
    with pytest.raises(ValueError, match="no group 'g'"):
        cluster.group("g")


@pytest.mark.parametrize(
    ("name", "value"), [("share_auto_offset_reset", "none"), ("share_delivery_count_limit", 1), ("share_nonsense", 1)]
)
def test_settings_that_are_refused(cluster: FakeCluster, name: str, value: object) -> None:
    """An unknown setting or value raises ValueError, which names it."""
    with pytest.raises(ValueError, match=name.replace("_", ".")):
        cluster.configure_group("g", **{name: value})
