"""How many bytes of fetched data are alive, and how many more may be asked for (`buffer_memory`).

Counts blocks of memory, not what is used of them: a response is one block, which lives until the last record in it is
let go of, by us or by the caller who holds a batch; what a batch decompresses to is another one. A block is counted
from `track` on until it is freed, by whomever and in whichever thread. Blocks that only the caller still needs are the
caller's: they count for half of the memory at most, so that one who collects batches is still read ahead for.
"""

from __future__ import annotations

import weakref
from collections import deque

MEMORY_SHARES = 4
"""No request asks for more than this part of the memory, so that one response can be read while others wait or come."""

ORDINARY_BATCH = 1 << 20
"""The largest batch that a broker takes unless it is told otherwise. The first batch of a response comes whole, so a
request may bring this much however little it asks for."""


class Block(weakref.ref[object]):
    """A counted block of memory: a reference to it, dead once it is freed. `uses`: how many buffered fetches still need
    it."""

    __slots__ = ("size", "uses")
    size: int
    uses: int

    def __repr__(self) -> str:
        return f"<Block of {self.size} bytes, {self.uses} uses>"


class Memory:
    """The account. `reserved`: bytes asked for and not yet received; `decompressed`: bytes that the next poll may
    decompress before what the last one returned is let go of, going by earlier ones; `least_response`: bytes that a
    response may have however little was asked for, going by earlier ones."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0
        self.decompressed = limit // (2 * MEMORY_SHARES)
        self.least_response = min(ORDINARY_BATCH, limit // (2 * MEMORY_SHARES))
        self._alive = 0
        self._needed = 0
        self._blocks: dict[int, Block] = {}
        # A block may be freed in any thread, at any time; appending is safe there, and counting is not.
        self._freed: deque[weakref.ref[object]] = deque()
        self._let_go = self._freed.append

    # --- blocks ------------------------------------------------------------------------------------------

    def track(self, memory: object) -> Block:
        """Count a block until it is freed."""
        block = Block(memory, self._let_go)
        block.size = size = _size_of(memory)
        block.uses = 0
        self._blocks[id(block)] = block
        self._alive += size
        return block

    def acquire(self, block: Block) -> None:
        """A buffered fetch needs the block."""
        self._needed += 0 if block.uses else block.size
        block.uses += 1

    def release(self, block: Block) -> None:
        """A buffered fetch does not need the block any more; from the last one on it is the caller's, or freed."""
        if block.uses:
            block.uses -= 1
            self._needed -= 0 if block.uses else block.size

    @property
    def has_freed(self) -> bool:
        """Whether anything was freed since the last `reap_freed`."""
        return bool(self._freed)

    def reap_freed(self) -> None:
        """Take what was freed off the account."""
        while self._freed:
            block = self._blocks.pop(id(self._freed.popleft()))
            self._alive -= block.size
            if block.uses:
                block.uses = 0
                self._needed -= block.size

    # --- reservations ------------------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Keep room for the response to a request."""
        self.reserved += size

    def cancel_reservation(self, size: int) -> None:
        """Give back the room that was kept for a response: it arrived, and its blocks are counted, or it failed."""
        self.reserved -= size

    # --- what there is room for --------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Bytes of all blocks that are not freed yet."""
        self.reap_freed()
        return self._alive

    @property
    def held_by_caller(self) -> int:
        """Bytes of blocks that only the caller still needs."""
        self.reap_freed()
        return self._alive - self._needed

    @property
    def used(self) -> int:
        """Bytes that count: of blocks that buffered fetches need, and as far as half of the memory the caller's."""
        if self._freed:
            self.reap_freed()
        # One poll after the other asks: in place of `held_by_caller` and `min`, which would be two calls more.
        callers, half = self._alive - self._needed, self.limit // 2
        return self._needed + (callers if callers < half else half)

    @property
    def room(self) -> int:
        """Bytes that may still be asked for; negative when one batch was larger than all limits."""
        return self.limit - self.used - self.reserved - self.decompressed

    @property
    def output_room(self) -> int:
        """Bytes that a poll may decompress: a quarter of the memory, or what is left; at least one, for one batch."""
        return max(1, min(self.limit // MEMORY_SHARES, self.limit - self.used - self.reserved))

    def record_decompressed(self, unpacked: int) -> None:
        """A poll has decompressed so many bytes."""
        self.decompressed = max(unpacked, self.decompressed - (self.decompressed + 63) // 64)

    def received(self, size: int, asked: int) -> None:
        """A response took `size` bytes; `asked` for were so many."""
        faded = self.least_response - (self.least_response + 7) // 8
        self.least_response = max(faded, size if size > asked else 0)

    def per_request_limit(self, brokers: int) -> int:
        """How many bytes one request to one of so many brokers may ask for: each may be asked while one response of
        each is being read."""
        return max(1, self.limit // max(MEMORY_SHARES, 2 * brokers))

    def reserve_for(self, max_bytes: int) -> int:
        """How many bytes to reserve for the response to a request for `max_bytes`: blocks are a little larger than
        what is in them, and the first batch comes whole."""
        return max(max_bytes + max_bytes // 4, self.least_response)

    def usage(self) -> str:
        """What takes the memory, for people."""
        kept = self.held_by_caller
        return (
            f"{self._needed:,} bytes buffered, {kept:,} in batches that were returned and are still held,"
            f" {self.reserved:,} asked for, {self.decompressed:,} kept free for decompression, of {self.limit:,}"
        )

    def __repr__(self) -> str:
        return (
            f"<Memory {self.total} bytes alive, {self.held_by_caller} of them the caller's, {self.reserved}"
            f" asked for, of {self.limit}>"
        )


def _size_of(memory: object) -> int:
    """Bytes that a block takes: frames and bytearrays have more than they show."""
    if not isinstance(memory, memoryview):
        size: int | None = getattr(memory, "capacity", None)
        if size is not None:
            return size
        memory = memoryview(memory)  # type: ignore[arg-type]  # all that is held has the buffer protocol
    shown = memory.obj
    return shown.__alloc__() if isinstance(shown, bytearray) else memory.nbytes
