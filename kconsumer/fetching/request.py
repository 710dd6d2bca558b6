"""One Fetch request: what it asks, and what must be remembered of it to read the response.

Decides the order of partitions in the request and whether topics go by id or by name. Every request is a full one
without a session (KIP-227): id 0, epoch -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kconsumer.config import ConsumerConfig
from kconsumer.fetching.buffer import FetchChain
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.types import Node, TopicPartition

LAST_VERSION_WITH_NAMES = 12


class Asked(NamedTuple):
    """What a request asks of one partition."""

    chain: FetchChain
    offset: int
    leader: LeaderAndEpoch


@dataclass(slots=True)
class Flight:
    """One Fetch request under way. `topic_names`: the ids it used, by which the response is read; `by_id`:
    whether all its topics have one, without which only versions up to 12 may be spoken."""

    node: Node
    max_bytes: int
    sent_at: float
    asked: dict[TopicPartition, Asked] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)
    by_id: bool = True


def build_fetch(
    config: ConsumerConfig, cluster: Cluster, node: Node, chains: Sequence[FetchChain], max_bytes: int, now: float
) -> tuple[Flight, FetchRequest]:
    """Ask `node` for what follows these chains, `max_bytes` at most of all together."""
    flight = Flight(node, max_bytes, now)
    topics = _topics(config, cluster, chains, flight)
    message = FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(config.read_committed),
        session_id=0,
        session_epoch=-1,
        topics=topics,
        rack_id=config.client_rack,
    )
    return flight, message


def _topics(config: ConsumerConfig, cluster: Cluster, chains: Sequence[FetchChain], flight: Flight) -> list[FetchTopic]:
    """The partitions in order, neighbours of one topic together. The order matters: the broker fills the
    response from the front, so those that got nothing last time come first."""
    topics: list[FetchTopic] = []
    partitions: list[FetchPartition] = []
    current = ""
    for chain in chains:
        topic = chain.topic_partition.topic
        if topic != current or not topics:
            current, partitions = topic, []
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                flight.by_id = False
            else:
                flight.topic_names[topic_id] = topic
            topics.append(FetchTopic(topic=topic, topic_id=topic_id or ZERO_UUID, partitions=partitions))
        row = _row(config, chain)
        partitions.append(row)
        flight.asked[chain.topic_partition] = Asked(chain, row.fetch_offset, chain.leader)
    return topics


def _row(config: ConsumerConfig, chain: FetchChain) -> FetchPartition:
    """The partition's part of the request: the last one if it still fits. It is never changed, for an earlier
    request with it may still wait to be sent."""
    epoch = -1 if chain.leader.epoch is None else chain.leader.epoch
    row = chain.row
    if row is None or row.fetch_offset != chain.next_offset or row.current_leader_epoch != epoch:
        assert chain.next_offset is not None  # the manager leaves such chains out
        row = chain.row = FetchPartition(
            partition=chain.topic_partition.partition,
            current_leader_epoch=epoch,
            fetch_offset=chain.next_offset,
            partition_max_bytes=config.max_partition_fetch_bytes,
        )
    return row
