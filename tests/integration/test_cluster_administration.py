"""Offsets at special times, and subscriptions for metrics of clients: functions and commands."""

from __future__ import annotations

import json

import pytest

from kconsumer import cli, cluster, groups
from kconsumer.errors import BrokerError
from kconsumer.groups import GroupClient
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, tps
from support.harnesses.threads import eventually
from support.members.java_groups import CLIENT_METRICS, GET_OFFSETS, TRANSACTIONS, print_of

METRICS = "org.apache.kafka.consumer."
SETTINGS = {"interval.ms": "10000", "match": "client_id=billing", "metrics": METRICS}


def run(kafka: Kafka, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    """Runs `kconsumer cluster … --json`. Returns exit code, objects and stderr."""
    code = cli.main(["cluster", *arguments, "--json", "-b", kafka.bootstrap_servers])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic with three records, of which the second is the newest, and a partition without records."""
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, numbered(3), partition=0, timestamps=[1_700_000_000_000 + n for n in (0, 9, 5)])
    return topic_name


@pytest.mark.usefixtures("form")
def test_offsets_at_special_times(kafka: Kafka, topic: str) -> None:
    """Each special time finds its record; one without a record is None."""
    first, second = tps(topic, 0, 1)
    expected: dict[str | int, tuple[int | None, int | None]] = {
        "earliest": (0, 0),
        "latest": (3, 0),
        "max-timestamp": (1, None),
        "earliest-local": (0, 0),
        "latest-tiered": (None, None),
        1_700_000_000_001: (1, None),
    }
    with GroupClient(kafka.bootstrap_servers) as client:
        for at, offsets in expected.items():
            found = client.partition_offsets([topic], at)
            assert offsets == tuple(row and row.offset for row in (found[first], found[second])), at
        newest = client.partition_offsets([first], "max-timestamp")[first]
        assert newest is not None
        assert 1_700_000_000_009 == newest.timestamp
        with pytest.raises(ValueError, match="at is one of latest, earliest"):
            client.partition_offsets([first], "oldest")


@pytest.mark.usefixtures("form")
def test_subscriptions(kafka: Kafka, topic_name: str) -> None:
    """A subscription is created, described, changed and deleted. A bad value changes nothing."""
    with GroupClient(kafka.bootstrap_servers) as client:

        def becomes(expected: dict[str, str] | None) -> None:
            eventually(lambda: client.client_metrics().get(topic_name) == expected, f"subscription {expected}")

        becomes(None)
        client.alter_client_metrics(topic_name, SETTINGS)
        becomes(SETTINGS)
        client.alter_client_metrics(topic_name, {"interval.ms": 20_000})
        with pytest.raises(BrokerError, match=f"settings of client metrics '{topic_name}'"):
            client.alter_client_metrics(topic_name, {"interval.ms": 1})
        becomes({**SETTINGS, "interval.ms": "20000"})
        client.delete_client_metrics(topic_name)
        becomes(None)


def test_commands(kafka: Kafka, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands show what the functions return. A change needs --execute."""
    code, rows, _ = run(kafka, capsys, "offsets", f"{topic}:0", "--at", "max-timestamp")
    assert (0, [{"topic": topic, "partition": 0, "offset": 1, "timestamp": 1_700_000_000_009}]) == (code, rows)
    assert [3, 0] == [row["offset"] for row in run(kafka, capsys, "offsets", topic)[1]]
    assert 2 == run(kafka, capsys, "offsets", topic, "--at", "17")[0]
    change = "client-metrics", topic, "--set", f"metrics={METRICS}"
    for execute in ((), ("--execute",)):
        code, (row,), err = run(kafka, capsys, *change, *execute)
        assert (0, {"subscription": topic, "name": "metrics", "new": METRICS}) == (
            code,
            {key: row[key] for key in ("subscription", "name", "new")},
        )
        assert ("add --execute" in err) != bool(execute)
        assert bool(execute) == (topic in groups.client_metrics(kafka.bootstrap_servers))
    _, rows, _ = run(kafka, capsys, "client-metrics", topic)
    assert METRICS in [row["value"] for row in rows if row["name"] == "metrics"]
    assert 0 == run(kafka, capsys, "client-metrics", topic, "--delete", "--execute")[0]
    assert 1 == run(kafka, capsys, "client-metrics", topic, "--delete")[0]
    assert 2 == run(kafka, capsys, "client-metrics", "--delete")[0]


def test_as_javas_tools_say(kafka: Kafka, topic: str) -> None:
    """Java's tools show the same subscription, offsets, producers with open transactions, and brokers."""
    servers = kafka.bootstrap_servers
    groups.alter_client_metrics(topic, SETTINGS, servers)
    described = print_of(CLIENT_METRICS, servers, "--describe", "--name", topic)
    for name, value in SETTINGS.items():
        assert f"{name}={value}" in described
    groups.delete_client_metrics(topic, servers)
    assert topic not in print_of(CLIENT_METRICS, servers, "--list")
    offsets = print_of(GET_OFFSETS, servers, "--topic", topic, "--time", "max-timestamp").split()
    ours = cluster.offsets([topic], servers, "max-timestamp")
    assert sorted(offsets) == sorted(f"{tp.topic}:{tp.partition}:{at.offset}" for tp, at in ours.items() if at)
    producer = kafka.producer({"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(30)
    (found,) = cluster.stuck_transactions([topic], servers)
    head, *rows = print_of(
        TRANSACTIONS, servers, "describe-producers", "--topic", topic, "--partition", "0"
    ).splitlines()
    java = dict(
        zip(head.split("\t"), next(row for row in rows if str(found.producer_id) in row).split("\t"), strict=True)
    )
    java = {key.strip(): value.strip() for key, value in java.items()}
    assert [str(found.producer_id), str(found.producer_epoch), str(found.start_offset)] == [
        java[key] for key in ("ProducerId", "ProducerEpoch", "CurrentTransactionStartOffset")
    ]
    described = print_of(TRANSACTIONS, servers, "describe", "--transactional-id", topic)
    assert found.coordinator is not None
    assert {topic, str(found.coordinator.id), str(found.state)} <= set(described.split())
    producer.abort_transaction(30)
    (broker,) = cluster.describe(servers).brokers
    assert servers == f"{broker.host}:{broker.port}"
