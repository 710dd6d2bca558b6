"""One Fetch request: what it asks, and what must be remembered of it to read the response.

Decides the limits of a request. Which partitions it names is the session's business (`session.py`).
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
    """One Fetch request under way, as the session stood when it was made. `topic_names`: the ids in it, by which the
    response is read; `full`: whether it named all its partitions; `max_bytes` were asked for, and `reserved` bytes of
    memory kept free for it.
    """

    broker: BrokerFetchState
    max_bytes: int
    reserved: int
    sent_at: float
    full: bool
    requested: Mapping[TopicPartition, RequestedPartition]
    topic_names: Mapping[bytes, str]

    @property
    def node(self) -> Node:
        """The broker it went to."""
        return self.broker.node


def build_fetch(
    config: FetchConfig,
    target: BrokerFetchState,
    session: SessionRequest,
    max_bytes: int,
    reserved: int,
    now: float,
    *,
    max_wait_ms: int | None = None,
) -> tuple[InFlightFetch, FetchRequest]:
    """Ask the broker for what follows its chains, `max_bytes` at most of all together."""
    full = session.epoch <= 0
    flight = InFlightFetch(target, max_bytes, reserved, now, full, target.session.requested, target.session.names)
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
