"""Changes of groups from outside: the offsets of an empty group are set, and a group is deleted."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from kconsumer import Consumer, OffsetAndMetadata, ShareConsumer, TopicPartition, cli
from kconsumer._common.error_codes import Errors
from kconsumer.errors import GroupError, StaleMetadataError
from kconsumer.groups import GroupClient
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, poll_until, tps
from support.members.java_groups import GROUPS, SHARE_GROUPS, ask, tool
from support.members.share_groups import poll_records

New = Callable[..., Consumer]


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic of two partitions with ten records each."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, numbered(10), partition=partition)
    return topic_name


@pytest.mark.usefixtures("form")
def test_a_group_without_members_is_changed(kafka: Kafka, topic: str, new_consumer: New) -> None:
    """While a group has members, its offsets cannot be set and it cannot be deleted; then both are possible."""
    first, second = tps(topic, 0, 1)
    with GroupClient(kafka.bootstrap_servers) as client:
        with new_consumer(topic, group_id=topic, enable_auto_commit=False) as member:
            poll_until([member], lambda: len(member.assignment()) == 2)
            member.commit({first: 3, second: 4})
            with pytest.raises(GroupError, match="the group has members, and only they can commit") as caught:
                client.alter_offsets(topic, {first: 1})
            assert Errors.UNKNOWN_MEMBER_ID == caught.value.code
            with pytest.raises(GroupError, match="stop its members first") as caught:
                client.delete(topic)
            assert Errors.NON_EMPTY_GROUP == caught.value.code
        client.alter_offsets(topic, {first: OffsetAndMetadata(7, "by hand", 0)})
        offsets = client.offsets(client.describe(topic))
        assert [(7, "by hand", 0), (4, "", None)] == [
            (at.committed, at.metadata, at.leader_epoch) for at in (offsets[first], offsets[second])
        ]
        client.delete(topic)
        with pytest.raises(GroupError, match="does not exist") as caught:
            client.delete(topic)
        assert Errors.GROUP_ID_NOT_FOUND == caught.value.code


@pytest.mark.classic_protocol
@pytest.mark.usefixtures("form")
def test_a_new_group_reads_from_its_offsets(kafka: Kafka, topic: str, new_consumer: New) -> None:
    """Offsets of a group that does not exist create it, and its first member begins to read there."""
    with GroupClient(kafka.bootstrap_servers) as client:
        client.alter_offsets(topic, dict(zip(tps(topic, 0, 1), (8, 9), strict=True)))
        client.alter_offsets(topic, {})
        found = client.describe(topic)
    assert ("classic", "Empty") == (found.type, found.state)
    read: list[tuple[int, int]] = []
    with new_consumer(topic, group_id=topic, auto_offset_reset="none") as member:
        while len(read) < 3:
            read += [(record.partition, record.offset) for record in member.poll(1.0)]
    assert [(0, 8), (0, 9), (1, 9)] == sorted(read)


@pytest.mark.classic_protocol
def test_a_partition_that_does_not_exist(kafka: Kafka, topic: str) -> None:
    """The error names the partition at once; the offsets of other partitions are committed."""
    missing = TopicPartition(topic, 2)
    with GroupClient(kafka.bootstrap_servers) as client:
        with pytest.raises(StaleMetadataError, match=f"committing the offset of {missing}"):
            client.alter_offsets(topic, {missing: 0, **dict.fromkeys(tps(topic, 0), 5)})
        assert {tps(topic, 0)[0]: 5} == {tp: at.committed for tp, at in client.offsets(client.describe(topic)).items()}


@pytest.mark.consumer_protocol
@pytest.mark.usefixtures("form")
def test_offsets_of_a_share_group(kafka: Kafka, topic: str) -> None:
    """Start offsets are set and deleted while a share group has no members. Errors name the partition or the topic."""
    first, missing = TopicPartition(topic, 0), TopicPartition(topic, 2)
    with GroupClient(kafka.bootstrap_servers) as client:
        client.alter_share_offsets(topic, dict.fromkeys(tps(topic, 0, 1), 8))
        client.alter_share_offsets(topic, {})
        assert ("share", "Empty") == ((found := client.describe(topic)).type, found.state)
        with ShareConsumer(topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as member:
            received = {(record.partition, record.offset) for record in poll_records(member, 4)}
            assert {(0, 8), (0, 9), (1, 8), (1, 9)} == received
            member.commit()
            for change in (
                lambda: client.alter_share_offsets(topic, {first: 0}),
                lambda: client.delete_share_offsets(topic, [topic]),
            ):
                with pytest.raises(GroupError, match="stop the members of the group first") as caught:
                    change()
                assert Errors.NON_EMPTY_GROUP == caught.value.code
        with pytest.raises(StaleMetadataError, match=f"setting the start offset of {missing}"):
            client.alter_share_offsets(topic, {missing: 0, first: 5})
        assert 5 == client.offsets(client.describe(topic))[first].committed
        with pytest.raises(StaleMetadataError, match=f"deleting the start offsets of topic '{topic}-no'"):
            client.delete_share_offsets(topic, [f"{topic}-no", topic])
        assert {} == client.offsets(client.describe(topic))
        client.delete(topic)
        with pytest.raises(GroupError, match="does not exist") as caught:
            client.delete_share_offsets(topic, [topic])
        assert Errors.GROUP_ID_NOT_FOUND == caught.value.code


# --- the command ------------------------------------------------------------------------------------------------

BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def timed(kafka: Kafka, topic_name: str) -> str:
    """A topic of two partitions with ten records each, one per second; a group of its name has commits 5 and 8.

    The first two records of the second partition were deleted.
    """
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        dates = [BEGIN_MS + number * 1000 for number in range(10)]
        kafka.produce(topic_name, numbered(10), partition=partition, timestamps=dates)
    kafka.delete_records(topic_name, {1: 2})
    with GroupClient(kafka.bootstrap_servers) as client:
        client.alter_offsets(topic_name, dict(zip(tps(topic_name, 0, 1), (5, 8), strict=True)))
    return topic_name


class Command:
    """Runs `kconsumer groups` in this process."""

    def __init__(self, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers = kafka.bootstrap_servers
        self._capsys = capsys

    def run(self, action: str, *arguments: str) -> tuple[int, str, str]:
        """Returns exit code, stdout and stderr."""
        code = cli.main(["groups", action, *arguments, "-b", self._servers])
        out, err = self._capsys.readouterr()
        return code, out, err

    def reset(self, group: str, *arguments: str) -> list[tuple[int, int]]:
        """Returns partition and new offset of each row of `reset --json`."""
        code, out, err = self.run("reset", group, "--json", *arguments)
        assert 0 == code, err
        rows = [json.loads(line) for line in out.splitlines()]
        return [(row["partition"], row["new"]) for row in rows]

    def committed(self, group: str) -> list[int | None]:
        """Returns the committed offset of each partition."""
        return [json.loads(line)["committed"] for line in self.run("offsets", group, "--json")[1].splitlines()]


@pytest.fixture
def command(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command against the broker."""
    return Command(kafka, capsys)


@pytest.mark.classic_protocol
def test_a_reset_is_shown_and_then_done(command: Command, timed: str) -> None:
    """Without --execute nothing is changed, and stderr says so; with it the offsets that were shown are committed."""
    code, out, err = command.run("reset", timed, "--to", "earliest")
    table = [line.split() for line in out.splitlines()]
    head = ["TOPIC", "PARTITION", "COMMITTED", "NEW", "CHANGE", "START", "END", "LAG"]
    rows = [[timed, "0", "5", "0", "-5", "0", "10", "10"], [timed, "1", "8", "2", "-6", "2", "10", "8"]]
    assert (0, [head, *rows]) == (code, table)
    assert (
        f"kconsumer: nothing was changed; add --execute to set the offsets of 2 partitions of group {timed!r}\n" == err
    )
    assert [5, 8] == command.committed(timed)
    code, shown, err = command.run("reset", timed, "--to", "earliest", "--execute")
    assert (0, out, f"kconsumer: the offsets of 2 partitions of group {timed!r} were set\n") == (code, shown, err)
    assert [0, 2] == command.committed(timed)


@pytest.mark.classic_protocol
@pytest.mark.parametrize(
    ("arguments", "expected", "note"),
    [
        (["--to", "latest"], [(0, 10), (1, 10)], ""),
        (["--to", "6"], [(0, 6), (1, 6)], ""),
        (["--to", "1"], [(0, 1), (1, 2)], "-1: 1 is before the first offset, 2, which is used instead"),
        (["--to", "99"], [(0, 10), (1, 10)], "-0: 99 is after the end, 10, which is used instead"),
        (["--to", f"@{BEGIN_MS + 3500}"], [(0, 4), (1, 4)], ""),
        (["--to", "@2023-11-14T22:13:23+00:00"], [(0, 3), (1, 3)], ""),
        (["--to", f"@{BEGIN_MS + 60_000}"], [(0, 10), (1, 10)], ""),
        (["--to", "-1h"], [(0, 10), (1, 10)], ""),
        (["--shift", "-3"], [(0, 2), (1, 5)], ""),
        (["--shift", "+4"], [(0, 9), (1, 10)], "-1: 12 is after the end, 10, which is used instead"),
        (["--shift", "-3", "--topic", "{topic}:1"], [(1, 5)], ""),
        (["--to", "7", "--topic", "{topic}:0-1"], [(0, 7), (1, 7)], ""),
    ],
    ids=lambda value: value[1] if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_positions_of_a_reset(
    command: Command, timed: str, arguments: list[str], expected: list[tuple[int, int]], note: str
) -> None:
    """Each kind of position gives the offsets that Kafka's tool gives; one outside the log is moved into it."""
    arguments = [text.replace("{topic}", timed) for text in arguments]
    assert expected == command.reset(timed, *arguments)
    assert note in command.run("reset", timed, *arguments)[2]


@pytest.mark.classic_protocol
def test_resets_that_are_refused(command: Command, timed: str) -> None:
    """A missing topic, partition or commit is an error that names it; a group that does not exist needs --topic."""
    for arguments, reason in (
        ((timed, "--to", "earliest", "--topic", f"{timed}-no"), f"topic '{timed}-no' does not exist on "),
        ((timed, "--to", "earliest", "--topic", f"{timed}:2"), f"topic {timed!r} has no partition 2; it has 0 to 1"),
        ((f"{timed}-new", "--to", "earliest"), f"group '{timed}-new' has no committed offsets; name topics"),
        ((f"{timed}-new", "--shift", "1", "--topic", timed), f"--shift: {timed}-0 has no committed offset that"),
    ):
        code, out, err = command.run("reset", *arguments)
        assert (1, "", 1) == (code, out, err.count("\n"))
        assert err.startswith(f"kconsumer: {reason}")
    assert [(0, 0), (1, 2)] == command.reset(f"{timed}-new", "--to", "earliest", "--topic", timed, "--execute")
    assert [0, 2] == command.committed(f"{timed}-new")


def test_a_group_with_members_is_refused(command: Command, timed: str, new_consumer: New) -> None:
    """While the group has a member, reset and delete are errors that say so; afterwards the group is deleted."""
    with new_consumer(timed, group_id=timed, enable_auto_commit=False) as member:
        poll_until([member], lambda: len(member.assignment()) == 2)
        for arguments in (["--to", "earliest"], ["--to", "earliest", "--execute"]):
            code, out, err = command.run("reset", timed, *arguments)
            refused = f"kconsumer: group {timed!r} is not empty: its state is Stable, and it has 1 member; offsets can "
            assert (1, "", True) == (code, out, err.startswith(refused))
        absent = f"{timed}-absent"
        code, out, err = command.run("delete", timed, absent)
        expected = (
            f"kconsumer: group {timed!r} has members; stop them first\nkconsumer: group {absent!r} does not exist\n"
        )
        assert (1, "", expected) == (code, out, err)
        assert [5, 8] == command.committed(timed)
    assert (1, f"group {timed!r} was deleted\n", f"kconsumer: group {absent!r} does not exist\n") == command.run(
        "delete", absent, timed
    )
    assert 1 == command.run("offsets", timed)[0]


@pytest.mark.classic_protocol
def test_resets_are_as_java_does_them(command: Command, kafka: Kafka, timed: str) -> None:
    """Java's tool shows the same new offsets, commits them, and refuses and deletes the same groups."""
    servers, of_topic = kafka.bootstrap_servers, ["--group", timed, "--topic", timed]

    def java(*arguments: str) -> str:
        """Returns what Java's tool prints."""
        done = subprocess.run(tool(GROUPS, servers, *arguments), capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    for theirs, ours in (
        (["--to-earliest"], ["--to", "earliest"]),
        (["--to-offset", "1"], ["--to", "1"]),
        (["--to-datetime", "2023-11-14T22:13:23.500"], ["--to", "@2023-11-14T22:13:23.500"]),
        (["--by-duration", "PT1H"], ["--to", "-1h"]),
        (["--shift-by", "-4"], ["--shift", "-4"]),
    ):
        shown = re.findall(rf"{timed} +{timed} +(\d+) +(\d+)", java("--reset-offsets", *of_topic, *theirs, "--dry-run"))
        expected = sorted((int(partition), int(offset)) for partition, offset in shown)
        assert expected == command.reset(timed, *ours), ours
    assert [(0, 2), (1, 5)] == command.reset(timed, "--shift", "-3", "--execute")
    rows = ask(GROUPS, servers, "--describe", "--offsets", "--group", timed)
    assert {"0": "2", "1": "5"} == {row["PARTITION"]: row["CURRENT-OFFSET"] for row in rows}
    assert 0 == command.run("delete", timed)[0]
    assert "GroupIdNotFoundException" in java("--delete", "--group", timed)


@pytest.mark.consumer_protocol
def test_share_resets_are_as_java_does_them(command: Command, kafka: Kafka, timed: str) -> None:
    """Java's tool shows the same new offsets of a share group, and finds those that were set, and no deleted ones."""
    servers, group = kafka.bootstrap_servers, f"{timed}-share"
    of_topic = ["--group", group, "--topic", timed]
    with GroupClient(servers) as client:
        client.alter_share_offsets(group, dict.fromkeys(tps(timed, 0, 1), 7))
    for theirs, ours in (
        (["--to-earliest"], ["--to", "earliest"]),
        (["--to-datetime", "2023-11-14T22:13:23.500"], ["--to", "@2023-11-14T22:13:23.500"]),
    ):
        shown = ask(SHARE_GROUPS, servers, "--reset-offsets", *of_topic, *theirs, "--dry-run")
        expected = sorted((int(row["PARTITION"]), int(row["NEW-OFFSET"])) for row in shown)
        assert expected == command.reset(group, *ours), ours
    command.reset(group, "--to", "latest", "--execute")
    rows = ask(SHARE_GROUPS, servers, "--describe", "--offsets", "--group", group)
    assert {"0": "10", "1": "10"} == {row["PARTITION"]: row["START-OFFSET"] for row in rows}
    assert 0 == command.run("delete-offsets", group, "--topic", timed, "--execute")[0]
    assert [] == ask(SHARE_GROUPS, servers, "--describe", "--offsets", "--group", group)
