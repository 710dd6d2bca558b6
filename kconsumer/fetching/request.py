"""Builds Fetch requests, and stores what is needed to handle the responses.

Decides the wait time and the minimum size of a response. `session.py` decides which partitions a request contains.
"""

from __future__ import annotations

from kconsumer._core.cycle import BrokerFetchState, FetchCycle, InFlightFetch
from kconsumer.config.option_groups import FetchConfig, FetchLimits
from kconsumer.fetching.session import SessionRequest
from kconsumer.schema.fetch import FetchRequest


def build_fetch(
    config: FetchConfig,
    limits: FetchLimits,
    broker: BrokerFetchState,
    session: SessionRequest,
    max_bytes: int,
    reserved: int,
    now: float,
    *,
    max_wait_ms: int | None = None,
    active_brokers: int = 0,
    cycle: FetchCycle | None = None,
) -> tuple[InFlightFetch, FetchRequest]:
    """Returns a Fetch request with the partitions of `session`, and the InFlightFetch that describes it.

    `max_bytes` limits the size of the response, and `reserved` is the number of bytes to reserve for it. `max_wait_ms`
    is used in place of the option `fetch_max_wait_ms`, unless it is None. `cycle` handles ordinary responses.
    """
    full = session.epoch <= 0
    requested, names, leader_only = broker.session.requested, broker.session.topic_names, bool(broker.leader_only)
    flight = InFlightFetch(
        broker, max_bytes, reserved, now, full, requested, names, leader_only, active_brokers, cycle, limits
    )
    message = FetchRequest(
        max_wait_ms=limits.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
        min_bytes=limits.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(config.read_committed),
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=session.topics,
        forgotten_topics_data=session.forgotten,
        rack_id="" if leader_only else config.client_rack,
    )
    return flight, message
