"""What a consumer can say of itself without asking anybody: why partitions wait, metrics."""

from __future__ import annotations

from operator import itemgetter

from kconsumer.deferred_signals import SIGNALS
from kconsumer.engine.components import Parts
from kconsumer.engine.state_dump import summary
from kconsumer.fetching.partition_status import Situation, outlook
from kconsumer.state.partition import PartitionState
from kconsumer.types import PartitionStatus, TopicPartition


class View:
    """Looks at one consumer's parts, and changes nothing."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def partition_states(self) -> dict[TopicPartition, PartitionStatus]:
        """Each assigned partition explains itself."""
        parts = self._parts
        now = parts.clock.now()
        with parts.lock:
            return {
                tp: outlook(self._situation(tp, state, now), read_committed=parts.config.read_committed)
                for tp, state in sorted(parts.subscription.states().items(), key=itemgetter(0))
            }

    def summary(self) -> str:
        """The partitions in one line; never blocks, for `repr` is called from anywhere."""
        parts = self._parts
        holds = SIGNALS.hold(parts.end_wait)  # a signal handler must not change what is being read here
        try:
            SIGNALS.refresh()
            if not parts.lock.acquire(blocking=False):
                return f"{len(parts.subscription.assigned())} partitions, busy in another thread"
            try:
                return summary(self.partition_states().values())
            finally:
                parts.lock.release()
        finally:
            if holds:
                SIGNALS.release()

    def _situation(self, tp: TopicPartition, state: PartitionState, now: float) -> Situation:
        parts = self._parts
        found = parts.fetch.situation(tp, state, now)
        found.hint = parts.metadata.problem_with(tp)
        if found.broker is not None:
            found.unreachable = parts.client.trouble_with(str(found.broker.id), now)
        if parts.group is not None and parts.group.coordinator.connection is None:
            found.coordinator = f"the coordinator is {parts.group.coordinator.describe()}"
        return found
