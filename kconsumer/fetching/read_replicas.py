"""Decides what follows when a leader names another replica to read from (KIP-392), and when that replica gives nothing.

A leader that names a replica sends no records. If the replica sends none either, because it refuses the offset or
cannot be reached, the two would be asked in turn without end. So after one failed redirect the partition is read from
its leader for as long as a redirect is valid (`metadata_max_age_ms`). This ends early if the partition has another
leader, or if metadata show that the replica is offline: the leader names it again only when it is back. If the replica
has not responded, the first such pauses are shorter, because it may have been restarted. Meanwhile the requests to the
leader contain no rack, because a leader that knows the rack of the consumer sends no records. (Java asks the two in
turn, for ever.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.cycle import RequestedPartition
from kconsumer.fetching.brokers import MetadataRequester
from kconsumer.fetching.error_actions import ACCEPT, RAISE, RETRY, FetchErrorAction, fetch_error
from kconsumer.schema.fetch import FetchPartitionData
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.types import Node

_log = get_logger(__name__)

MAX_NAMED = 5  # partitions that a warning names
FIRST_PAUSE_MS = 10_000.0
"""For how long the leader is asked not to name a replica that could not be reached. Then twice as long, and so on."""
MAX_RETRIES = 3  # retries of a fetch that a replica refuses, if the error is one that may end soon


class Failed(NamedTuple):
    """A requested partition without records, and the reason."""

    requested: RequestedPartition
    reason: str


class ReadReplicas:
    """Sets and clears the replicas that partitions are read from."""

    def __init__(self, lease_ms: float, cluster: Cluster, metadata: MetadataRequester) -> None:
        self._lease_ms = lease_ms
        self._cluster = cluster
        self._metadata = metadata

    def follow(self, node: Node, requested: RequestedPartition, replica: int, now: float) -> str:
        """Handle a response without records in which the leader `node` names a replica.

        Returns "" if the partition may be fetched from that replica at once, else the reason for a backoff.
        """
        tp, state = requested.chain.topic_partition, requested.chain.state
        if replica == node.id:
            return f"broker {replica} names itself as read replica and sends no records"
        if self._cluster.node_if_online(tp, replica) is None:
            self._metadata.request_update()
            return f"the leader prefers broker {replica} as read replica, which is unknown or not online"
        state.prefer_replica(replica, now + self._lease_ms, requested.offset)
        refusal = state.replica.refusal(now)
        return "" if refusal is None else f"the leader names broker {replica} as read replica again; {refusal}"

    def give_up(self, node: Node, failed: Iterable[Failed], now: float, *, lost: bool = False) -> None:
        """Read partitions from their leaders, because the replica `node` gave no records for the requested offsets.

        `lost` is True if it has not responded. It may have been restarted, so the leader may name it again soon.
        """
        first_ms = min(FIRST_PAUSE_MS, self._lease_ms) if lost else None
        refused = [
            entry
            for entry in failed
            if not is_leader(node, entry.requested.leader)
            and entry.requested.chain.state.refuse_replica(
                entry.requested.offset, now, self._lease_ms, entry.reason, first_ms
            )
        ]
        if refused:
            names = [str(entry.requested.chain.topic_partition) for entry in refused]
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            _log.warning(
                "reading %s%s from the leader for the next %.0f s: %s is the preferred read replica, but gave no"
                " records: %s",
                ", ".join(names[:MAX_NAMED]),
                more,
                (self._lease_ms if first_ms is None else first_ms) / 1000,
                node,
                refused[0].reason,
            )


def refusal_of(action: FetchErrorAction, requested: RequestedPartition, data: FetchPartitionData) -> str:
    """Returns why a follower has not served a partition, or "" if it has, or if it may still do so after a backoff."""
    if action is ACCEPT:
        return "it names another read replica" if data.preferred_read_replica >= 0 and not data.records else ""
    if action is RAISE or (action is RETRY and requested.chain.failures < MAX_RETRIES):
        return ""
    return str(fetch_error(requested.chain.topic_partition, requested.offset, data.error_code))


def is_leader(node: Node, leader: LeaderAndEpoch) -> bool:
    return leader.leader is not None and leader.leader.id == node.id
