"""Share groups when another broker becomes the leader of a partition. Requests are sent without a consumer.

The same requests run on the cluster model and on Kafka (`make integration-fake`, `make integration`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.metadata import FIND_COORDINATOR
from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.scenarios.peers import RealPeer
from support.scenarios.scenario import Run
from support.scenarios.share_groups import configure, enter
from support.scenarios.share_records import ACCEPT, CLOSE, OPEN, RELEASE, acknowledge, fetch, ranges

pytestmark = pytest.mark.consumer_protocol
RELEASE_OF_KAFKA = "4.4"
VERSION = 2


class Requests:
    """Connections to all brokers of a cluster, for one group and one topic with one partition."""

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self._peers: list[RealPeer] = []
        self.runs = {node.node_id: self._run(node.bootstrap) for node in cluster.nodes}

    def _run(self, address: str) -> Run:
        peer = RealPeer(address)
        self._peers.append(peer)
        return Run(peer, RELEASE_OF_KAFKA, f"{self.name}-")

    @property
    def coordinator(self) -> Run:
        """The connection to the coordinator of the group."""
        response = next(iter(self.runs.values())).prepare(FIND_COORDINATOR, 2, key=f"{self.name}-g", key_type=0)
        return self.runs[response.node_id]

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers:
            peer.close()


@pytest.fixture
def requests(kafka_cluster3: KafkaCluster, topic_name: str) -> Iterator[Requests]:
    found = Requests(kafka_cluster3, topic_name)
    yield found
    found.close()


def test_state_survives_a_move_of_the_leader(kafka_cluster3: KafkaCluster, requests: Requests) -> None:
    """A new leader delivers what was acquired from the old one, but not what was accepted.

    Released records have a higher delivery count. Records that were only acquired are delivered as for the first time,
    because acquiring stores nothing. Other brokers name the leader in ShareFetch, but not in ShareAcknowledge.
    """
    cluster, topic = kafka_cluster3, f"{requests.name}-t"
    cluster.create_topic(topic, replication=3)
    cluster.produce(topic, [b"%d" % i for i in range(6)])
    configure(requests.coordinator, share_auto_offset_reset="earliest")
    enter(requests.coordinator, topic)

    old = cluster.leader_of(topic)
    run = requests.runs[old]
    got: list[tuple[int, int, int]] = []
    epoch = OPEN
    while sum(last - first + 1 for first, last, _ in got) < 6:
        got += ranges(fetch(run, VERSION, epoch, topic, max_wait_ms=1000))
        epoch += 1
    assert {1} == {count for _, _, count in got}
    acknowledge(run, VERSION, epoch, topic, (0, 1, [ACCEPT]))
    acknowledge(run, VERSION, epoch + 1, topic, (3, 3, [RELEASE]))

    follower = next(number for number in requests.runs if number != old)
    (row,) = fetch(requests.runs[follower], VERSION, OPEN, topic).responses[0].partitions
    assert (Errors.NOT_LEADER_OR_FOLLOWER, old) == (row.error_code, row.current_leader.leader_id)
    response = acknowledge(requests.runs[follower], VERSION, 1, topic, (2, 2, [ACCEPT]))
    assert Errors.UNKNOWN_TOPIC_OR_PARTITION == response.responses[0].partitions[0].error_code
    fetch(requests.runs[follower], VERSION, CLOSE, None)

    cluster.node(old).kill()
    try:
        wait_until(lambda: cluster.leader_of(topic) not in (old, -1), 60, "another leader")
        new = requests.runs[cluster.leader_of(topic)]
        found: dict[int, int] = {}

        def all_found() -> bool:
            """Returns whether the records that were not accepted have been acquired, after another try."""
            response = fetch(new, VERSION, OPEN, topic, max_wait_ms=500)
            found.update((o, count) for first, last, count in ranges(response) for o in range(first, last + 1))
            return len(found) >= 4

        wait_until(all_found, 60, "records of the new leader")
        assert {2: 1, 3: 2, 4: 1, 5: 1} == found
    finally:
        cluster.node(old).start()
