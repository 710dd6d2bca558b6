"""Builds a Fetch request, and keeps what is needed to handle its response.

Decides the limits of a request. The session decides which partitions it names (`session.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kconsumer.config.option_groups import FetchConfig
from kconsumer.fetching.brokers import BrokerFetchState
from kconsumer.fetching.session import RequestedPartition, SessionRequest
from kconsumer.schema.fetch import FetchRequest
from kconsumer.types import Node, TopicPartition


@dataclass(slots=True, frozen=True, eq=False)
class InFlightFetch:
    """A Fetch request in flight, and the session as it was when the request was created."""

    broker: BrokerFetchState
    max_bytes: int  # requested at most
    reserved: int  # bytes of memory kept free for the response
    sent_at: float
    full: bool  # whether it named all its partitions
    requested: Mapping[TopicPartition, RequestedPartition]
    topic_names: Mapping[bytes, str]  # by topic id; the response has ids only

    @property
    def node(self) -> Node:
        """The broker that it was sent to."""
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
    """Build a request for what follows the broker's chains, with at most `max_bytes` in total."""
    full = session.epoch <= 0
    flight = InFlightFetch(broker, max_bytes, reserved, now, full, broker.session.requested, broker.session.topic_names)
    message = FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(config.read_committed),
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=session.topics,
        forgotten_topics_data=session.forgotten,
        rack_id=config.client_rack,
    )
    return flight, message
