"""Builds Fetch requests, and stores what is needed to handle the responses.

Decides the wait time and the minimum size of a response. `session.py` decides which partitions a request contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kconsumer.config.option_groups import FetchConfig
from kconsumer.fetching.brokers import BrokerFetchState
from kconsumer.fetching.session import RequestedPartition, SessionRequest
from kconsumer.schema.fetch import FetchRequest
from kconsumer.types import Node, TopicPartition


class InFlightFetch(NamedTuple):
    """A Fetch request in flight, and the session as it was when the request was created."""

    broker: BrokerFetchState
    max_bytes: int  # the limit in the request
    reserved: int  # bytes of memory reserved for the response
    sent_at: float  # ms
    full: bool  # whether it contains all partitions of the session, and not only changed ones
    requested: Mapping[TopicPartition, RequestedPartition]  # all partitions of the session
    topic_names: Mapping[bytes, str]  # by topic id; the response contains only ids
    leader_only: bool  # whether the request has no rack, so that the leader names no read replica

    @property
    def node(self) -> Node:
        """The broker that the request was sent to."""
        return self.broker.node


def build_fetch(
    config: FetchConfig,
    broker: BrokerFetchState,
    session: SessionRequest,
    max_bytes: int,
    reserved: int,
    now: float,
    *,
    max_wait_ms: int | None = None,
) -> tuple[InFlightFetch, FetchRequest]:
    """Returns a Fetch request with the partitions of `session`, and the InFlightFetch that describes it.

    `max_bytes` limits the size of the response, and `reserved` is the number of bytes to reserve for it. `max_wait_ms`
    is used in place of the option `fetch_max_wait_ms`, unless it is None.
    """
    full = session.epoch <= 0
    requested, names, leader_only = broker.session.requested, broker.session.topic_names, bool(broker.leader_only)
    flight = InFlightFetch(broker, max_bytes, reserved, now, full, requested, names, leader_only)
    message = FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(config.read_committed),
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=session.topics,
        forgotten_topics_data=session.forgotten,
        rack_id="" if leader_only else config.client_rack,
    )
    return flight, message
