"""One group of kconsumer, Kafka's Java consumer and confluent-kafka: whoever leads, comes, leaves or is killed."""

from __future__ import annotations

import pytest

from support.brokers.kafka import Kafka
from support.members.clients import Assignors
from support.members.mixed_group import MixedGroup

THREE = ("kconsumer", "java", "confluent")
# librdkafka has no eager sticky assignor; a second kconsumer takes its place there.
WITHOUT_CONFLUENT = ("kconsumer", "java", "kconsumer")


def runs() -> list[object]:
    """Every protocol led by every client that knows it. The short form: each client leads, in each protocol somebody
    else than kconsumer does or kconsumer itself."""
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
    """Joins, SIGKILL of the leader, its return and a leave while records flow: one owner for each partition in each
    generation, and nothing is lost."""
    leader_dies_and_returns(kafka, topic_name, [assignor], leader, others)


@pytest.mark.consumer_protocol
@pytest.mark.parametrize("first", ["kconsumer", "java", pytest.param("confluent", marks=pytest.mark.long)])
def test_group_of_the_consumer_protocol(kafka: Kafka, topic_name: str, first: str) -> None:
    """The same where the coordinator assigns."""
    leader_dies_and_returns(kafka, topic_name, None, first, [client for client in THREE if client != first])


def leader_dies_and_returns(kafka: Kafka, topic: str, assignors: Assignors, first: str, others: list[str]) -> None:
    """The first member is the leader of a classic group; it is killed under the hands of the others."""
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
    """Two rolling bounces, range → both → cooperative-sticky, while records flow: nothing is lost, and by kconsumer
    alone nothing is read twice; then a fourth member interrupts nobody in what they keep."""
    with MixedGroup(kafka, topic_name) as group:
        with group.load():
            bounces(group, clients, EAGER, BOTH, COOPERATIVE)
            upgraded = list(group.live)
            since = {member.name: len(member.seen("revoked")) for member in upgraded}
            group.join("kconsumer", COOPERATIVE)
            group.settle()
            given_up = [len(e["partitions"]) for m in upgraded for e in m.seen("revoked")[since[m.name] :]]
        group.finish(once=clients == ALONE)
    assert 1 == sum(given_up), "of six partitions a fourth member gets one, and nobody else loses any"
    assert {"range", "cooperative-sticky"} == group.watch.protocols()


@pytest.mark.consumer_protocol
@pytest.mark.parametrize(
    ("clients", "classic", "once"),
    [
        (ALONE, EAGER, True),
        pytest.param(ALONE, COOPERATIVE, True, marks=pytest.mark.long),
        pytest.param(THREE, EAGER, False, marks=pytest.mark.long),
        # Not with librdkafka: its sticky leader sends data of its own with assignments, and the broker keeps the group.
        pytest.param(WITHOUT_CONFLUENT, COOPERATIVE, False, marks=pytest.mark.long),
    ],
    ids=["alone-range", "alone-cooperative", "mixed-range", "mixed-cooperative"],
)
def test_upgrade_to_the_consumer_protocol_and_back(
    kafka: Kafka, topic_name: str, clients: tuple[str, ...], classic: list[str], once: bool
) -> None:
    """Classic members are replaced by members of the consumer protocol one by one, then the other way round, while
    records flow: nothing is lost, and (`once`, by kconsumer alone) nothing is read twice. One exception is the
    broker's: when the last member of the consumer protocol leaves, it starts a classic group whose generation is that
    of the group, and members that were not there yet are fenced, told nothing and cannot commit."""
    with MixedGroup(kafka, topic_name) as group:
        with group.load():
            bounces(group, clients, classic, None, classic)
            last_of_the_protocol_left = group.last_leave
        group.finish(once=once, lost_after=last_of_the_protocol_left)
    lost = [event["at"] for member in group.everyone for event in member.seen("lost")]
    assert [] == [at for at in lost if at < last_of_the_protocol_left]
    assert {classic[0], "uniform"} == group.watch.protocols()


def bounces(group: MixedGroup, clients: tuple[str, ...], *stages: Assignors) -> None:
    """A group by the first stage, whose members are replaced one by one for each of the next."""
    for client in clients:
        group.join(client, stages[0])
    group.settle()
    for assignors in stages[1:]:
        for client in clients:
            group.leave(group.live[0])
            group.join(client, assignors)
            group.settle()
