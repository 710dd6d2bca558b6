"""Reports the status of a consumer and its partitions, with the reason why each of them waits. Sends no requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.engine.components import Components
from kconsumer.fetching.partition_status import FetchContext, explain
from kconsumer.state.partition import PartitionState
from kconsumer.types import PartitionStatus, TopicPartition

if TYPE_CHECKING:
    from kconsumer._internal.status import ConsumerStatus


class StatusView:
    """Reads the status of one consumer's partitions. Changes no state."""

    def __init__(self, parts: Components) -> None:
        self._components = parts

    def partition_states(self) -> dict[TopicPartition, PartitionStatus]:
        """Returns the status of each assigned partition."""
        parts = self._components
        now = parts.clock.now()
        with parts.lock:
            found = {
                tp: explain(self._context(tp, state, now), read_committed=parts.config.read_committed)
                for tp, state in sorted(parts.assignment.states().items(), key=itemgetter(0))
            }
            delivery = parts.positions.delivery
            if delivery.open:  # the records that the running poll is about to return are not consumed yet
                for tp, position in delivery.before.items():
                    if tp in found:
                        found[tp] = replace(found[tp], position=position.offset)
            return found

    def _context(self, tp: TopicPartition, state: PartitionState, now: float) -> FetchContext:
        """Returns the state of a partition for `explain`. That of a MockConsumer is another one."""
        return self._components.fetch_context(tp, state, now)

    def consumer_status(self, name: str) -> ConsumerStatus:
        """Returns the status of the group, the connections and the partitions of the consumer called `name`."""
        from kconsumer.engine.consumer_status import consumer_status  # imported when used

        with self._components.lock:
            return consumer_status(self._components, name, self.partition_states())

    def summary(self) -> str:
        """Returns one line with the number of partitions in each state, for `repr`.

        Never blocks, because any thread may call `repr`. If another thread holds the lock, the states are left out.
        """
        parts = self._components
        holds = SIGNALS.hold(parts.end_wait)  # a signal handler must not change the state while it is read
        try:
            if not parts.lock.acquire(blocking=False):
                return f"{len(parts.assignment.assigned())} partitions, busy in another thread"
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


def summary(statuses: Iterable[PartitionStatus]) -> str:
    """Returns one line with the numbers of partitions, such as "3 partitions: 2 in flight, 1 paused"."""
    counts = Counter(status.state for status in statuses)
    states = ", ".join(f"{count} {state.value.replace('_', ' ')}" for state, count in sorted(counts.items(), key=_rank))
    total = sum(counts.values())
    return f"{total} partition{'' if total == 1 else 's'}" + (f": {states}" if states else "")


def _rank(item: tuple[object, int]) -> tuple[int, str]:
    return -item[1], str(item[0])
