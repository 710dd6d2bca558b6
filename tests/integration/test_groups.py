"""Group health from outside: every number equals that of Kafka's own tools for the same group."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

import kconsumer
from kconsumer import Consumer, TopicPartition, cli
from kconsumer.groups import GroupClient, GroupDescription, GroupOffset
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import numbered, poll_until, tps
from support.members.java_groups import GROUPS, SHARE_GROUPS, Row, ask, share_consumer

pytestmark = pytest.mark.classic_protocol

New = Callable[..., Consumer]


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic of three partitions with 10, 20 and 30 records; the first 4 records of the last one were deleted."""
    kafka.create_topic(topic_name, 3)
    for partition in range(3):
        kafka.produce(topic_name, numbered(10 * (partition + 1)), partition=partition)
    kafka.delete_records(topic_name, {2: 4})
    return topic_name


@pytest.fixture
def group(kafka: Kafka, topic: str, new_consumer: New) -> str:
    """A stable classic group of two members, one of them static. It has commits for subscribed and for other topics."""
    other = kafka.create_topic(f"{topic}-other", 1)
    kafka.produce(other, numbered(7), partition=0)
    options = {"group_id": topic, "assignors": ["range"], "enable_auto_commit": False}
    members = [
        new_consumer(topic, client_id="one", group_instance_id="first", **options),
        new_consumer(topic, client_id="two", **options),
    ]
    poll_until(members, lambda: sorted(len(member.assignment()) for member in members) == [1, 2])
    members[1].commit({TopicPartition(topic, 0): 3, TopicPartition(topic, 2): 30, TopicPartition(other, 0): 5})
    return topic


def as_java(group: GroupDescription, offsets: dict[TopicPartition, GroupOffset]) -> list[Row]:
    """Returns our results in the form of `kafka-consumer-groups --describe --offsets`."""
    members = {member.member_id: member for member in group.members}
    rows = []
    for tp, offset in offsets.items():
        owner = members.get(offset.owner or "")
        cells = {
            "GROUP": group.group_id,
            "TOPIC": tp.topic,
            "PARTITION": tp.partition,
            "CURRENT-OFFSET": offset.committed,
            "LOG-END-OFFSET": offset.end,
            "LAG": offset.lag,
            "CONSUMER-ID": owner and owner.member_id,
            "HOST": owner and owner.host,
            "CLIENT-ID": owner and owner.client_id,
        }
        rows.append({key: "-" if value is None else str(value) for key, value in cells.items()})
    return rows


def by_partition(rows: list[Row]) -> list[Row]:
    """Returns the rows in order."""
    return sorted(rows, key=lambda row: (row["TOPIC"], int(row["PARTITION"])))


def java_offsets(kafka: Kafka, group: str) -> list[Row]:
    """Returns the group's offsets from Java's tool, without a column that newer versions add."""
    rows = ask(GROUPS, kafka.bootstrap_servers, "--describe", "--offsets", "--group", group)
    return by_partition([{key: cell for key, cell in row.items() if key != "LEADER-EPOCH"} for row in rows])


@pytest.mark.usefixtures("form")
def test_a_classic_group_is_as_java_says(kafka: Kafka, group: str) -> None:
    """Offsets, ends, lag, owners, members, subscriptions, state, assignor and coordinator equal those of Java's
    tool.
    """
    servers = kafka.bootstrap_servers
    with GroupClient(servers) as client:
        found = client.describe(group)
        offsets = client.offsets(found)
    assert java_offsets(kafka, group) == as_java(found, offsets)
    assert [3, 5, None, 30] == [
        offsets[tp].committed for tp in (*tps(group, 0), *tps(f"{group}-other", 0), *tps(group, 1, 2))
    ]
    assert {0: 0, 1: 0, 2: 4} == {tp.partition: at.log_start for tp, at in offsets.items() if tp.topic == group}

    theirs = ask(GROUPS, servers, "--describe", "--members", "--group", group)
    expected = {(row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"], int(row["#PARTITIONS"])) for row in theirs}
    assert expected == {(m.member_id, m.host, m.client_id, len(m.assignment)) for m in found.members}
    assert {"one": "first", "two": None} == {m.client_id: m.group_instance_id for m in found.members}

    (state,) = ask(GROUPS, servers, "--describe", "--state", "--group", group)
    node = found.coordinator
    assert node is not None
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], int(state["#MEMBERS"])) == (found.protocol, found.state, 2)
    assert state["COORDINATOR (ID)"].split() == [f"{node.host}:{node.port}", f"({node.id})"]
    assert ("classic", "consumer", None) == (found.type, found.protocol_type, found.group_epoch)


def test_an_empty_group_and_a_deleted_topic(kafka: Kafka, topic: str, new_consumer: New) -> None:
    """A group without members keeps its offsets; a deleted partition has no end offset and no lag."""
    gone = kafka.create_topic(f"{topic}-gone", 1)
    with new_consumer(group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign([*tps(topic, 0), *tps(gone, 0)])
        consumer.commit({TopicPartition(topic, 0): 4, TopicPartition(gone, 0): 0})
    found = kconsumer.groups.describe(topic, kafka.bootstrap_servers)
    assert ("Empty", ()) == (found.state, found.members)
    offsets = kconsumer.groups.offsets(topic, kafka.bootstrap_servers)
    assert java_offsets(kafka, topic) == as_java(found, offsets)
    assert [(4, 10, 6), (0, 0, 0)] == [(at.committed, at.end, at.lag) for at in offsets.values()]
    with GroupClient(kafka.bootstrap_servers, default_api_timeout_ms=10_000) as client:
        before = client.describe(topic)
        kafka.delete_topic(gone)
        after = client.offsets(before)
    assert after.get(TopicPartition(gone, 0)) in (None, GroupOffset(0, None, None, None))
    assert 6 == after[TopicPartition(topic, 0)].lag


@contextmanager
def new_protocol_member(kafka: Kafka, topic: str) -> Iterator[None]:
    """While the block runs, a librdkafka member of a group of the consumer protocol owns the topic."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "group.protocol": "consumer"}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "client.id": "rd", "log_level": "0"}
    consumer = ConfluentConsumer(settings)
    try:
        consumer.subscribe([topic])
        record = wait_until(lambda: consumer.poll(0.2), 20, "a record")
        consumer.commit(message=record, asynchronous=False)
        yield
    finally:
        consumer.close()


@pytest.mark.consumer_protocol
@pytest.mark.usefixtures("form")
def test_a_consumer_group_is_as_java_says(kafka: Kafka, topic: str) -> None:
    """The description of a KIP-848 group, with its epochs, equals that of Java's tool."""
    with new_protocol_member(kafka, topic), GroupClient(kafka.bootstrap_servers) as client:
        found = client.describe(topic)
        offsets = client.offsets(found)
        assert java_offsets(kafka, topic) == as_java(found, offsets)
        (member,) = found.members
        assert ("consumer", "Stable", "uniform") == (found.type, found.state, found.protocol)
        assert ("rd", tps(topic, 0, 1, 2), tps(topic, 0, 1, 2)) == (
            member.client_id,
            member.assignment,
            member.target_assignment,
        )
        assert found.group_epoch == found.assignment_epoch == member.member_epoch
        assert (topic,) == member.subscribed_topics
        listed = {found.group_id: found for found in client.list(types=["consumer"], states=["stable"])}
        assert ("consumer", "Stable") == (listed[topic].type, listed[topic].state)
        assert topic not in {found.group_id for found in client.list(types=["classic"])}


@pytest.mark.consumer_protocol
def test_a_share_group_is_as_java_says(kafka: Kafka, topic: str) -> None:
    """Share groups (KIP-932) are listed and described with their start offsets and the number of remaining records."""
    servers = kafka.bootstrap_servers
    with GroupClient(servers) as client, share_consumer(servers, topic, topic):
        wait_until(
            lambda: topic in {g.group_id for g in client.list(types=["share"], states=["Stable"])}, 90, "the group"
        )
        wait_until(lambda: client.describe(topic).members[0].assignment, 90, "an assignment")

        def caught_up() -> bool:
            """Returns whether the share group has consumed all records.

            It begins at the end of the log, and has start offsets only after it got records: write some where they
            are missing.
            """
            offsets = client.offsets(client.describe(topic))
            for tp in [tp for tp, at in offsets.items() if at.committed is None]:
                kafka.produce(topic, numbered(1), partition=tp.partition)
            return bool(offsets) and all(at.lag == 0 for at in offsets.values())

        wait_until(caught_up, 90, "consumption")
        found = client.describe(topic)
        offsets = client.offsets(found)
        theirs = ask(SHARE_GROUPS, servers, "--describe", "--offsets", "--group", topic)
    assert ("share", "Stable", 1) == (found.type, found.state, len(found.members))
    assert tps(topic, 0, 1, 2) == found.members[0].assignment
    ours = [(tp.topic, str(tp.partition), str(at.committed), str(at.lag)) for tp, at in offsets.items()]
    columns = ("TOPIC", "PARTITION", "START-OFFSET", "LAG")
    assert [tuple(row[column] for column in columns) for row in by_partition(theirs)] == ours


def test_listing_is_as_java_says(kafka: Kafka, group: str) -> None:
    """The list has every consumer group of Java's list with its state; filters exclude the other groups."""
    before = {found.group_id for found in kconsumer.groups.list(kafka.bootstrap_servers)}
    theirs = {row["GROUP"]: row["STATE"] for row in ask(GROUPS, kafka.bootstrap_servers, "--list", "--state")}
    ours = {found.group_id: found for found in kconsumer.groups.list(kafka.bootstrap_servers)}
    assert theirs[group] == ours[group].state == "Stable"
    assert ("classic", "consumer") == (ours[group].type, ours[group].protocol_type)
    assert theirs.keys() <= ours.keys() | before, "other tests delete groups meanwhile"
    assert group not in {found.group_id for found in kconsumer.groups.list(kafka.bootstrap_servers, states=["empty"])}


# --- the command ------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command in this process. Returns exit code, stdout and stderr."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_watching_ends_with_ctrl_c(kafka: Kafka, group: str) -> None:
    """On a terminal the view is redrawn in place; Ctrl-C ends it with exit code 130 and nothing on stderr."""
    command = [sys.executable, "-m", "kconsumer", "groups", "lag", group, "-b", kafka.bootstrap_servers]
    ours, theirs = pty.openpty()
    command += ["--watch", "0.2"]
    wide = {**os.environ, "COLUMNS": "200", "LINES": "50"}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, text=True, env=wide)
    os.close(theirs)
    painted = ""
    deadline = time.monotonic() + 30
    while painted.count("\x1b[H") < 3 and time.monotonic() < deadline:
        painted += os.read(ours, 4096).decode()
    process.send_signal(signal.SIGINT)
    assert (130, "") == (process.wait(30), process.communicate()[1])
    os.close(ours)
    assert 3 <= painted.count("\x1b[H")
    assert re.search(rf"{group} +Stable +2 +4 +1 +9", painted)


def test_topics(kafka: Kafka, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`topics list` and `topics describe` show partitions, leaders and end offsets."""
    servers = ["-b", kafka.bootstrap_servers]
    code, out, _ = run(capsys, "topics", "list", *servers, "--json")
    assert {"topic": topic, "partitions": 3, "replicas": 1} in [json.loads(line) for line in out.splitlines()]
    assert 0 == code
    assert "__consumer_offsets" not in out
    code, out, _ = run(capsys, "topics", "describe", topic, *servers, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(0, 0, 10), (1, 0, 20), (2, 4, 30)] == [(r["partition"], r["log_start"], r["end"]) for r in rows]
    assert 4 == len(run(capsys, "topics", "describe", topic, *servers)[1].splitlines())
    assert 1 == run(capsys, "topics", "describe", f"{topic}-none", *servers)[0]
