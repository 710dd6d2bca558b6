"""Fetched data that waits for the caller, per partition and in order of arrival.

Decides whose turn it is, and what still belongs together. It does not decide what to fetch (`manager.py`), what may be
returned (`collector.py`) or how much fits (`memory.py`).

The fetches of a partition form a chain: each starts at the offset where the one before it ends, so the next
one can be asked for while earlier ones wait to be read. A seek, a reset or a new assignment breaks the
chain: it is dropped whole and a new one begins. A reply to a request made for a dropped chain finds its
chain gone and is ignored. An error takes the place of a fetch at the end of its chain, until another answer replaces
it.
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
    """One partition's part of a Fetch response: its data, or what came in its place, an error code or the offset where
    the leader's log diverges from what was read before (`diverging_epoch`).

    `records` counts those taken; `failure` says why it cannot be read, `failed_at` since when (ms), and `corrupt_at` at
    which position, if its bytes are the cause; `tally` adds up the response. `block` is the memory its bytes are in,
    `decompressed_block` that of the batch decompressed last. `topic_id` tells topics of the same name apart.
    `in_turn_queue`: it has a turn to come.
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
        diverges: OffsetAndMetadata | None = None,
        tally: ResponseTally | None = None,
        block: Block | None = None,
        arrived_at: float = 0.0,
        topic_id: bytes | None = None,
    ) -> None:
        self.chain = chain
        self.topic_id = topic_id
        self.block = block
        self.decompressed_block: Block | None = None
        self.arrived_at = arrived_at
        self.fetch_offset = fetch_offset
        self.data = data
        self.size = size
        self.error_code = error_code
        self.diverging_epoch = diverges
        self.tally = tally
        self.records = 0
        self.failure = ""
        self.failed_at = 0.0
        self.corrupt_at: FetchPosition | None = None
        self.in_turn_queue = False

    @property
    def is_error(self) -> bool:
        """Whether there are no records in it to take."""
        return bool(self.error_code) or self.diverging_epoch is not None

    @property
    def position(self) -> int:
        """The offset it goes on from."""
        return self.fetch_offset if self.data is None else self.data.next_offset

    def attach(self, data: PartitionFetch) -> None:
        """Set the data, which refers to this fetch and so cannot be made before it."""
        self.data = data

    def advance(self, taken: int) -> None:
        """Count records that were taken. What could not be read before has been read, or the position is past it."""
        self.records += taken
        self.failure = ""
        self.corrupt_at = None

    def fail(self, reason: str, now: float, corrupt_at: FetchPosition | None = None) -> None:
        """Keep why it cannot be read, and at which position if corrupt bytes are the cause."""
        if not self.failure:
            self.failed_at = now
        self.failure = reason
        self.corrupt_at = corrupt_at

    def __repr__(self) -> str:
        what = f"error {self.error_code}" if self.error_code else f"{self.size} bytes"
        return f"<CompletedFetch {self.chain.topic_partition} at {self.position}: {what}>"


class FetchChain:
    """Fetches of one partition without a gap between them, and where the next one starts.

    `position` is where the consumer's position must be for the chain to hold: the start of what has not been
    taken from it. `next_offset` is where the next fetch starts; None while only decoding can tell. `leader` is whose
    log the chain is read from; `leader_changed`: the partition has another one since, and the position must be checked
    against its log where the two are joined. `failures` counts failed fetches in a row. `buffered_since`: since when
    (ms) something waits in it.
    """

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
        self.leader: LeaderAndEpoch = position.leader
        self.position = position.offset
        self.next_offset: int | None = position.offset
        self.fetches: deque[CompletedFetch] = deque()
        self.failures = 0
        self.buffered_since = 0.0
        self.leader_changed = False
        self.set_aside = False

    def holds(self, state: PartitionState, position: FetchPosition) -> bool:
        """Whether the chain still fits: same assignment of the partition, same position."""
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
        """Note that the partition has another leader than the one whose log is buffered here."""
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
        """Note that a fetch succeeded."""
        self.failures = 0

    @property
    def error(self) -> CompletedFetch | None:
        """The error at its end, if any."""
        return self.fetches[-1] if self.fetches and self.fetches[-1].is_error else None

    @property
    def size(self) -> int:
        """Bytes received and not read to the end."""
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
    """All chains of a consumer. `dirty` collects the partitions whose chain grew, shrank or went."""

    __slots__ = (
        "_bytes",
        "_chains",
        "_current",
        "_failure",
        "_paused",
        "_settled",
        "_turns",
        "_waiting",
        "dirty",
        "memory",
    )

    def __init__(self, buffer_memory: int) -> None:
        self.memory = Memory(buffer_memory)
        self.dirty: dict[TopicPartition, None] = {}
        self._chains: dict[TopicPartition, FetchChain] = {}
        # Fetches in order of arrival. A turn takes the oldest fetch of its chain, so the order within a partition
        # holds whatever happens to the turns. One that is not `in_turn_queue` any more is left in here and passed over.
        self._turns: deque[CompletedFetch] = deque()
        self._waiting = 0
        self._paused: dict[TopicPartition, FetchChain] = {}
        self._current: CompletedFetch | None = None
        self._settled: list[CompletedFetch] = []
        self._bytes = 0
        self._failure: KafkaError | None = None

    # --- the manager's side ----------------------------------------------------------------------------

    def chain(self, tp: TopicPartition, state: PartitionState, position: FetchPosition) -> FetchChain:
        """The partition's chain if it goes on from `position`; otherwise that one is dropped and a new one begins."""
        chain = self.drop_stale(tp, state, position)
        if chain is None:
            chain = self._chains[tp] = FetchChain(tp, state, position)
        return chain

    def find(self, tp: TopicPartition) -> FetchChain | None:
        """The partition's chain, if it has one."""
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
        """Whether a fetch from `offset` at `leader` goes on where the chain ends; no if the chain has been dropped."""
        alive = self._chains.get(chain.topic_partition) is chain
        return alive and chain.next_offset == offset and chain.leader == leader

    def append(self, fetch: CompletedFetch, next_offset: int | None) -> None:
        """Add what was fetched at the end of its chain, which then goes on from `next_offset`."""
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
        """Count what a batch of the fetch was decompressed to; the one before it has been read."""
        if fetch.decompressed_block is not None:
            self.memory.release(fetch.decompressed_block)
        fetch.decompressed_block = self.memory.track(output)
        self.memory.acquire(fetch.decompressed_block)

    def clear_error(self, chain: FetchChain) -> None:
        """Forget the error at the end of a chain: a later fetch from there was answered."""
        if chain.error is not None:
            self._settle(chain.fetches.pop())
            self.dirty[chain.topic_partition] = None

    def mark_dirty(self, tp: TopicPartition) -> None:
        """Have the fetch planner place this partition again with its next update."""
        self.dirty[tp] = None

    def take_dirty(self) -> dict[TopicPartition, None]:
        """The partitions touched since the last call."""
        touched, self.dirty = self.dirty, {}
        return touched

    def drained(self) -> list[CompletedFetch]:
        """The fetches that were read or dropped since the last call."""
        settled, self._settled = self._settled, []
        return settled

    def fail(self, error: KafkaError) -> None:
        """Have the next collect raise `error`."""
        self._failure = error

    def take_failure(self) -> KafkaError | None:
        """The error given to `fail`, once."""
        error, self._failure = self._failure, None
        return error

    def retain(self, keep: Callable[[FetchChain], bool]) -> None:
        """Drop the chains of which `keep` says no, such as those of partitions that are no longer assigned."""
        self._forget([chain for chain in self._chains.values() if not keep(chain)])

    def drop_paused(self) -> None:
        """Give up what is kept for the partition that was paused last; it is fetched again after it resumes."""
        self._forget([next(reversed(self._paused.values()))])

    # --- the collector's side --------------------------------------------------------------------------

    def peek(self) -> CompletedFetch | None:
        """The fetch being read, else the next one in order of arrival; None when there is none."""
        if self._current is None and self._turns:
            while self._current is None and self._turns:
                fetch = self._turns.popleft()
                if fetch.in_turn_queue:
                    self._current = fetch.chain.fetches[0]
        return self._current

    def pop(self, fetch: CompletedFetch) -> None:
        """The head has been read: the chain goes on."""
        chain = fetch.chain
        chain.fetches.popleft()
        self._current = None
        self._settle(fetch)
        self.dirty[chain.topic_partition] = None
        if not chain.fetches and chain.next_offset != chain.position:
            chain.next_offset = chain.position  # not known before, or guessed wrongly from a corrupt header

    def requeue(self, fetch: CompletedFetch) -> None:
        """Give the head another turn after all others: it is an error that stays, and has been raised."""
        self._current = None
        self._turns.append(fetch)

    def drop(self, chain: FetchChain) -> None:
        """Give up a chain and all that it holds."""
        self._forget([chain])

    def set_aside_paused(self, chain: FetchChain) -> None:
        """Put a chain aside while its partition is paused, so that others get their turn."""
        chain.set_aside = True
        self._paused[chain.topic_partition] = chain
        for fetch in chain.fetches:
            self._dequeue(fetch)
        # Only paused partitions may hold the memory now; the manager has to see that.
        self.dirty[chain.topic_partition] = None

    def restore_paused(self) -> None:
        """Give resumed partitions their turn again, before those that arrived later."""
        for chain in [chain for chain in self._paused.values() if not chain.state.paused]:
            del self._paused[chain.topic_partition]
            chain.set_aside = False
            for fetch in reversed(chain.fetches):
                self._queue(fetch)
                self._turns.appendleft(fetch)
        if len(self._turns) > 2 * self._waiting + 100:
            self._turns = deque(dict.fromkeys(fetch for fetch in self._turns if fetch.in_turn_queue))

    # --- what is held ----------------------------------------------------------------------------------

    def has_data(self) -> bool:
        """Whether something waits to be collected, parked chains apart."""
        return self._waiting > 0 or self._failure is not None

    @property
    def has_paused(self) -> bool:
        """Whether chains of paused partitions are put aside."""
        return bool(self._paused)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all fetches that wait, parked ones too."""
        return self._bytes

    def buffered_bytes(self, tp: TopicPartition) -> int:
        """Bytes received of one partition and not read to the end."""
        chain = self._chains.get(tp)
        return 0 if chain is None else chain.size

    def failed_fetch(self, tp: TopicPartition) -> CompletedFetch | None:
        """The partition's oldest fetch, if it cannot be read."""
        chain = self._chains.get(tp)
        return chain.fetches[0] if chain is not None and chain.fetches and chain.fetches[0].failure else None

    def failure(self, tp: TopicPartition) -> str:
        """Why the partition's oldest fetch cannot be read (a corrupt record, a deserializer…); "" if it can."""
        fetch = self.failed_fetch(tp)
        return "" if fetch is None else fetch.failure

    def clear(self) -> None:
        """Drop everything; what is under way will be dropped when it arrives."""
        self._forget(list(self._chains.values()))

    # --- turns -----------------------------------------------------------------------------------------

    def _queue(self, fetch: CompletedFetch) -> None:
        if not fetch.in_turn_queue:
            fetch.in_turn_queue = True
            self._waiting += 1

    def _dequeue(self, fetch: CompletedFetch) -> None:
        if fetch.in_turn_queue:
            fetch.in_turn_queue = False
            self._waiting -= 1
        if self._current is fetch:
            self._current = None

    def _settle(self, fetch: CompletedFetch) -> None:
        """A fetch has been read or dropped: let go of its bytes."""
        self._dequeue(fetch)
        self._bytes -= fetch.size
        for block in (fetch.block, fetch.decompressed_block):
            if block is not None:
                self.memory.release(block)
        fetch.data = None
        self._settled.append(fetch)

    def _forget(self, chains: Iterable[FetchChain]) -> None:
        for chain in chains:
            del self._chains[chain.topic_partition]
            self._paused.pop(chain.topic_partition, None)
            self.dirty[chain.topic_partition] = None
            for fetch in chain.fetches:
                self._settle(fetch)
            chain.fetches.clear()

    def __repr__(self) -> str:
        return (
            f"<FetchBuffer {self._waiting} waiting, {len(self._paused)} parked, {self._bytes} bytes; {self.memory!r}>"
        )
