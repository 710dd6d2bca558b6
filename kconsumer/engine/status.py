"""Reports the status of a consumer's partitions, with the reason why each of them waits. Sends no requests."""

from __future__ import annotations

from operator import itemgetter

from kconsumer.deferred_signals import SIGNALS
from kconsumer.engine.components import Components
from kconsumer.engine.state_dump import summary
from kconsumer.fetching.partition_status import FetchContext, explain
from kconsumer.state.partition import PartitionState
from kconsumer.types import PartitionStatus, TopicPartition


class StatusView:
    """Reads the status of one consumer's partitions. Changes no state."""

    def __init__(self, parts: Components) -> None:
        self._components = parts

    def partition_states(self) -> dict[TopicPartition, PartitionStatus]:
        """Returns the status of each assigned partition."""
        parts = self._components
        now = parts.clock.now()
        with parts.lock:
            return {
                tp: explain(self._context(tp, state, now), read_committed=parts.config.read_committed)
                for tp, state in sorted(parts.subscription.states().items(), key=itemgetter(0))
            }

    def summary(self) -> str:
        """Returns one line with the number of partitions in each state, for `repr`.

        Never blocks, because any thread may call `repr`. If another thread holds the lock, the states are left out.
        """
        parts = self._components
        holds = SIGNALS.hold(parts.end_wait)  # a signal handler must not change the state while it is read
        try:
            SIGNALS.refresh()
            if not parts.lock.acquire(blocking=False):
                return f"{len(parts.subscription.assigned())} partitions, busy in another thread"
            try:
                return "; ".join([summary(self.partition_states().values()), *self._waits()])
            finally:
                parts.lock.release()
        finally:
            if holds:
                SIGNALS.release()

    def _waits(self) -> list[str]:
        """Returns what the managers wait for, for `repr`."""
        parts = self._components
        now = parts.clock.now()
        return [wait.describe(now) for wait in parts.progress.waits()]

    def _context(self, tp: TopicPartition, state: PartitionState, now: float) -> FetchContext:
        parts = self._components
        found = parts.fetch.context(tp, state, now)
        unreachable = "" if found.node is None else parts.client.last_error(str(found.node.id), now)
        coordinator = ""
        if parts.group is not None and parts.group.coordinator.connection_id is None:
            coordinator = f"the coordinator is {parts.group.coordinator.describe()}"
        elif parts.positions.last_error is not None:
            coordinator = str(parts.positions.last_error)
        topic_problem = parts.metadata.problem_with(tp)
        return found._replace(topic_problem=topic_problem, unreachable=unreachable, coordinator=coordinator)
