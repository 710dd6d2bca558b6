"""Buffers fetched data until a poll returns it, per partition and in order of arrival (Java `FetchBuffer`).

Decides which fetch is read next, and which fetches continue one another. It does not decide what to fetch
(`manager.py`), what may be returned (`collector.py`) or how much fits (`memory.py`).

The fetches of a partition form a chain: each starts at the offset where the one before it ends, so the next one can be
requested while earlier ones wait to be read. A seek, a reset or a new assignment breaks the chain: it is dropped as a
whole and another one begins. A response to a request of a dropped chain finds that its chain does not exist any more,
and is ignored. An error is buffered like a fetch, at the end of its chain, until another response replaces it.
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
    from kconsumer.fetching.metrics import ResponseTally


class CompletedFetch:
    """The part of a Fetch response that belongs to one partition: its data, or an error code, or the offset where the
    leader's log diverges from the records read before."""

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
        self.block = block  # the memory that its bytes are in
        self.decompressed_block: Block | None = None  # the memory of the batch decompressed last
        self.arrived_at = arrived_at
        self.fetch_offset = fetch_offset
        self.data = data
        self.size = size
        self.error_code = error_code
        self.diverging_epoch = diverging_epoch
        self.tally = tally  # of the whole response
        self.records = 0  # taken from it
        self.failure = ""  # why it cannot be read
        self.failed_at = 0.0  # since when it cannot (ms)
        self.corrupt_at: FetchPosition | None = None  # the position whose bytes are the cause, if they are
        self.in_turn_queue = False  # whether it counts as waiting in FetchBuffer._turns

    @property
    def is_error(self) -> bool:
        """Whether it has no records to take."""
        return bool(self.error_code) or self.diverging_epoch is not None

    @property
    def position(self) -> int:
        """The offset of the next record to take from it."""
        return self.fetch_offset if self.data is None else self.data.next_offset

    def attach(self, data: PartitionFetch) -> None:
        """Set the data. It refers to this fetch and so cannot be created before it."""
        self.data = data

    def advance(self, taken: int) -> None:
        """Count records that were taken. An earlier failure is over: its cause was read after all, or the position is
        past it."""
        self.records += taken
        self.failure = ""
        self.corrupt_at = None

    def fail(self, reason: str, now: float, corrupt_at: FetchPosition | None = None) -> None:
        """Keep the reason why it cannot be read, and the position if corrupt bytes are the cause."""
        if not self.failure:
            self.failed_at = now
        self.failure = reason
        self.corrupt_at = corrupt_at

    def __repr__(self) -> str:
        what = f"error {self.error_code}" if self.error_code else f"{self.size} bytes"
        return f"<CompletedFetch {self.chain.topic_partition} at {self.position}: {what}>"


class FetchChain:
    """Fetches of one partition without a gap between them, and the offset where the next one starts."""

    __slots__ = (
        "buffered_since",
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
        self.leader: LeaderAndEpoch = position.leader  # whose log the chain is read from
        self.position = position.offset  # where the consumer's position must be: the first record not taken from it
        self.next_offset: int | None = position.offset  # where the next fetch starts; None: unknown before decoding
        self.fetches: deque[CompletedFetch] = deque()
        self.failures = 0  # failed fetches in a row
        self.buffered_since = 0.0  # when the oldest of its present fetches was added to the empty chain (ms)
        self.leader_changed = False  # whether the position must be validated before another leader's log is joined
        self.set_aside = False  # the partition is paused

    def holds(self, state: PartitionState, position: FetchPosition) -> bool:
        """Returns True if the chain still fits: same assignment of the partition, same position."""
        return self.state is state and self.position == position.offset

    def advance(self, offset: int, leader: LeaderAndEpoch) -> None:
        """Continue at `offset`: the records before it were taken, under this leader of the partition.

        If the records came from the log of another leader, the position may lie beyond what the new leader's log has
        in common with it, and must be validated before fetches of the two are joined (`follow_leader`).
        """
        self.position = offset
        if self.leader is not leader and self.leader != leader:
            self.leader_changed = True

    def mark_leader_changed(self) -> None:
        """Record that the partition has another leader than the one whose log is buffered here."""
        self.leader_changed = True

    def follow_leader(self, position: FetchPosition) -> None:
        """Continue in the log of the position's leader.

        The position was validated when the leader changed, but has moved since, over records that the new leader may
        not have: it is validated again (KIP-320).
        """
        self.leader = position.leader
        if self.leader_changed and self.state.has_valid_position:
            self.leader_changed = False
            self.state.validate(position)

    def count_failure(self) -> int:
        """Count a failed fetch. Returns the number of failures in a row."""
        self.failures += 1
        return self.failures

    def clear_failures(self) -> None:
        """Reset the number of failures, after a fetch succeeded."""
        self.failures = 0

    @property
    def error(self) -> CompletedFetch | None:
        """The error at the end of the chain, or None."""
        return self.fetches[-1] if self.fetches and self.fetches[-1].is_error else None

    @property
    def size(self) -> int:
        """Bytes that were received and are not read completely."""
        return sum(fetch.size for fetch in self.fetches)

    @property
    def pending_fetches(self) -> int:
        """How many fetches with records wait in it."""
        return len(self.fetches) - (self.error is not None)

    def __repr__(self) -> str:
        return (
            f"<FetchChain {self.topic_partition} at {self.position}, {len(self.fetches)} buffered,"
            f" next fetch at {self.next_offset}>"
        )


class FetchBuffer:
    """All chains of a consumer."""

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
        # Fetches in order of arrival. Each entry stands for the oldest fetch of its chain, so the order within a
        # partition is kept whatever happens to the entries. The entry of a fetch that was dropped or set aside stays
        # here and is skipped, because its `in_turn_queue` is False.
        self._turns: deque[CompletedFetch] = deque()
        self._waiting = 0
        self._paused: dict[TopicPartition, FetchChain] = {}
        self._current: CompletedFetch | None = None  # the fetch that is being read
        self._drained: list[CompletedFetch] = []
        self._bytes = 0
        self._failure: KafkaError | None = None

    # --- the manager's side ----------------------------------------------------------------------------

    def chain(self, tp: TopicPartition, state: PartitionState, position: FetchPosition) -> FetchChain:
        """Returns the partition's chain if it continues at `position`; otherwise drops it and starts another one."""
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
        """Drop the partition's chain unless it continues at `position` (None: the partition has no position). Returns
        the chain if it was kept."""
        chain = self._chains.get(tp)
        if chain is not None and (position is None or not chain.holds(state, position)):
            self.drop(chain)
            return None
        return chain

    def accepts(self, chain: FetchChain, offset: int, leader: LeaderAndEpoch) -> bool:
        """Returns True if a fetch from `offset` at `leader` starts where the chain ends; False if the chain was
        dropped."""
        kept = self._chains.get(chain.topic_partition) is chain
        return kept and chain.next_offset == offset and chain.leader == leader

    def append(self, fetch: CompletedFetch, next_offset: int | None) -> None:
        """Add a fetch at the end of its chain, which then continues at `next_offset`."""
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
        """Track the memory that a batch of the fetch was decompressed to, and release that of the batch before."""
        if fetch.decompressed_block is not None:
            self.memory.release(fetch.decompressed_block)
        fetch.decompressed_block = self.memory.track(output)
        self.memory.acquire(fetch.decompressed_block)

    def clear_error(self, chain: FetchChain) -> None:
        """Remove the error at the end of a chain: a later fetch from there succeeded."""
        if chain.error is not None:
            self._finish(chain.fetches.pop())
            self.dirty[chain.topic_partition] = None

    def mark_dirty(self, tp: TopicPartition) -> None:
        """Let the next update of the fetch planner assign a broker to this partition again."""
        self.dirty[tp] = None

    def take_dirty(self) -> dict[TopicPartition, None]:
        """Returns the partitions whose chain changed since the last call."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def drained(self) -> list[CompletedFetch]:
        """Returns the fetches that were read or dropped since the last call."""
        drained, self._drained = self._drained, []
        return drained

    def fail(self, error: KafkaError) -> None:
        """Raise `error` from the next collect."""
        self._failure = error

    def take_failure(self) -> KafkaError | None:
        """Returns the error given to `fail`, once."""
        error, self._failure = self._failure, None
        return error

    def retain(self, keep: Callable[[FetchChain], bool]) -> None:
        """Drop the chains for which `keep` is False, such as those of partitions that are no longer assigned."""
        self._forget([chain for chain in self._chains.values() if not keep(chain)])

    def drop_paused(self) -> None:
        """Drop the data of the partition that was paused last; it is fetched again after `resume`."""
        self._forget([next(reversed(self._paused.values()))])

    # --- the collector's side --------------------------------------------------------------------------

    def peek(self) -> CompletedFetch | None:
        """Returns the fetch that is being read, else the next one in order of arrival; None if there is none."""
        if self._current is None and self._turns:
            while self._current is None and self._turns:
                fetch = self._turns.popleft()
                if fetch.in_turn_queue:
                    self._current = fetch.chain.fetches[0]
        return self._current

    def pop(self, fetch: CompletedFetch) -> None:
        """Remove the first fetch of its chain, which has been read; the chain continues after it."""
        chain = fetch.chain
        chain.fetches.popleft()
        self._current = None
        self._finish(fetch)
        self.dirty[chain.topic_partition] = None
        if not chain.fetches and chain.next_offset != chain.position:
            chain.next_offset = chain.position  # it was unknown, or wrong because of a corrupt header

    def requeue(self, fetch: CompletedFetch) -> None:
        """Move the first fetch of its chain behind the fetches of all partitions. It is an error that was raised and
        stays."""
        self._current = None
        self._turns.append(fetch)

    def drop(self, chain: FetchChain) -> None:
        """Drop a chain and all its fetches."""
        self._forget([chain])

    def set_aside_paused(self, chain: FetchChain) -> None:
        """Set the chain of a paused partition aside, so that the fetches of others are next."""
        chain.set_aside = True
        self._paused[chain.topic_partition] = chain
        for fetch in chain.fetches:
            self._dequeue(fetch)
        # If only paused partitions use the memory now, the fetch manager has to drop some of their data.
        self.dirty[chain.topic_partition] = None

    def restore_paused(self) -> None:
        """Queue the fetches of resumed partitions again, before those that arrived later."""
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
        """Returns True if anything waits to be collected, not counting paused partitions."""
        return self._waiting > 0 or self._failure is not None

    @property
    def has_paused(self) -> bool:
        """Whether chains of paused partitions are set aside."""
        return bool(self._paused)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all waiting fetches, those of paused partitions included."""
        return self._bytes

    def buffered_bytes(self, tp: TopicPartition) -> int:
        """Returns the bytes of one partition that were received and are not read completely."""
        chain = self._chains.get(tp)
        return 0 if chain is None else chain.size

    def failed_fetch(self, tp: TopicPartition) -> CompletedFetch | None:
        """Returns the partition's oldest fetch if it cannot be read, else None."""
        chain = self._chains.get(tp)
        return chain.fetches[0] if chain is not None and chain.fetches and chain.fetches[0].failure else None

    def failure(self, tp: TopicPartition) -> str:
        """Returns why the partition's oldest fetch cannot be read (a corrupt record, a deserializer…), or ""."""
        fetch = self.failed_fetch(tp)
        return "" if fetch is None else fetch.failure

    def clear(self) -> None:
        """Drop everything. Responses to fetches in flight are dropped when they arrive."""
        self._forget(list(self._chains.values()))

    # --- order of arrival ------------------------------------------------------------------------------

    def _queue(self, fetch: CompletedFetch) -> None:
        """Count the fetch as waiting, unless it is counted already."""
        if not fetch.in_turn_queue:
            fetch.in_turn_queue = True
            self._waiting += 1

    def _dequeue(self, fetch: CompletedFetch) -> None:
        """Take the fetch out of the order of arrival; its entry in `_turns` is skipped later."""
        if fetch.in_turn_queue:
            fetch.in_turn_queue = False
            self._waiting -= 1
        if self._current is fetch:
            self._current = None

    def _finish(self, fetch: CompletedFetch) -> None:
        """Release the memory of a fetch that was read or dropped."""
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
