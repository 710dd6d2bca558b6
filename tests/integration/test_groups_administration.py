"""Administration of groups: offsets of a topic are deleted, members removed, and settings changed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kconsumer import Consumer, cli
from kconsumer._common.error_codes import Errors
from kconsumer.errors import BrokerError, GroupError, StaleMetadataError
from kconsumer.groups import GroupClient
from support.brokers.kafka import Kafka
from support.harnesses.polling import poll_until, tps
from support.members.java_groups import GROUPS, ask

New = Callable[..., Consumer]
EARLIEST = "share.auto.offset.reset=earliest"


def run(kafka: Kafka, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    """Runs `kconsumer groups … --json`. Returns exit code, objects and stderr."""
    code = cli.main(["groups", *arguments, "--json", "-b", kafka.bootstrap_servers])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.usefixtures("form")
def test_offsets_of_a_topic_are_deleted(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Offsets of partitions and topics are deleted, unless a member subscribes to the topic."""
    kafka.create_topic(topic_name, 3)
    first, second, third = tps(topic_name, 0, 1, 2)
    with GroupClient(kafka.bootstrap_servers) as client:
        with pytest.raises(GroupError) as missing:
            client.delete_offsets(topic_name, [first])
        assert Errors.GROUP_ID_NOT_FOUND == missing.value.code
        with new_consumer(topic_name, group_id=topic_name, enable_auto_commit=False) as member:
            poll_until([member], lambda: len(member.assignment()) == 3)
            member.commit({first: 1, second: 2, third: 3})
            with pytest.raises(BrokerError, match="stop the members that subscribe to it first") as caught:
                client.delete_offsets(topic_name, [first])
            assert Errors.GROUP_SUBSCRIBED_TO_TOPIC == caught.value.code
        client.alter_offsets(topic_name, {first: 1})  # keeps the group
        client.delete_offsets(topic_name, [second, (topic_name, 2)])
        assert {first} == set(client.offsets(client.describe(topic_name)))
        with pytest.raises(StaleMetadataError, match=f"topic '{topic_name}-no'"):
            client.delete_offsets(topic_name, [f"{topic_name}-no"])
        with pytest.raises(TypeError, match="not the text"):
            client.delete_offsets(topic_name, topic_name)
        client.delete_offsets(topic_name, [topic_name])
        assert {} == client.offsets(client.describe(topic_name))


@pytest.mark.classic_protocol
@pytest.mark.usefixtures("form")
def test_a_static_member_is_removed(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A static member that was closed keeps its place until it is removed by its instance id, or as a member."""
    kafka.create_topic(topic_name, 1)
    with GroupClient(kafka.bootstrap_servers) as client:
        for as_member in (False, True):
            with new_consumer(topic_name, group_id=topic_name, group_instance_id="one") as member:
                poll_until([member], lambda: bool(member.assignment()))
            (left,) = client.describe(topic_name).members
            assert "one" == left.group_instance_id
            client.remove_members(topic_name, [left if as_member else "one"], "scaled down")
            assert () == client.describe(topic_name).members
        with pytest.raises(GroupError, match="removing member 'two'") as caught:
            client.remove_members(topic_name, ["two"])
        assert Errors.UNKNOWN_MEMBER_ID == caught.value.code


@pytest.mark.consumer_protocol
@pytest.mark.usefixtures("form")
def test_settings_of_a_group(kafka: Kafka, topic_name: str) -> None:
    """Settings are read, set and removed; a bad value changes nothing."""
    with GroupClient(kafka.bootstrap_servers) as client:
        defaults = client.configs(topic_name)
        client.alter_configs(topic_name, {"share.auto.offset.reset": "earliest", "consumer.session.timeout.ms": 50_000})
        changed = {"share.auto.offset.reset": "earliest", "consumer.session.timeout.ms": "50000"}
        assert {**defaults, **changed} == client.configs(topic_name)
        with pytest.raises(BrokerError) as caught:
            client.alter_configs(topic_name, {"share.auto.offset.reset": None, "no.such.setting": 1})
        assert Errors.INVALID_CONFIG == caught.value.code
        client.alter_configs(topic_name, dict.fromkeys(changed))
        assert defaults == client.configs(topic_name)


@pytest.mark.classic_protocol
def test_commands_show_and_then_change(
    kafka: Kafka, topic_name: str, new_consumer: New, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --execute each command shows what it would do and changes nothing."""
    kafka.create_topic(topic_name, 1)
    with new_consumer(topic_name, group_id=topic_name, group_instance_id="one") as member:
        poll_until([member], lambda: bool(member.assignment()))
        member.commit(dict.fromkeys(tps(topic_name, 0), 0))
    for action, expected in (
        (("remove-members", topic_name, "--instance", "one"), {"instance": "one", "partitions": 1}),
        (("delete-offsets", topic_name, "--topic", topic_name), {"partition": 0, "committed": 0}),
        (("configs", topic_name, "--set", EARLIEST), {"name": "share.auto.offset.reset", "new": "earliest"}),
    ):
        for execute in ((), ("--execute",)):
            code, (row,), err = run(kafka, capsys, *action, *execute)
            assert (0, {**row, **expected, "executed": bool(execute)}) == (code, row)
            assert ("nothing was changed; add --execute" in err) != bool(execute)
    assert 1 == run(kafka, capsys, *("remove-members", topic_name, "--instance", "one"))[0]
    assert 1 == run(kafka, capsys, *("delete-offsets", topic_name, "--topic", topic_name))[0]
    _, settings, _ = run(kafka, capsys, "configs", topic_name)
    assert "earliest" in [row["value"] for row in settings if row["name"] == "share.auto.offset.reset"]


@pytest.mark.classic_protocol
def test_javas_tool_finds_the_changes(kafka: Kafka, topic_name: str) -> None:
    """Java's tool finds only the offset that remains."""
    kafka.create_topic(topic_name, 2)
    servers = kafka.bootstrap_servers
    with GroupClient(servers) as client:
        client.alter_offsets(topic_name, dict.fromkeys(tps(topic_name, 0, 1), 0))
        client.delete_offsets(topic_name, tps(topic_name, 1))
    found = ask(GROUPS, servers, "--describe", "--offsets", "--group", topic_name)
    assert ["0"] == [row["PARTITION"] for row in found]
