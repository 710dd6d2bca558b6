"""Faults of a soak: what happens to brokers, members and the connections between them, drawn from a seed.

Decides which faults happen, and when. Only one broker has a fault at a time, and the next fault waits until all
replicas are in sync again, so that the cluster itself loses no acknowledged record. Faults of connections run at the
same time, on a thread of their own.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from confluent_kafka import ElectionType, KafkaException

from support.brokers.kafka import KafkaCluster, KafkaNode
from support.brokers.kafka_admin import wait_until
from support.brokers.proxy import CALM, STALLED, Conditions, Link, Proxy

IN_SYNC_S = 120
TROUBLED_LINK = (
    STALLED,
    Conditions(up_stalled=True),
    Conditions(down_stalled=True),
    Conditions(delay_s=0.2),
    Conditions(trickle=16),
    Conditions(cut_after=30),
    Conditions(cut_after=20_000),
)
TROUBLED_BROKER = (STALLED, Conditions(down_stalled=True), Conditions(delay_s=0.3), Conditions(trickle=200))


class ConnectionFaults:
    """Stalls, delays, slows down and cuts connections at random while `blowing` runs."""

    def __init__(self, proxy: Proxy, ports: list[int], seed: int, happened: Counter[str]) -> None:
        self._proxy, self._ports, self._happened = proxy, ports, happened
        self._random = random.Random(seed)

    @contextmanager
    def blowing(self) -> Iterator[None]:
        """Disturb connections while the block runs. Afterwards all work but for some that stay silent for good."""
        self._proxy.cut(*self._silent())
        done = threading.Event()
        thread = threading.Thread(target=self._run, args=(done,), name="connection faults")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            silent = [link for link in self._silent() if self._random.random() < 0.5]
            self._happened["connections silent for good"] += len(silent)
            self._proxy.calm(but=silent)

    def _silent(self) -> list[Link]:
        return [link for link in self._proxy.links() if link.conditions == STALLED]

    def _run(self, done: threading.Event) -> None:
        while not done.wait(self._random.uniform(0.05, 1.0)):
            draw = self._random.random()
            links = self._proxy.links()
            if draw < 0.15:
                self._disturb_broker(done)
            elif not links:
                continue
            elif draw < 0.4:
                self._happened["connections cut"] += 1
                self._proxy.cut(self._random.choice(links))
            else:
                self._disturb_connection(self._random.choice(links))

    def _disturb_connection(self, link: Link) -> None:
        """Disturb one connection, for a while or until the faults end."""
        conditions = self._random.choice(TROUBLED_LINK)
        self._happened[f"connections {_kind(conditions)}"] += 1
        self._proxy.set_conditions(conditions, link)

    def _disturb_broker(self, done: threading.Event) -> None:
        """Disturb all connections of a broker, and new ones, for a while."""
        port = self._random.choice(self._ports)
        if self._random.random() < 0.2:
            self._happened["brokers refusing"] += 1
            self._proxy.set_climate(CALM, port, refuses=True)
        else:
            conditions = self._random.choice(TROUBLED_BROKER)
            self._happened[f"brokers {_kind(conditions)}"] += 1
            self._proxy.set_climate(conditions, port)
        done.wait(self._random.uniform(0.2, 6.0))
        self._proxy.set_climate(CALM, port)


def _kind(conditions: Conditions) -> str:
    """Returns the name under which a fault is counted."""
    if conditions.cut_after >= 0:
        return "cut"
    if conditions.trickle:
        return "trickling"
    return "delayed" if conditions.delay_s else "stalled"


class BrokerFaults:
    """Kills, freezes and restarts brokers, and moves leadership; one thing at a time."""

    def __init__(
        self, cluster: KafkaCluster, topics: Mapping[str, int], group: str, seed: int, happened: Counter[str]
    ) -> None:
        """`topics`: how many partitions each has."""
        self._cluster, self._topics, self._group, self._happened = cluster, topics, group, happened
        self._random = random.Random(seed)

    def strike(self, log: Callable[[str], None]) -> None:
        """Inject one fault from its beginning to its end; afterwards all replicas are in sync."""
        kinds = (self._kill, self._kill, self._kill, self._freeze, self._freeze, self._restart)
        node = self._cluster.node(wait_until(self._victim, IN_SYNC_S, "a leader to strike"))
        strike = self._random.choice(kinds)
        log(f"{strike.__name__.strip('_')} broker {node.node_id}")
        strike(node)
        wait_until(lambda: all_in_sync(self._cluster), IN_SYNC_S, "all replicas in sync again")
        if self._random.random() < 0.6:
            self._elect_preferred()

    def _victim(self) -> int:
        """Returns the leader of a partition, or the group's coordinator; 0 if there is none at the moment."""
        if self._random.random() < 0.3:
            return max(0, self._cluster.coordinator_of(self._group))
        topic = self._random.choice(list(self._topics))
        return max(0, self._cluster.leader_of(topic, self._random.randrange(self._topics[topic])))

    def _kill(self, node: KafkaNode) -> None:
        self._happened["brokers killed"] += 1
        node.kill()
        time.sleep(self._random.uniform(0, 6))
        node.start()

    def _freeze(self, node: KafkaNode) -> None:
        self._happened["brokers frozen"] += 1
        node.pause()
        try:
            time.sleep(self._random.uniform(0.5, 12))
        finally:
            node.resume()

    def _restart(self, node: KafkaNode) -> None:
        self._happened["brokers restarted"] += 1
        node.restart()

    def _elect_preferred(self) -> None:
        """Move leadership back to where partitions were made, while all brokers run."""
        self._happened["leader elections"] += 1
        with suppress(KafkaException):  # a controller that is moving itself; nothing depends on it
            self._cluster.admin.elect_leaders(ElectionType.PREFERRED).result(30)


def all_in_sync(cluster: KafkaCluster) -> bool:
    """Returns whether every partition has a leader and all of its replicas, also of internal topics, because a
    group's offsets must survive the next broker.
    """
    try:
        described = cluster.metadata()
    except KafkaException:
        return False
    partitions = [p for topic in described.topics.values() for p in topic.partitions.values()]
    return all(len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in partitions)
