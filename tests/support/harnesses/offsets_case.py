"""A `ResetManager` with its surroundings, and ListOffsets requests and responses in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kconsumer._internal.managers import PollResult, UnsentRequest
from kconsumer.schema.offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from kconsumer.state.partition import FetchPosition
from kconsumer.testing.clock import VirtualClock
from kconsumer.types import OffsetReset
from support.harnesses.manager_driver import ManagerCase, config, led_by, respond, tp, tps
from support.harnesses.wiring import make_components

WALL_MS = 1_700_000_000_000


class OffsetsCase(ManagerCase):
    """A manager over partitions that await a reset, with known leaders if no others are given."""

    def __init__(
        self,
        *names: str,
        leaders: Mapping[str, int] | None = None,
        reset: OffsetReset = OffsetReset.LATEST,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock(wall_ms=WALL_MS)
        components = make_components(config(auto_offset_reset=reset, **options), clock=self.clock)
        self.cluster, self.subscription = components.cluster, components.subscription
        self.assignment, self.positions = components.assignment, components.positions
        self.metadata, self.manager = components.metadata, components.offsets
        self.subscription.assign(tps(*names))
        self.lead(dict.fromkeys(names, 1) if leaders is None else leaders)
        if reset != OffsetReset.NONE:
            self.positions.reset_initializing()

    def lead(self, leaders: Mapping[str, int], epoch: int = 3) -> None:
        self.cluster.update(led_by(leaders, epoch), 12, full=True)

    def asks(self, now: float) -> list[UnsentRequest]:
        result: PollResult = self.manager.poll(now)
        return result.requests

    def wants_metadata(self, now: float = 1000.0) -> bool:
        """Returns whether metadata would be requested."""
        return bool(self.metadata.poll(now).requests)

    def position(self, name: str) -> FetchPosition | None:
        return self.assignment.get(tp(name)).position

    def settle_metadata(self, now: float = 0.0) -> None:
        """Respond to the metadata manager's own first update."""
        leaders = {}
        for partition in self.assignment.assigned():
            node = self.cluster.leader(partition).leader
            assert node is not None
            leaders[str(partition)] = node.id
        respond(self.metadata.poll(now).requests[0], led_by(leaders, 3), now)


def rows(request: UnsentRequest) -> dict[str, tuple[int, int]]:
    """Returns the rows of a request: partition -> (timestamp, leader epoch)."""
    return {
        f"{t.name}-{row.partition_index}": (row.timestamp, row.current_leader_epoch)
        for t in request.message.topics
        for row in t.partitions
    }


def offsets(found: Mapping[str, Any]) -> Any:
    """Returns a response: partition -> offset, or (offset, timestamp, epoch), or {"error": code}."""
    topics: dict[str, list[Any]] = {}
    for name, value in found.items():
        partition = tp(name)
        if isinstance(value, dict):
            row = ListOffsetsPartitionResponse(partition_index=partition.partition, error_code=value["error"])
        else:
            offset, timestamp, epoch = value if isinstance(value, tuple) else (value, -1, -1)
            row = ListOffsetsPartitionResponse(
                partition_index=partition.partition, offset=offset, timestamp=timestamp, leader_epoch=epoch
            )
        topics.setdefault(partition.topic, []).append(row)
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=listed) for name, listed in topics.items()]
    )
