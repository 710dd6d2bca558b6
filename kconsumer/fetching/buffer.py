"""Buffers fetched data until a poll returns it (Java `FetchBuffer`).

Decides which fetch is read next, and whether a response continues the buffered data of its partition. It does not
decide what to fetch (`manager.py`), what may be returned (`collector.py`) or how much fits (`memory.py`).

The fetches of a partition form a chain: each starts at the offset where the previous one ends. So the next fetch can be
requested while earlier ones wait to be read. After a seek, a reset or a new assignment, the whole chain is dropped, and
another one begins. A response to a request of the dropped chain is ignored. An error is buffered like a fetch, at the
end of its chain, until another response replaces it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from kconsumer._core.cycle import BufferedChain, BufferQueue, CompletedFetch
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, PartitionState
from kconsumer.types import TopicPartition

__all__ = ["CompletedFetch", "FetchBuffer", "FetchChain"]


class FetchChain(BufferedChain):
    """The buffered fetches of one partition. Each fetch starts at the offset where the previous one ends.

    `leader` is the leader whose log is fetched. `position` is the offset of the next record to take, and must equal the
    consumer's position. `next_offset` is the start of the next fetch; None: unknown until data is decoded. `failures`
    counts failed fetches in a row, and `failure` is the reason of the last. `buffered_since` is when the first fetch
    was added to the empty chain (ms). `leader_changed` is True if `follow_leader` must validate the position again,
    and `set_aside` if the partition is paused, so that its fetches are not read.
    """

    __slots__ = ()

    state: PartitionState
    leader: LeaderAndEpoch
    fetches: list[CompletedFetch]

    def holds(self, state: PartitionState, position: FetchPosition) -> bool:
        """Returns True if the chain belongs to this assignment of the partition and continues at this position."""
        return self.state is state and self.position == position.offset

    def mark_leader_changed(self) -> None:
        """Record that the data in this chain comes from an earlier leader of the partition."""
        self.leader_changed = True

    def follow_leader(self, position: FetchPosition) -> None:
        """Continue the chain in the log of the position's leader.

        The position was validated when the leader changed. If it has moved since, over records that the new leader may
        not have, it is validated again (KIP-320).
        """
        self.leader = position.leader
        if self.leader_changed and self.state.has_valid_position:
            self.leader_changed = False
            self.state.validate(position)

    def count_failure(self, reason: str) -> int:
        """Count a failed fetch. Returns the number of failures in a row."""
        self.failures += 1
        self.failure = reason
        return self.failures

    def clear_failures(self) -> None:
        """Reset the number of failures, after a fetch succeeded."""
        self.failures = 0
        self.failure = ""

    @property
    def error(self) -> CompletedFetch | None:
        """The error at the end of the chain, or None."""
        return self.fetches[-1] if self.fetches and self.fetches[-1].is_error else None

    @property
    def size(self) -> int:
        """Bytes of all fetches in the chain. A partially read fetch counts in full."""
        return sum(fetch.size for fetch in self.fetches)

    @property
    def pending_fetches(self) -> int:
        """The number of fetches in the chain, not counting an error at its end."""
        return len(self.fetches) - (self.error is not None)

    def __repr__(self) -> str:
        return (
            f"<FetchChain {self.topic_partition} at {self.position}, {len(self.fetches)} buffered,"
            f" next fetch at {self.next_offset}>"
        )


class FetchBuffer(BufferQueue):
    """The chains of all partitions of a consumer."""

    __slots__ = ()

    chains: dict[TopicPartition, FetchChain]
    paused: dict[TopicPartition, FetchChain]

    def chain(self, tp: TopicPartition, state: PartitionState, position: FetchPosition) -> FetchChain:
        """Returns the partition's chain if it continues at `position`.

        If it does not, or if there is none, replaces it by an empty chain and returns that one.
        """
        chain = self.drop_stale(tp, state, position)
        if chain is None:
            chain = self.chains[tp] = FetchChain(tp, state, position)
        return chain

    def drop_stale(
        self, tp: TopicPartition, state: PartitionState, position: FetchPosition | None
    ) -> FetchChain | None:
        """Drop the partition's chain unless it continues at `position`. Returns the chain if it was kept, else None.

        `position` is None if the partition has no position. The chain is then dropped.
        """
        chain = self.chains.get(tp)
        if chain is not None and (position is None or not chain.holds(state, position)):
            self.drop(chain)
            return None
        return chain

    def retain(self, keep: Callable[[FetchChain], bool]) -> None:
        """Drop all chains for which `keep(chain)` is False."""
        self._forget([chain for chain in self.chains.values() if not keep(chain)])

    def drop_paused(self) -> None:
        """Drop the chain that was set aside last. Its data is fetched again after the user calls `resume`."""
        self._forget([next(reversed(self.paused.values()))])

    def drop(self, chain: FetchChain) -> None:
        """Drop a chain and all its fetches."""
        self._forget([chain])

    def set_aside_paused(self, chain: FetchChain) -> None:
        """Set aside the chain of a paused partition. Its fetches are kept, but not read until `restore_paused`."""
        chain.set_aside = True
        self.paused[chain.topic_partition] = chain
        for fetch in chain.fetches:
            self.dequeue(fetch)
        # If only paused partitions use the memory now, the fetch manager has to drop some of their data.
        self.dirty[chain.topic_partition] = None

    def restore_paused(self) -> None:
        """Queue the fetches of resumed partitions again, in front of all others."""
        for chain in [chain for chain in self.paused.values() if not chain.state.paused]:
            del self.paused[chain.topic_partition]
            chain.set_aside = False
            for fetch in reversed(chain.fetches):
                self.enqueue(fetch)
                self.turns.appendleft(fetch)
        if len(self.turns) > 2 * self.waiting + 100:
            self.turns = deque(dict.fromkeys(fetch for fetch in self.turns if fetch.in_turn_queue))

    def buffered_bytes(self, tp: TopicPartition) -> int:
        """Returns the bytes of one partition's buffered fetches."""
        chain = self.chains.get(tp)
        return 0 if chain is None else chain.size

    def failed_fetch(self, tp: TopicPartition) -> CompletedFetch | None:
        """Returns the partition's oldest fetch if reading it has failed, else None."""
        chain = self.chains.get(tp)
        return chain.fetches[0] if chain is not None and chain.fetches and chain.fetches[0].failure else None

    def failure(self, tp: TopicPartition) -> str:
        """Returns the reason why the partition's oldest fetch cannot be read, such as a corrupt record.

        Returns "" if it can be read.
        """
        fetch = self.failed_fetch(tp)
        return "" if fetch is None else fetch.failure

    def clear(self) -> None:
        """Drop all chains. Responses to fetches in flight will be ignored when they arrive."""
        self._forget(list(self.chains.values()))

    def _forget(self, chains: Iterable[FetchChain]) -> None:
        for chain in chains:
            del self.chains[chain.topic_partition]
            self.paused.pop(chain.topic_partition, None)
            self.dirty[chain.topic_partition] = None
            for fetch in chain.fetches:
                self.finish(fetch)
            chain.fetches.clear()

    def __repr__(self) -> str:
        return (
            f"<FetchBuffer {self.waiting} waiting, {len(self.paused)} paused, {self.buffered} bytes; {self.memory!r}>"
        )
