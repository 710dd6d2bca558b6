"""Errors that occur while an application processes records, in virtual time: what its next polls raise."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer._common.error_codes import Errors
from kconsumer.errors import AuthenticationError, BrokerError, KafkaError
from kconsumer.schema.classic_group import HEARTBEAT
from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT
from kconsumer.schema.metadata import FIND_COORDINATOR
from kconsumer.schema.share_group import SHARE_GROUP_HEARTBEAT
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.faults import Fault, FaultKind, Faults
from kconsumer.testing.cluster.sasl import SaslSettings
from kconsumer.testing.cluster.settings import Settings
from support.simulation.faults import ALL
from support.simulation.scheduler import Process
from support.simulation.settings import GROUP, PASSWORD, TOPIC, USER
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import Simulation

LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": USER,
    "sasl_plain_password": PASSWORD,
}
CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"}
MEMBERS: dict[str, dict[str, Any]] = {
    "classic": CLASSIC,
    "threaded": CLASSIC | {"engine": "threaded"},
    "asyncio": CLASSIC | {"asyncio": True},
    "consumer": {"group_protocol": "consumer", "auto_offset_reset": "earliest"},
    "share": {},
}
HEARTBEATS = {"consumer": CONSUMER_GROUP_HEARTBEAT, "share": SHARE_GROUP_HEARTBEAT}
REFUSED = Errors.GROUP_AUTHORIZATION_FAILED


def first_error(simulation: Simulation, reader: Consumer | ShareConsumer) -> KafkaError | None:
    """Poll for five seconds. Returns the first error."""
    until = simulation.now + 5000
    try:
        while simulation.now < until:
            reader.poll(0.1)
    except KafkaError as error:
        return error
    return None


def refuse(cluster: Cluster, member: str, what: str, count: int) -> None:
    """Let the next heartbeats fail, or the lookups of the coordinator after the next heartbeat."""
    faults, heartbeat = cluster.faults, HEARTBEATS.get(member, HEARTBEAT)
    if what == "heartbeat":
        faults.add(heartbeat, Fault(FaultKind.ERROR, count, REFUSED))
    else:
        faults.add(heartbeat, Fault(FaultKind.ERROR, 1, Errors.NOT_COORDINATOR))
        faults.add(FIND_COORDINATOR, Fault(FaultKind.ERROR, count, REFUSED))


def joined(simulation: Simulation, process: Process, member: str, **options: Any) -> Consumer | ShareConsumer:
    """Returns a member of the group that has read a record."""
    create = simulation.share_consumer if member == "share" else simulation.consumer
    reader = create(process, group_id=GROUP, metadata_max_age_ms=1000, **options | MEMBERS[member])
    reader.subscribe([TOPIC])
    while not reader.poll(0.1):
        append(simulation, TOPIC, [b"value"])
    simulation.sleep(1000)
    return reader


def new_cluster(sasl: SaslSettings | None) -> Cluster:
    """Returns a cluster with frequent heartbeats."""
    settings = Settings(group_consumer_heartbeat_interval_ms=500, group_share_heartbeat_interval_ms=500)
    cluster = Cluster(1, seed=1, settings=settings, sasl=sasl)
    cluster.create_topic(TOPIC, 1)
    return cluster


@pytest.mark.parametrize("over", [True, False], ids=["over", "lasting"])
@pytest.mark.parametrize("what", ["login", "heartbeat", "lookup"])
@pytest.mark.parametrize("member", MEMBERS)
def test_errors_while_records_are_processed(member: str, what: str, over: bool) -> None:
    """If what failed has succeeded before the next poll, nothing is raised. If it fails still, the error is raised."""
    users = {USER: PASSWORD}

    def test(simulation: Simulation) -> None:
        process = Process("test")
        reader = joined(simulation, process, member, **LOGIN)
        if what == "login":
            users[USER] = "another"
            simulation.network.reset(process)
            simulation.network.pump()
        else:
            refuse(cluster, member, what, ALL)
        simulation.sleep(2000)
        if over:
            users[USER], cluster.faults = PASSWORD, Faults(cluster, cluster.fetch)
            simulation.sleep(80_000)
        error = first_error(simulation, reader)
        assert over == (error is None)
        assert over or isinstance(error, AuthenticationError if what == "login" else BrokerError)
        users[USER], cluster.faults = PASSWORD, Faults(cluster, cluster.fetch)
        reader.close()

    cluster = new_cluster(SaslSettings(("PLAIN",), users))
    run_simulated(test, cluster, limit_ms=300_000)


@pytest.mark.parametrize("what", ["heartbeat", "lookup"])
@pytest.mark.parametrize("member", MEMBERS)
def test_an_error_ends_the_wait_of_a_poll(member: str, what: str) -> None:
    """A poll that waits raises an error although what failed would succeed shortly afterwards."""

    def test(simulation: Simulation) -> None:
        reader = joined(simulation, Process("test"), member)
        while reader.poll(0.1):
            pass
        refuse(cluster, member, what, 1)
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            reader.poll(10)
        reader.close()

    cluster = new_cluster(None)
    run_simulated(test, cluster, limit_ms=300_000)
