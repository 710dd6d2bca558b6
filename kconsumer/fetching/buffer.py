"""Fetched data that waits for the caller, per partition and in order of arrival.

Decides whose turn it is, what still belongs together, and how many bytes are held. It does not decide what
to fetch (`manager.py`) or what may be returned (`collector.py`).

The fetches of a partition form a chain: each starts at the offset where the one before it ends, so the next
one can be asked for while earlier ones wait to be read. A seek, a reset or a new assignment breaks the
chain: it is dropped whole and a new one begins. A reply to a request made for a dropped chain finds its
chain gone and is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kconsumer.errors import KafkaError
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, PartitionState
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer._core.fetch import PartitionFetch
    from kconsumer.fetching.metrics import ResponseTally


class CompletedFetch:
    """One partition's part of a Fetch response: its data, or the error code in its place.

    `records` counts those taken; `failure` says why the last attempt to take some failed; `tally` adds up the
    response.
    """

    __slots__ = ("chain", "data", "error_code", "failure", "fetch_offset", "records", "size", "tally")

    def __init__(
        self,
        chain: FetchChain,
        fetch_offset: int,
        data: PartitionFetch | None = None,
        *,
        size: int = 0,
        error_code: int = 0,
        tally: ResponseTally | None = None,
    ) -> None:
        self.chain = chain
        self.fetch_offset = fetch_offset
        self.data = data
        self.size = size
        self.error_code = error_code
        self.tally = tally
        self.records = 0
        self.failure = ""

    @property
    def position(self) -> int:
        """The offset it goes on from."""
        return self.fetch_offset if self.data is None else self.data.next_offset

    def __repr__(self) -> str:
        what = f"error {self.error_code}" if self.error_code else f"{self.size} bytes"
        return f"<CompletedFetch {self.chain.topic_partition} at {self.position}: {what}>"


class FetchChain:
    """Fetches of one partition without a gap between them, and where the next one starts.

    `position` is where the consumer's position must be for the chain to hold: the start of what has not been
    taken from it. `next_offset` is where the next fetch starts; None while only decoding can tell.
    """

    __slots__ = ("fetches", "leader", "next_offset", "parked", "position", "state", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, state: PartitionState, position: FetchPosition) -> None:
        self.topic_partition = topic_partition
        self.state = state
        self.leader: LeaderAndEpoch = position.leader
        self.position = position.offset
        self.next_offset: int | None = position.offset
        self.fetches: deque[CompletedFetch] = deque()
        self.parked = False

    def holds(self, state: PartitionState, position: FetchPosition) -> bool:
        """Whether the chain still fits: same assignment of the partition, same position."""
        return self.state is state and self.position == position.offset

    def __repr__(self) -> str:
        return (
            f"<FetchChain {self.topic_partition} at {self.position}, {len(self.fetches)} buffered,"
            f" next fetch at {self.next_offset}>"
        )


class FetchBuffer:
    """All chains of a consumer. `changed` is set when room or bytes were freed, for the manager to look again;
    `touched` collects the partitions whose chain grew, shrank or went."""

    __slots__ = (
        "_bytes",
        "_chains",
        "_current",
        "_failure",
        "_parked",
        "_settled",
        "_turns",
        "changed",
        "memory",
        "touched",
    )

    def __init__(self, buffer_memory: int) -> None:
        self.memory = buffer_memory
        self.changed = True
        self.touched: dict[TopicPartition, None] = {}
        self._chains: dict[TopicPartition, FetchChain] = {}
        # One entry for each fetch in order of arrival. A turn takes the oldest fetch of its chain, so the
        # order within a partition holds whatever happens to the turns.
        self._turns: deque[FetchChain] = deque()
        self._parked: dict[TopicPartition, FetchChain] = {}
        self._current: CompletedFetch | None = None
        self._settled: list[CompletedFetch] = []
        self._bytes = 0
        self._failure: KafkaError | None = None

    # --- the manager's side ----------------------------------------------------------------------------

    def chain(self, tp: TopicPartition, state: PartitionState, position: FetchPosition) -> FetchChain:
        """The partition's chain if it goes on from `position`; otherwise that one is dropped and a new one begins."""
        chain = self._chains.get(tp)
        if chain is not None:
            if chain.holds(state, position):
                return chain
            self.drop(chain)
        chain = self._chains[tp] = FetchChain(tp, state, position)
        return chain

    def drop_stale(self, tp: TopicPartition, state: PartitionState, position: FetchPosition | None) -> None:
        """Drop the partition's chain unless it goes on from `position` (None: it has none)."""
        chain = self._chains.get(tp)
        if chain is not None and (position is None or not chain.holds(state, position)):
            self.drop(chain)

    def expects(self, chain: FetchChain, offset: int) -> bool:
        """Whether a fetch from `offset` goes on where the chain ends; no if the chain has been dropped."""
        return chain.next_offset == offset and self._chains.get(chain.topic_partition) is chain

    def append(self, fetch: CompletedFetch, next_offset: int | None) -> None:
        """Add what was fetched at the end of its chain, which then goes on from `next_offset`."""
        chain = fetch.chain
        chain.fetches.append(fetch)
        chain.next_offset = next_offset
        self._bytes += fetch.size
        self.touched[chain.topic_partition] = None
        if not chain.parked:
            self._turns.append(chain)

    def take_touched(self) -> dict[TopicPartition, None]:
        """The partitions touched since the last call."""
        touched, self.touched = self.touched, {}
        return touched

    def settled(self) -> list[CompletedFetch]:
        """The fetches that were read or dropped since the last call; `changed` is false again."""
        self.changed = False
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

    def drop_parked(self) -> None:
        """Give up what is kept for paused partitions; it is fetched again after they resume."""
        self._forget(list(self._parked.values()))

    # --- the collector's side --------------------------------------------------------------------------

    def head(self) -> CompletedFetch | None:
        """The fetch being read, else the next one in order of arrival; None when there is none."""
        if self._current is None and self._turns:
            self._current = self._turns.popleft().fetches[0]
        return self._current

    def finish(self, fetch: CompletedFetch) -> None:
        """The head has been read: its memory is free, and the chain goes on."""
        chain = fetch.chain
        chain.fetches.popleft()
        self._bytes -= fetch.size
        self._settled.append(fetch)
        self._current = None
        self.changed = True
        self.touched[chain.topic_partition] = None
        if not chain.fetches and chain.next_offset != chain.position:
            chain.next_offset = chain.position  # not known before, or guessed wrongly from a corrupt header

    def drop(self, chain: FetchChain) -> None:
        """Give up a chain and all that it holds."""
        self._forget([chain])

    def park(self, chain: FetchChain) -> None:
        """Put a chain aside while its partition is paused, so that others get their turn."""
        chain.parked = True
        self._parked[chain.topic_partition] = chain
        self._turns = deque(turn for turn in self._turns if turn is not chain)
        if self._current is not None and self._current.chain is chain:
            self._current = None
        self.changed = True

    def unpark(self) -> None:
        """Give resumed partitions their turn again, before those that arrived later."""
        for chain in [chain for chain in self._parked.values() if not chain.state.paused]:
            del self._parked[chain.topic_partition]
            chain.parked = False
            self._turns.extendleft([chain] * len(chain.fetches))

    # --- what is held ----------------------------------------------------------------------------------

    def has_data(self) -> bool:
        """Whether something waits to be collected, parked chains apart."""
        return self._current is not None or bool(self._turns) or self._failure is not None

    @property
    def has_parked(self) -> bool:
        """Whether chains of paused partitions are put aside."""
        return bool(self._parked)

    @property
    def held_bytes(self) -> int:
        """Bytes held: all that was received, and what is decompressed of the fetch being read."""
        current = self._current
        if current is None or current.data is None:
            return self._bytes
        return self._bytes + max(0, current.data.held_bytes - current.size)

    def buffered_bytes(self, tp: TopicPartition) -> int:
        """Bytes received of one partition and not read to the end."""
        chain = self._chains.get(tp)
        return sum(fetch.size for fetch in chain.fetches) if chain is not None else 0

    def failure(self, tp: TopicPartition) -> str:
        """Why the partition's oldest fetch cannot be read (a corrupt record, a deserializer); "" if it can."""
        chain = self._chains.get(tp)
        return chain.fetches[0].failure if chain is not None and chain.fetches else ""

    def clear(self) -> None:
        """Drop everything; what is under way will be dropped when it arrives."""
        self._forget(list(self._chains.values()))

    def _forget(self, chains: Collection[FetchChain]) -> None:
        if not chains:
            return
        gone = set(map(id, chains))
        for chain in chains:
            del self._chains[chain.topic_partition]
            self.touched[chain.topic_partition] = None
            self._parked.pop(chain.topic_partition, None)
            self._bytes -= sum(fetch.size for fetch in chain.fetches)
            self._settled.extend(chain.fetches)
            chain.fetches.clear()
        self._turns = deque(turn for turn in self._turns if id(turn) not in gone)
        if self._current is not None and id(self._current.chain) in gone:
            self._current = None
        self.changed = True

    def __repr__(self) -> str:
        waiting = len(self._turns) + (self._current is not None)
        return f"<FetchBuffer {waiting} waiting, {len(self._parked)} parked, {self._bytes} bytes>"
