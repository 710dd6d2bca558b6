"""A topic that is deleted and created again while a consumer reads it, in virtual time."""

from __future__ import annotations

import pytest

from kconsumer import TopicPartition
from kconsumer._common.error_codes import Errors
from kconsumer.errors import BrokerError, OffsetOutOfRangeError
from kconsumer.schema.fetch import FETCH
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.faults import Fault, FaultKind
from support.simulation.scheduler import Process
from support.simulation.settings import TOPIC
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import Simulation

TP = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize("policy", ["none", "earliest"])
def test_an_error_between_does_not_make_the_topics_one(policy: str) -> None:
    """After an error of the new topic is raised, no record of it is returned from the offset in the old topic on."""

    def test(simulation: Simulation) -> None:
        reader = simulation.consumer(Process("test"), auto_offset_reset=policy, metadata_max_age_ms=500)
        reader.assign([TP])
        reader.seek(TP, 0)
        append(simulation, TOPIC, [b"old", b"old"])
        while reader.position(TP) < 2:
            reader.poll(0.1)
        cluster.delete_topic(TOPIC)
        cluster.create_topic(TOPIC, 1)
        if policy == "earliest":  # and who may read is only known afterwards
            cluster.faults.add(FETCH, Fault(FaultKind.ERROR, 5, Errors.TOPIC_AUTHORIZATION_FAILED))
        append(simulation, TOPIC, [b"1", b"2", b"3"])
        errors, values, until = 0, [], simulation.now + 20_000
        while simulation.now < until:
            try:
                values += [record.value for record in reader.poll(0.1)]
            except (OffsetOutOfRangeError, BrokerError):
                errors += 1
                simulation.sleep(100)
        assert errors
        if policy == "none":
            reader.seek(TP, 0)
            values += [record.value for record in reader.poll(5)]
        assert [b"1", b"2", b"3"] == values
        reader.close()

    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 1)
    run_simulated(test, cluster)
