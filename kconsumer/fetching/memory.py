"""How many bytes of fetched data are alive, and how many more may be asked for (`buffer_memory`).

Counts blocks of memory, not what is used of them: a response is one block, which lives until the last record in it is
let go of, by us or by the caller who holds a batch; what a batch decompresses to is another one. A block is counted
from `hold` on until it is freed, by whomever and in whichever thread.
"""

from __future__ import annotations

import weakref
from collections import deque

PIECES = 4
"""No request asks for more than this part of the memory, so that one response can be read while others wait or come."""


class Memory:
    """The account. `reserved`: bytes asked for and not yet received; `unpacked`: bytes that the next poll may
    decompress before what the last one returned is let go of, going by earlier ones."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0
        self.unpacked = limit // (2 * PIECES)
        self._alive = 0
        self._blocks: dict[int, tuple[weakref.ref[object], int]] = {}
        # A block may be freed in any thread, at any time; appending is safe there, and counting is not.
        self._freed: deque[int] = deque()

    def hold(self, block: object) -> int:
        """Count a block until it is freed. Returns its size."""
        size: int = getattr(block, "capacity", 0) or memoryview(block).nbytes  # type: ignore[arg-type]  # a buffer
        reference = weakref.ref(block, self._let_go)
        self._blocks[id(reference)] = reference, size
        self._alive += size
        return size

    def _let_go(self, reference: weakref.ref[object]) -> None:
        self._freed.append(id(reference))

    @property
    def has_freed(self) -> bool:
        """Whether anything was freed since the last `settle`."""
        return bool(self._freed)

    def settle(self) -> None:
        """Take what was freed off the account."""
        while self._freed:
            self._alive -= self._blocks.pop(self._freed.popleft())[1]

    @property
    def alive(self) -> int:
        """Bytes of all blocks that are not freed yet."""
        self.settle()
        return self._alive

    @property
    def room(self) -> int:
        """Bytes that may still be asked for; negative when one batch was larger than all limits."""
        return self.limit - self.alive - self.reserved - self.unpacked

    @property
    def output_room(self) -> int:
        """Bytes that a poll may decompress: a quarter of the memory, or what is left; at least one, for one batch."""
        return max(1, min(self.limit // PIECES, self.limit - self.alive - self.reserved))

    def polled(self, unpacked: int) -> None:
        """A poll has decompressed so many bytes."""
        self.unpacked = max(unpacked, self.unpacked - (self.unpacked + 63) // 64)

    def share(self, brokers: int) -> int:
        """How many bytes one request to one of so many brokers may ask for: each may be asked while one response of
        each is being read."""
        return max(1, self.limit // max(PIECES, 2 * brokers))

    def __repr__(self) -> str:
        return f"<Memory {self.alive} bytes alive, {self.reserved} asked for, of {self.limit}>"
