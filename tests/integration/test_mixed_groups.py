"""One group of kconsumer, Kafka's Java consumer and confluent-kafka, with each of them as leader; members join, leave
and are killed.
"""

from __future__ import annotations

import pytest

from support.brokers.kafka import Kafka
from support.members.clients import Assignors
from support.members.mixed_group import MixedGroup

THREE = ("kconsumer", "java", "confluent")
# librdkafka has no eager sticky assignor; a second kconsumer member takes its place there.
WITHOUT_CONFLUENT = ("kconsumer", "java", "kconsumer")


def runs() -> list[object]:
    """Returns every combination of assignor and leading client. Without the mark `long`, each client leads at least
    once and each assignor is used once.
    """
    short = {("range", "java"), ("roundrobin", "confluent"), ("sticky", "kconsumer"), ("cooperative-sticky", "java")}
    found = []
    for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        clients = WITHOUT_CONFLUENT if assignor == "sticky" else THREE
        for leader in dict.fromkeys(clients):
            marks = () if (assignor, leader) in short else (pytest.mark.long,)
            others = list(clients)
            others.remove(leader)
            found.append(pytest.param(assignor, leader, others, id=f"{assignor}-{leader}-leads", marks=marks))
    return found


@pytest.mark.parametrize(("assignor", "leader", "others"), runs())
def test_classic_group(kafka: Kafka, topic_name: str, assignor: str, leader: str, others: list[str]) -> None:
    """Members join, the leader is killed by SIGKILL and returns, and a member leaves while records are produced. Each
    partition has one owner in each generation, and no record is lost.
    """
    leader_dies_and_returns(kafka, topic_name, [assignor], leader, others)


@pytest.mark.consumer_protocol
@pytest.mark.parametrize("first", ["kconsumer", "java", pytest.param("confluent", marks=pytest.mark.long)])
def test_group_of_the_consumer_protocol(kafka: Kafka, topic_name: str, first: str) -> None:
    """The same holds for the consumer protocol, in which the coordinator assigns."""
    leader_dies_and_returns(kafka, topic_name, None, first, [client for client in THREE if client != first])


def leader_dies_and_returns(kafka: Kafka, topic: str, assignors: Assignors, first: str, others: list[str]) -> None:
    """Kill the first member, which leads a classic group, while the others continue, and start it again."""
    with MixedGroup(kafka, topic) as group:
        with group.load():
            leader = group.join(first, assignors)
            group.settle()
            for client in others:
                group.join(client, assignors)
            group.settle()
            if assignors is not None:
                assert leader is group.leader()
            group.kill(leader)
            group.settle()
            group.join(first, assignors)
            group.settle()
            group.leave(group.live[0])
            group.settle()
        group.finish()


EAGER, BOTH, COOPERATIVE = ["range"], ["range", "cooperative-sticky"], ["cooperative-sticky"]
ALONE = ("kconsumer",) * 3


@pytest.mark.parametrize(
    "clients",
    [ALONE, pytest.param(WITHOUT_CONFLUENT, marks=pytest.mark.long)],
    ids=["alone", "with-java"],
)
def test_upgrade_from_eager_to_cooperative(kafka: Kafka, topic_name: str, clients: tuple[str, ...]) -> None:
    """Two rolling bounces, range → both → cooperative-sticky, while records are produced, lose no record; with
    kconsumer members alone, no record is read twice. Then a fourth member joins without interrupting retained
    partitions.
    """
    with MixedGroup(kafka, topic_name) as group:
        with group.load():
            bounces(group, clients, EAGER, BOTH, COOPERATIVE)
            upgraded = list(group.live)
            since = {member.name: len(member.seen("revoked")) for member in upgraded}
            group.join("kconsumer", COOPERATIVE)
            group.settle()
            given_up = [len(e["partitions"]) for m in upgraded for e in m.seen("revoked")[since[m.name] :]]
        group.finish(once=clients == ALONE)
    assert 1 == sum(given_up), "of six partitions a fourth member gets one, and the other members lose none"
    assert {"range", "cooperative-sticky"} == group.watch.protocols()


@pytest.mark.consumer_protocol
@pytest.mark.parametrize(
    ("clients", "classic", "once"),
    [
        (ALONE, EAGER, True),
        pytest.param(ALONE, COOPERATIVE, True, marks=pytest.mark.long),
        pytest.param(THREE, EAGER, False, marks=pytest.mark.long),
        # Not with librdkafka: its sticky leader adds its own data to assignments, and the broker keeps the group's
        # data.
        pytest.param(WITHOUT_CONFLUENT, COOPERATIVE, False, marks=pytest.mark.long),
    ],
    ids=["alone-range", "alone-cooperative", "mixed-range", "mixed-cooperative"],
)
def test_upgrade_to_the_consumer_protocol_and_back(
    kafka: Kafka, topic_name: str, clients: tuple[str, ...], classic: list[str], once: bool
) -> None:
    """Classic members are replaced one by one by members of the consumer protocol, and then the reverse, while records
    are produced. No record is lost; with kconsumer members alone (`once`), no record is read twice.

    One exception is caused by the broker: when the last member of the consumer protocol leaves, the broker starts a
    classic group whose generation is that of the group. Members that were not in it yet are fenced without a
    notification and cannot commit.
    """
    with MixedGroup(kafka, topic_name) as group:
        with group.load():
            bounces(group, clients, classic, None, classic)
            last_of_the_protocol_left = group.last_leave
        group.finish(once=once, lost_after=last_of_the_protocol_left)
    lost = [event["at"] for member in group.everyone for event in member.seen("lost")]
    assert [] == [at for at in lost if at < last_of_the_protocol_left]
    assert {classic[0], "uniform"} == group.watch.protocols()


def bounces(group: MixedGroup, clients: tuple[str, ...], *stages: Assignors) -> None:
    """Start a group with the assignors of the first stage. For each further stage, replace the members one by one."""
    for client in clients:
        group.join(client, stages[0])
    group.settle()
    for assignors in stages[1:]:
        for client in clients:
            group.leave(group.live[0])
            group.join(client, assignors)
            group.settle()
