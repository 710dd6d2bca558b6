"""The metadata cache: which of two responses is used, what is kept, and what is reported."""

from __future__ import annotations

import pytest

from kconsumer.state.cluster import NO_LEADER, Cluster, LeaderAndEpoch
from kconsumer.types import Node, PartitionInfo
from support.harnesses.manager_driver import NODES, led_by, metadata, partition, topic, tp

ID_1, ID_2 = b"1" * 16, b"2" * 16
VERSION = 12


def cluster_of(*topics: object, version: int = VERSION, **fields: object) -> Cluster:
    cluster = Cluster()
    cluster.update(metadata(*topics, **fields), version, full=True)  # type: ignore[arg-type]
    return cluster


def test_an_empty_cluster_returns_none() -> None:
    """Lookups of unknown topics return None and do not raise."""
    cluster = Cluster()
    assert NO_LEADER == cluster.leader(tp("a-0"))
    assert (None, None, None) == (
        cluster.partition_count("a"),
        cluster.partitions_for("a"),
        cluster.partition_info(tp("a-0")),
    )
    assert (None, None) == (cluster.topic_id("a"), cluster.topic_name(ID_1))
    assert frozenset() == cluster.topics()


def test_a_response_fills_the_cache() -> None:
    """A response sets nodes, leaders, ids, counts and public objects."""
    first, second = partition(0, leader=1, epoch=4, offline_replicas=[2]), partition(1, leader=2, epoch=5)
    cluster = cluster_of(topic("a", second, first, topic_id=ID_1))
    assert NODES == cluster.nodes
    assert ("c", 1) == (cluster.cluster_id, cluster.controller_id)
    assert LeaderAndEpoch(NODES[2], 5) == cluster.leader(tp("a-1"))
    assert (ID_1, "a", 2) == (cluster.topic_id("a"), cluster.topic_name(ID_1), cluster.partition_count("a"))
    both = (NODES[1], NODES[2])
    expected = PartitionInfo("a", 0, NODES[1], both, both, (NODES[2],))
    assert expected == cluster.partition_info(tp("a-0"))
    assert [0, 1] == [info.partition for info in cluster.partitions_for("a") or ()]


def test_a_replica_without_address_is_kept_by_id() -> None:
    """A broker that is down is not among the brokers of a response, but stays in the list of replicas."""
    cluster = cluster_of(topic("a", partition(0, leader=9, replica_nodes=[9], isr_nodes=[])))
    info = cluster.partition_info(tp("a-0"))
    assert info is not None
    assert (None, (Node(9, "", -1),)) == (info.leader, info.replicas)


@pytest.mark.parametrize(
    ("known", "received", "expected"),
    [(4, 5, 5), (4, 4, 4), (4, 3, 4)],
    ids=["newer", "equal", "older"],
)
def test_an_older_epoch_keeps_the_known_leader(known: int, received: int, expected: int) -> None:
    """A response is used if its leader epoch is not older than the cached one; otherwise the cached entry
    is unchanged.
    """
    cluster = cluster_of(topic("a", partition(0, leader=1, epoch=known)))
    cluster.update(metadata(topic("a", partition(0, leader=2, epoch=received))), VERSION, full=True)
    leader = NODES[1] if received < known else NODES[2]
    assert LeaderAndEpoch(leader, expected) == cluster.leader(tp("a-0"))


def test_a_recreated_topic_starts_its_epochs_again() -> None:
    """A lower epoch is accepted if the topic id has changed (a re-created topic)."""
    cluster = cluster_of(topic("a", partition(0, epoch=7), topic_id=ID_1))
    update = cluster.update(metadata(topic("a", partition(0, leader=2, epoch=0), topic_id=ID_2)), VERSION, full=True)
    assert update.progressed
    assert LeaderAndEpoch(NODES[2], 0) == cluster.leader(tp("a-0"))
    assert (None, "a") == (cluster.topic_name(ID_1), cluster.topic_name(ID_2))


def test_a_topic_that_was_gone_starts_its_epochs_again() -> None:
    """A new topic id resets the epoch, also if the topic was missing from the cache in between."""
    cluster = cluster_of(topic("a", partition(0, epoch=7), topic_id=ID_1))
    cluster.update(metadata(), VERSION, full=True)
    cluster.update(metadata(topic("a", partition(0, epoch=1), topic_id=ID_2)), VERSION, full=True)
    assert 1 == cluster.leader(tp("a-0")).epoch


@pytest.mark.parametrize("lost_by", ["a response without the topic", "an error of the topic"])
def test_a_missing_topic_brings_back_no_old_leader(lost_by: str) -> None:
    """If the topic was missing from the cache, a response of a broker with outdated metadata is refused: it has the
    same topic id and an older leader epoch. Metadata is requested again, and the present leader is then accepted.
    """
    cluster = cluster_of(topic("a", partition(0, leader=1, epoch=7), topic_id=ID_1))
    without = metadata(topic("a", error=3)) if "error" in lost_by else metadata()
    cluster.update(without, VERSION, full=True)
    outdated = metadata(topic("a", partition(0, leader=2, epoch=6), topic_id=ID_1))
    update = cluster.update(outdated, VERSION, full=True)
    assert (NO_LEADER, 7) == (cluster.leader(tp("a-0")), cluster.last_seen_epoch(tp("a-0")))
    assert (True, False, set()) == (update.stale, update.progressed, update.recreated)
    present = metadata(topic("a", partition(0, leader=1, epoch=7), topic_id=ID_1))
    update = cluster.update(present, VERSION, full=True)
    assert LeaderAndEpoch(NODES[1], 7) == cluster.leader(tp("a-0"))
    assert (False, True, set()) == (update.stale, update.progressed, update.recreated)


def test_a_rebootstrap_accepts_older_leader_epochs() -> None:
    """After a rebootstrap the leader of a cluster that was restored from a backup is accepted, as by a new client."""
    cluster = cluster_of(topic("a", partition(0, leader=1, epoch=7), topic_id=ID_1))
    cluster.forget()
    restored = metadata(topic("a", partition(0, leader=2, epoch=3), topic_id=ID_1))
    update = cluster.update(restored, VERSION, full=True)
    assert LeaderAndEpoch(NODES[2], 3) == cluster.leader(tp("a-0"))
    assert (False, True, set()) == (update.stale, update.progressed, update.recreated)


def test_an_id_that_was_left_out_is_the_same() -> None:
    """A broker that has no topic ids, as during an upgrade, does not make the topic a re-created one."""
    cluster = cluster_of(topic("a", partition(0, leader=1, epoch=7), topic_id=ID_1))
    cluster.update(metadata(topic("a", partition(0, leader=1, epoch=7))), VERSION, full=True)
    cluster.update(metadata(topic("a", partition(0, leader=2, epoch=6), topic_id=ID_1)), VERSION, full=True)
    assert LeaderAndEpoch(NODES[1], 7) == cluster.leader(tp("a-0"))


def test_an_older_epoch_without_a_known_entry_is_dropped() -> None:
    """Without topic ids, a response with an older epoch is ignored even if the partition is not cached."""
    cluster = cluster_of(topic("a", partition(0, epoch=7)))
    cluster.update(metadata(), VERSION, full=True)
    cluster.update(metadata(topic("a", partition(0, epoch=6))), VERSION, full=True)
    assert 0 == cluster.partition_count("a")


UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE = 3, 5


@pytest.mark.parametrize(
    ("responses", "full", "expected"),
    [
        ([UNKNOWN_TOPIC] * 3, True, 0),
        ([UNKNOWN_TOPIC] * 3, False, 0),
        ([None] * 3, True, 0),
        ([UNKNOWN_TOPIC] * 2, True, 7),
        ([UNKNOWN_TOPIC, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC], True, 7),
        ([LEADER_NOT_AVAILABLE] * 5, True, 7),
    ],
)
def test_a_topic_that_was_gone_for_long_starts_its_epochs_again(
    responses: list[int | None], full: bool, expected: int
) -> None:
    """Without topic ids (Kafka 2.4 to 2.7), a topic that several responses in a row lacked is a new one: its older
    leader epoch is accepted. One or two responses may come from a broker that lags behind.
    """
    cluster = cluster_of(topic("a", partition(0, epoch=7)))
    for code in responses:
        rows = [] if code is None else [topic("a", error=code)]
        cluster.update(metadata(*rows), VERSION, full=full)
    update = cluster.update(metadata(topic("a", partition(0, epoch=0))), VERSION, full=full)
    assert expected == cluster.last_seen_epoch(tp("a-0"))
    assert ({} if expected == 0 else {tp("a-0"): (0, 7)}) == update.outdated


def test_a_topic_with_an_id_keeps_its_epochs() -> None:
    """With topic ids, the id shows whether the topic is a new one, however long it was missing."""
    cluster = cluster_of(topic("a", partition(0, epoch=7), topic_id=ID_1))
    for _ in range(10):
        cluster.update(metadata(topic("a", error=UNKNOWN_TOPIC)), VERSION, full=True)
    cluster.update(metadata(topic("a", partition(0, epoch=0), topic_id=ID_1)), VERSION, full=True)
    assert 7 == cluster.last_seen_epoch(tp("a-0"))


@pytest.mark.parametrize(("version", "epoch"), [(8, None), (9, 3)])
def test_epochs_count_from_version_9(version: int, epoch: int | None) -> None:
    """Epochs of brokers before 2.4 are ignored, because they may go backwards."""
    cluster = cluster_of(topic("a", partition(0, epoch=3)), version=version)
    assert LeaderAndEpoch(NODES[1], epoch) == cluster.leader(tp("a-0"))


def test_an_unreliable_response_clears_the_epoch() -> None:
    """A response of an old broker clears the epoch that a new broker sent."""
    cluster = cluster_of(topic("a", partition(0, epoch=3)))
    cluster.update(metadata(topic("a", partition(0, leader=2, epoch=1))), 8, full=True)
    assert LeaderAndEpoch(NODES[2], None) == cluster.leader(tp("a-0"))
    assert cluster.last_seen_epoch(tp("a-0")) is None


def test_a_partial_response_merges() -> None:
    """A partial response replaces its topics, removes those with errors, and keeps all others."""
    cluster = cluster_of(topic("a", partition(0)), topic("b", partition(0)), topic("c", partition(0)))
    response = metadata(topic("b", partition(0), partition(1)), topic("c", error=3), topic("d", partition(0)))
    cluster.update(response, VERSION, full=False)
    assert {"a": 1, "b": 2, "d": 1} == {name: cluster.partition_count(name) for name in cluster.topics()}


def test_only_topics_to_keep_are_kept() -> None:
    """`keep` removes topics of full and partial responses, with their errors and epochs."""
    cluster = cluster_of(topic("a", partition(0)))
    update = cluster.update(
        metadata(topic("b", partition(0)), topic("c", error=29)), VERSION, full=False, keep=lambda *_: False
    )
    assert frozenset() == cluster.topics()
    assert {} == update.topic_errors
    assert cluster.last_seen_epoch(tp("a-0")) is None


@pytest.mark.parametrize(
    ("response", "stale", "errors"),
    [
        (metadata(topic("a", partition(0, leader=-1, error=5))), True, {}),
        (metadata(topic("a", partition(0, error=9))), True, {}),
        (metadata(topic("a", error=3)), True, {"a": 3}),
        (metadata(topic("a", error=5)), True, {"a": 5}),
        (metadata(topic("a", error=17)), False, {"a": 17}),
        (metadata(topic("a", error=29)), False, {"a": 29}),
        (metadata(topic(None, error=100, topic_id=ID_1)), True, {}),
        (metadata(topic("a", partition(0))), False, {}),
    ],
    ids=["no leader", "replica", "unknown", "leaderless topic", "invalid", "refused", "unknown id", "good"],
)
def test_errors_in_responses(response: object, stale: bool, errors: dict[str, int]) -> None:
    """Retriable errors make the response stale; topic errors are reported with their code."""
    update = Cluster().update(response, VERSION, full=True)
    assert (stale, errors) == (update.stale, update.topic_errors)


def test_a_leaderless_partition_stays_known() -> None:
    """A partition with LEADER_NOT_AVAILABLE is cached without a leader."""
    cluster = cluster_of(topic("a", partition(0, leader=-1, error=5)))
    assert (1, None) == (cluster.partition_count("a"), cluster.leader(tp("a-0")).leader)


@pytest.mark.parametrize(
    ("second", "progressed"),
    [
        (metadata(topic("a", partition(0, epoch=4))), False),
        (metadata(topic("a", partition(0, epoch=5))), True),
        (metadata(topic("a", partition(0, epoch=4), partition(1))), True),
        (metadata(topic("a", partition(0, epoch=3))), False),
        (metadata(topic("a", error=3)), False),
        (metadata(topic("a", partition(0, epoch=-1))), True),
    ],
    ids=["same", "new epoch", "new partition", "old epoch", "gone", "no epoch"],
)
def test_progress(second: object, progressed: bool) -> None:
    """A response without new epochs, ids or partitions is not progress."""
    cluster = cluster_of(topic("a", partition(0, epoch=4)))
    assert progressed == cluster.update(second, VERSION, full=True).progressed


@pytest.mark.parametrize(
    ("leader", "epoch", "node", "expected"),
    [
        (2, 6, None, LeaderAndEpoch(NODES[2], 6)),
        (2, 6, Node(2, "moved", 1), LeaderAndEpoch(Node(2, "moved", 1), 6)),
        (7, 6, Node(7, "new", 1), LeaderAndEpoch(Node(7, "new", 1), 6)),
        (2, 5, None, None),
        (2, 4, None, None),
        (7, 6, None, None),
        (-1, 6, None, None),
        (2, -1, None, None),
    ],
    ids=["known node", "moved node", "new node", "equal epoch", "older", "no address", "no leader", "no epoch"],
)
def test_leader_hints(leader: int, epoch: int, node: Node | None, expected: LeaderAndEpoch | None) -> None:
    """A leader in a Fetch response is used only with a strictly newer epoch and a known address."""
    cluster = cluster_of(topic("a", partition(0, leader=1, epoch=5)))
    version = cluster.update_version
    assert (expected is not None) == cluster.update_leader(tp("a-0"), leader, epoch, node)
    assert (expected or LeaderAndEpoch(NODES[1], 5)) == cluster.leader(tp("a-0"))
    assert (expected is not None) == (cluster.update_version > version)


def test_a_hint_updates_the_public_form() -> None:
    """`partitions_for` returns the new leader too."""
    cluster = cluster_of(topic("a", partition(0, leader=1, epoch=5)))
    assert cluster.partitions_for("a")
    cluster.update_leader(tp("a-0"), 2, 6)
    info = cluster.partition_info(tp("a-0"))
    assert info is not None
    assert NODES[2] == info.leader


def test_a_newer_epoch_makes_the_leader_unknown() -> None:
    """A newer epoch in a commit means that the cached leader is old; metadata with that epoch sets a leader again."""
    cluster = cluster_of(topic("a", partition(0, epoch=4)))
    assert cluster.update_last_seen_epoch(tp("a-0"), 5)
    assert LeaderAndEpoch(None, 5) == cluster.leader(tp("a-0"))
    cluster.update(metadata(topic("a", partition(0, leader=1, epoch=4))), VERSION, full=True)
    assert LeaderAndEpoch(None, 5) == cluster.leader(tp("a-0"))
    cluster.update(metadata(topic("a", partition(0, leader=3, epoch=5))), VERSION, full=True)
    assert LeaderAndEpoch(NODES[3], 5) == cluster.leader(tp("a-0"))


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_epoch_that_is_not_newer(epoch: int) -> None:
    """An epoch that is not newer than the known one, or of an unknown partition, changes nothing."""
    cluster = cluster_of(topic("a", partition(0, epoch=4)))
    assert not cluster.update_last_seen_epoch(tp("a-0"), epoch)
    assert not cluster.update_last_seen_epoch(tp("b-0"), epoch)
    assert NODES[1] == cluster.leader(tp("a-0")).leader


def test_forgetting_keeps_epochs() -> None:
    """A rebootstrap removes brokers and topics but keeps epochs, so an old leader is still refused."""
    cluster = cluster_of(topic("a", partition(0, epoch=4)))
    cluster.forget()
    assert ({}, frozenset(), NO_LEADER) == (cluster.nodes, cluster.topics(), cluster.leader(tp("a-0")))
    cluster.update(metadata(topic("a", partition(0, epoch=3))), VERSION, full=True)
    assert cluster.leader(tp("a-0")).leader is None


def test_partition_infos_are_sorted() -> None:
    """The partitions of topics are sorted by name and number; unknown topics are omitted."""
    cluster = Cluster()
    cluster.update(led_by({"b-1": 1, "b-0": 1, "a-0": 2, "c-0": 1}), VERSION, full=True)
    names = [f"{info.topic}-{info.partition}" for info in cluster.partition_infos({"b", "a", "x"})]
    assert ["a-0", "b-0", "b-1"] == names
    assert 4 == len(cluster.partition_infos())


@pytest.mark.parametrize(("node", "online"), [(1, True), (2, False), (9, False)])
def test_online_replicas(node: int, online: bool) -> None:
    """A preferred replica is used only while its broker is known and not offline for the partition."""
    cluster = cluster_of(topic("a", partition(0, offline_replicas=[2])))
    assert (NODES[1] if online else None) == cluster.node_if_online(tp("a-0"), node)


def test_repr_counts() -> None:
    """The repr has the version and the numbers of nodes, topics and partitions."""
    assert "<Cluster c v1: 3 nodes, 1 topics, 1 partitions>" == repr(cluster_of(topic("a", partition(0))))


def test_equal_values_are_shared() -> None:
    """Partitions with the same leader and leader epoch share one object, and so do equal lists of replicas."""
    cluster = cluster_of(topic("a", partition(0, leader=1, epoch=4), partition(1, leader=1, epoch=4)))
    first, second = (cluster.leader(tp(name)) for name in ("a-0", "a-1"))
    assert first is second
    kept = cluster._topics["a"].partitions[0]
    assert kept.replicas is kept.in_sync
