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
from typing import TYPE_CHECKING

from kconsumer.errors import KafkaError
from kconsumer.fetching.memory import Block, Memory
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, PartitionState
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kconsumer._core.fetch import PartitionFetch
    from kconsumer._core.metric_events import ResponseTally


class CompletedFetch:
    """The part of a Fetch response for one partition.

    It contains one of three things: data, an error code, or the offset at which the leader's log begins to differ from
    the records that were read (`diverging_epoch`).
    """

    __slots__ = (
        "arrived_at",
        "block",
        "chain",
        "corrupt_at",
        "data",
        "decompressed_block",
        "diverging_epoch",
        "error_code",
        "failed_at",
        "failure",
        "fetch_offset",
        "in_turn_queue",
        "record_bytes",
        "records",
        "size",
        "tally",
        "topic_id",
    )

    def __init__(
        self,
        chain: FetchChain,
        fetch_offset: int,
        data: PartitionFetch | None = None,
        *,
        size: int = 0,
        error_code: int = 0,
        diverging_epoch: OffsetAndMetadata | None = None,
        tally: ResponseTally | None = None,
        block: Block | None = None,
        arrived_at: float = 0.0,
        topic_id: bytes | None = None,
    ) -> None:
        self.chain = chain
        self.topic_id = topic_id  # distinguishes topics of the same name
        self.block = block  # the memory that contains its bytes
        self.decompressed_block: Block | None = None  # the memory of the batch decompressed last
        self.arrived_at = arrived_at  # ms
        self.fetch_offset = fetch_offset
        self.data = data
        self.size = size  # bytes received
        self.error_code = error_code
        self.diverging_epoch = diverging_epoch
        self.tally = tally  # the sums of the whole response
        self.records = 0  # how many records were taken
        self.record_bytes = 0  # their uncompressed size
        self.failure = ""  # why the data cannot be read; empty if it can
        self.failed_at = 0.0  # when the failure began (ms)
        self.corrupt_at: FetchPosition | None = None  # the position of corrupt bytes, if these caused the failure
        self.in_turn_queue = False  # whether this fetch is counted in FetchBuffer._waiting

    @property
    def is_error(self) -> bool:
        """True if this contains an error and no data."""
        return bool(self.error_code) or self.diverging_epoch is not None

    @property
    def position(self) -> int:
        """The offset of the next record to take."""
        return self.fetch_offset if self.data is None else self.data.next_offset

    def attach(self, data: PartitionFetch) -> None:
        """Set the data. A separate method is needed because the data refers to this fetch and is created after it."""
        self.data = data

    def advance(self, taken: int, size: int) -> None:
        """Count records that were taken and their bytes, and clear an earlier failure, because reading succeeded."""
        self.records += taken
        self.record_bytes += size
        self.failure = ""
        self.corrupt_at = None

    def fail(self, reason: str, now: float, corrupt_at: FetchPosition | None = None) -> None:
        """Store the reason why the data cannot be read. `corrupt_at` is the position of corrupt bytes, if they are the
        cause."""
        if not self.failure:
            self.failed_at = now
        self.failure = reason
        self.corrupt_at = corrupt_at

    def __repr__(self) -> str:
        what = f"error {self.error_code}" if self.error_code else f"{self.size} bytes"
        return f"<CompletedFetch {self.chain.topic_partition} at {self.position}: {what}>"


class FetchChain:
    """The buffered fetches of one partition. Each fetch starts at the offset where the previous one ends."""

    __slots__ = (
        "buffered_since",
        "failure",
        "failures",
        "fetches",
        "leader",
        "leader_changed",
        "next_offset",
        "position",
        "set_aside",
        "state",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, state: PartitionState, position: FetchPosition) -> None:
        self.topic_partition = topic_partition
        self.state = state
        self.leader: LeaderAndEpoch = position.leader  # the leader whose log is fetched
        self.position = position.offset  # the offset of the next record to take; must equal the consumer's position
        self.next_offset: int | None = position.offset  # start of the next fetch; None: unknown until data is decoded
        # A list, because it is short, and most partitions of a consumer have none: an empty deque takes 0.6 KB.
        self.fetches: list[CompletedFetch] = []
        self.failures = 0  # failed fetches in a row
        self.failure = ""  # the reason of the last of them
        self.buffered_since = 0.0  # when the first fetch was added to the empty chain (ms)
        self.leader_changed = False  # whether `follow_leader` must validate the position again
        self.set_aside = False  # whether the partition is paused, so that its fetches are not read

    def holds(self, state: PartitionState, position: FetchPosition) -> bool:
        """Returns True if the chain belongs to this assignment of the partition and continues at this position."""
        return self.state is state and self.position == position.offset

    def advance(self, offset: int, leader: LeaderAndEpoch) -> None:
        """Set the position to `offset`, because the records before it were taken. `leader` is the current leader.

        If the records came from the log of an earlier leader, the new leader's log may not contain them. Then the
        position must be validated before data of the new leader is appended (see `follow_leader`).
        """
        self.position = offset
        if self.leader is not leader and self.leader != leader:
            self.leader_changed = True

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


class FetchBuffer:
    """The chains of all partitions of a consumer."""

    __slots__ = (
        "_bytes",
        "_chains",
        "_current",
        "_drained",
        "_failure",
        "_paused",
        "_turns",
        "_waiting",
        "dirty",
        "memory",
    )

    def __init__(self, buffer_memory: int) -> None:
        self.memory = Memory(buffer_memory)
        self.dirty: dict[TopicPartition, None] = {}  # partitions whose chain grew, shrank or was dropped
        self._chains: dict[TopicPartition, FetchChain] = {}
        # Fetches in order of arrival. When an entry is next, the oldest fetch of its chain is read, so that the order
        # within a partition never changes. The entry of a fetch that was dropped or set aside stays here and is
        # skipped, because its `in_turn_queue` is False.
        self._turns: deque[CompletedFetch] = deque()
        self._waiting = 0  # fetches whose `in_turn_queue` is True
        self._paused: dict[TopicPartition, FetchChain] = {}
        self._current: CompletedFetch | None = None  # the fetch that is being read
        self._drained: list[CompletedFetch] = []  # fetches read or dropped since the last call of `drained`
        self._bytes = 0  # the size of all buffered fetches
        self._failure: KafkaError | None = None  # the error that the next collect raises

    # --- called by the fetch manager -------------------------------------------------------------------

    def chain(self, tp: TopicPartition, state: PartitionState, position: FetchPosition) -> FetchChain:
        """Returns the partition's chain if it continues at `position`.

        If it does not, or if there is none, replaces it by an empty chain and returns that one.
        """
        chain = self.drop_stale(tp, state, position)
        if chain is None:
            chain = self._chains[tp] = FetchChain(tp, state, position)
        return chain

    def find(self, tp: TopicPartition) -> FetchChain | None:
        """Returns the partition's chain, or None."""
        return self._chains.get(tp)

    def drop_stale(
        self, tp: TopicPartition, state: PartitionState, position: FetchPosition | None
    ) -> FetchChain | None:
        """Drop the partition's chain unless it continues at `position`. Returns the chain if it was kept, else None.

        `position` is None if the partition has no position. The chain is then dropped.
        """
        chain = self._chains.get(tp)
        if chain is not None and (position is None or not chain.holds(state, position)):
            self.drop(chain)
            return None
        return chain

    def accepts(self, chain: FetchChain, offset: int, leader: LeaderAndEpoch) -> bool:
        """Returns True if data that was fetched from `offset` in the log of `leader` continues the chain.

        Returns False if the chain was dropped meanwhile.
        """
        kept = self._chains.get(chain.topic_partition) is chain
        return kept and chain.next_offset == offset and chain.leader == leader

    def append(self, fetch: CompletedFetch, next_offset: int | None) -> None:
        """Add a fetch at the end of its chain. The next fetch starts at `next_offset`.

        `next_offset` is None if it is unknown until the data of this fetch is decoded.
        """
        chain = fetch.chain
        self.clear_error(chain)
        if not chain.fetches:
            chain.buffered_since = fetch.arrived_at
        if fetch.block is not None:
            self.memory.acquire(fetch.block)
        chain.fetches.append(fetch)
        chain.next_offset = next_offset
        self._bytes += fetch.size
        self.dirty[chain.topic_partition] = None
        if not chain.set_aside:
            self._queue(fetch)
            self._turns.append(fetch)

    def unpack(self, fetch: CompletedFetch, output: object) -> None:
        """Count the memory `output` as used by `fetch`. A batch of this fetch was decompressed into it.

        Releases the memory of the batch that was decompressed before.
        """
        if fetch.decompressed_block is not None:
            self.memory.release(fetch.decompressed_block)
        fetch.decompressed_block = self.memory.track(output)
        self.memory.acquire(fetch.decompressed_block)

    def clear_error(self, chain: FetchChain) -> None:
        """Remove the error at the end of a chain, if there is one, because another response replaces it."""
        if chain.error is not None:
            self._finish(chain.fetches.pop())
            self.dirty[chain.topic_partition] = None

    def mark_dirty(self, tp: TopicPartition) -> None:
        """Mark a partition as changed, so that the fetch planner assigns a broker to it again."""
        self.dirty[tp] = None

    def take_dirty(self) -> dict[TopicPartition, None]:
        """Returns the partitions whose chain has changed since the last call."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def drained(self) -> list[CompletedFetch]:
        """Returns the fetches that were read or dropped since the last call."""
        drained, self._drained = self._drained, []
        return drained

    def fail(self, error: KafkaError) -> None:
        """Store an error that the next call of `Collector.collect` raises."""
        self._failure = error

    def take_failure(self) -> KafkaError | None:
        """Returns the error stored by `fail`, or None, and clears it."""
        error, self._failure = self._failure, None
        return error

    def retain(self, keep: Callable[[FetchChain], bool]) -> None:
        """Drop all chains for which `keep(chain)` is False."""
        self._forget([chain for chain in self._chains.values() if not keep(chain)])

    def drop_paused(self) -> None:
        """Drop the chain that was set aside last. Its data is fetched again after the user calls `resume`."""
        self._forget([next(reversed(self._paused.values()))])

    # --- called by the collector -----------------------------------------------------------------------

    def peek(self) -> CompletedFetch | None:
        """Returns the fetch that is being read. If there is none, returns the next one in order of arrival, or None."""
        if self._current is None and self._turns:
            while self._current is None and self._turns:
                fetch = self._turns.popleft()
                if fetch.in_turn_queue:
                    self._current = fetch.chain.fetches[0]
        return self._current

    def pop(self, fetch: CompletedFetch) -> None:
        """Remove a fetch that has been read. It must be the first of its chain."""
        chain = fetch.chain
        del chain.fetches[0]
        self._current = None
        self._finish(fetch)
        self.dirty[chain.topic_partition] = None
        if not chain.fetches and chain.next_offset != chain.position:
            chain.next_offset = chain.position  # the old value was unknown, or wrong because of a corrupt header

    def requeue(self, fetch: CompletedFetch) -> None:
        """Move a fetch behind the fetches of all other partitions, because its error was raised.

        It stays the first fetch of its chain.
        """
        self._current = None
        self._turns.append(fetch)

    def drop(self, chain: FetchChain) -> None:
        """Drop a chain and all its fetches."""
        self._forget([chain])

    def set_aside_paused(self, chain: FetchChain) -> None:
        """Set aside the chain of a paused partition. Its fetches are kept, but not read until `restore_paused`."""
        chain.set_aside = True
        self._paused[chain.topic_partition] = chain
        for fetch in chain.fetches:
            self._dequeue(fetch)
        # If only paused partitions use the memory now, the fetch manager has to drop some of their data.
        self.dirty[chain.topic_partition] = None

    def restore_paused(self) -> None:
        """Queue the fetches of resumed partitions again, in front of all others."""
        for chain in [chain for chain in self._paused.values() if not chain.state.paused]:
            del self._paused[chain.topic_partition]
            chain.set_aside = False
            for fetch in reversed(chain.fetches):
                self._queue(fetch)
                self._turns.appendleft(fetch)
        if len(self._turns) > 2 * self._waiting + 100:
            self._turns = deque(dict.fromkeys(fetch for fetch in self._turns if fetch.in_turn_queue))

    # --- buffered data ---------------------------------------------------------------------------------

    def has_data(self) -> bool:
        """Returns True if data or an error can be collected. Data of paused partitions does not count."""
        return self._waiting > 0 or self._failure is not None

    @property
    def has_paused(self) -> bool:
        """True if a chain of a paused partition is set aside."""
        return bool(self._paused)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all buffered fetches, including those of paused partitions."""
        return self._bytes

    def buffered_bytes(self, tp: TopicPartition) -> int:
        """Returns the bytes of one partition's buffered fetches."""
        chain = self._chains.get(tp)
        return 0 if chain is None else chain.size

    def failed_fetch(self, tp: TopicPartition) -> CompletedFetch | None:
        """Returns the partition's oldest fetch if reading it has failed, else None."""
        chain = self._chains.get(tp)
        return chain.fetches[0] if chain is not None and chain.fetches and chain.fetches[0].failure else None

    def failure(self, tp: TopicPartition) -> str:
        """Returns the reason why the partition's oldest fetch cannot be read, such as a corrupt record.

        Returns "" if it can be read.
        """
        fetch = self.failed_fetch(tp)
        return "" if fetch is None else fetch.failure

    def clear(self) -> None:
        """Drop all chains. Responses to fetches in flight will be ignored when they arrive."""
        self._forget(list(self._chains.values()))

    # --- order of arrival ------------------------------------------------------------------------------

    def _queue(self, fetch: CompletedFetch) -> None:
        """Mark the fetch as waiting to be read."""
        if not fetch.in_turn_queue:
            fetch.in_turn_queue = True
            self._waiting += 1

    def _dequeue(self, fetch: CompletedFetch) -> None:
        """Mark the fetch as not waiting. Its entry in `_turns` is skipped later."""
        if fetch.in_turn_queue:
            fetch.in_turn_queue = False
            self._waiting -= 1
        if self._current is fetch:
            self._current = None

    def _finish(self, fetch: CompletedFetch) -> None:
        """Release the memory of a fetch that was read or dropped, and add it to the drained fetches."""
        self._dequeue(fetch)
        self._bytes -= fetch.size
        for block in (fetch.block, fetch.decompressed_block):
            if block is not None:
                self.memory.release(block)
        fetch.data = None
        self._drained.append(fetch)

    def _forget(self, chains: Iterable[FetchChain]) -> None:
        for chain in chains:
            del self._chains[chain.topic_partition]
            self._paused.pop(chain.topic_partition, None)
            self.dirty[chain.topic_partition] = None
            for fetch in chain.fetches:
                self._finish(fetch)
            chain.fetches.clear()

    def __repr__(self) -> str:
        return (
            f"<FetchBuffer {self._waiting} waiting, {len(self._paused)} paused, {self._bytes} bytes; {self.memory!r}>"
        )
