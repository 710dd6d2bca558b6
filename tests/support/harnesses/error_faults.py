"""The faults that responses to a consumer may have, and how many requests may follow them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kconsumer.coordinator import error_actions as group_tables
from kconsumer.coordinator.consumer_protocol.heartbeat import HEARTBEAT_ACTIONS
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    TimeoutError,
    UnsupportedVersionError,
)
from kconsumer.fetching import error_actions as fetch_tables
from kconsumer.offsets import error_actions as offset_tables
from kconsumer.share import error_actions as share_tables
from support.harnesses.error_codes import codes_for, name_of
from support.harnesses.simulation import Fault, Simulation

RETRY_BACKOFF_MS = 100
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"group_protocol": "classic"},
    "consumer": {"group_protocol": "consumer"},
    "assigned": {"subscribe": False},
}
# Codes of topics and partitions in metadata, for which there is no table.
METADATA = (3, 5, 9, 17, 29, 38, 72)
TABLES: dict[str, list[Mapping[int, Any]]] = {
    "Metadata": [dict.fromkeys(METADATA)],
    "FindCoordinator": [group_tables.FIND_COORDINATOR_ACTIONS],
    "JoinGroup": [group_tables.JOIN_ACTIONS],
    "SyncGroup": [group_tables.SYNC_ACTIONS],
    "Heartbeat": [group_tables.HEARTBEAT_ACTIONS],
    "ConsumerGroupHeartbeat": [HEARTBEAT_ACTIONS],
    "OffsetCommit": [group_tables.COMMIT_ACTIONS, group_tables.CONSUMER_COMMIT_ACTIONS],
    "OffsetFetch": [
        group_tables.OFFSET_FETCH_ACTIONS,
        group_tables.OFFSET_FETCH_GROUP_ACTIONS,
        group_tables.CONSUMER_OFFSET_FETCH_ACTIONS,
        group_tables.CONSUMER_OFFSET_FETCH_GROUP_ACTIONS,
    ],
    "Fetch": [fetch_tables.ERROR_ACTIONS],
    "ListOffsets": [offset_tables.LIST_OFFSETS_ACTIONS],
    "OffsetForLeaderEpoch": [offset_tables.LEADER_EPOCH_ACTIONS],
    "ShareGroupHeartbeat": [share_tables.HEARTBEAT_ACTIONS],
    "ShareFetch": [share_tables.SESSION_ACTIONS, share_tables.FETCH_ACTIONS],
}
# Instead of a response: a lost connection, a timeout, a failed authentication, no common version, bytes that cannot
# be parsed.
ERRORS: tuple[KafkaError, ...] = (
    BrokerConnectionError("the broker closed the connection"),
    TimeoutError("no response in time"),
    AuthenticationError("the password is wrong"),
    UnsupportedVersionError("no common version"),
    ProtocolError("garbage"),
)
# The consumer and the simulated user both send these requests, Metadata in two ways; each has its own backoff.
SENDERS = {"Metadata": 3, "OffsetFetch": 2, "ListOffsets": 2}


def faults(api: str, depths: set[int]) -> Iterator[Fault]:
    """Yield the faults that responses of an API may have."""
    codes = codes_for(name_of(code) for table in TABLES.get(api, []) for code in table if code)
    for depth in sorted(depths):
        for code in codes:
            yield Fault(api, depth, code)
    for error in ERRORS:
        yield Fault(api, error=error)


def complaints(
    fault: Fault, simulation: Simulation, brokers: int = 1, *, growing: bool = True, at_once: int = 0
) -> Iterator[str]:
    """Returns where more requests were sent to this many brokers than retries with a backoff allow.

    `growing`: the backoff grows with each failure. `at_once`: how many requests of the first second need no backoff.
    """
    per_second = 1000 // RETRY_BACKOFF_MS
    about = f"{fault.error!r}" if fault.error is not None else f"{name_of(fault.code)} at depth {fault.depth}"
    for second in range(3):
        for api, count in simulation.requests(second).items():
            # In the third second a backoff is 0.8 s or more; some managers begin with the first one after a success.
            limit = brokers * SENDERS.get(api, 1) * (3 if growing and second == 2 and api == fault.api else per_second)
            limit += at_once if second == 0 else 0
            if count > limit:
                yield f"{about}: {count} {api} in second {second}, {limit} allowed"
        if simulation.rounds[second] > 100:
            yield f"{about}: {simulation.rounds[second]} rounds in second {second}"
