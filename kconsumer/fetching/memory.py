"""Counts the bytes of fetched data in memory, and decides how many more bytes may be requested (`buffer_memory`).

A block is the memory of one response, or of the records decompressed from one batch. It is freed when neither the
buffer nor a batch that the user keeps refers to it. Any thread may free it. A block counts in full until it is freed.
However, blocks that only the user's batches refer to count for at most half of the memory. So the consumer still
fetches ahead for a user who keeps many batches.
"""

from __future__ import annotations

import weakref
from collections import deque

MEMORY_SHARES = 4
"""One request is for at most 1/MEMORY_SHARES of the memory, so that one response can be read while others arrive."""

DEFAULT_MAX_BATCH = 1 << 20
"""The largest batch (bytes) that brokers accept by default. The first batch of a response is always complete, so a
response may have this size even if less was requested."""


class Block(weakref.ref[object]):
    """A weak reference to a block of memory, with its size."""

    __slots__ = ("size", "uses")
    size: int
    uses: int  # how many buffered fetches refer to it

    # By identity: a reference to a bytearray has no other hash.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __repr__(self) -> str:
        return f"<Block of {self.size} bytes, {self.uses} uses>"


class Memory:
    """Counts the memory of one consumer's fetched data."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0  # bytes requested and not received yet
        # An estimate from earlier polls: bytes that the next poll decompresses before the user releases the last batch.
        self.decompressed = limit // (2 * MEMORY_SHARES)
        # An estimate from earlier responses: bytes that a response may have even if less was requested.
        self.least_response = min(DEFAULT_MAX_BATCH, limit // (2 * MEMORY_SHARES))
        self._alive = 0  # bytes of blocks that are not freed
        self._needed = 0  # bytes of blocks that buffered fetches refer to
        self._blocks: dict[weakref.ref[object], Block] = {}
        # A block may be freed in any thread, between any two bytecodes. Appending to a deque is atomic; changing a
        # counter is not.
        self._freed: deque[weakref.ref[object]] = deque()
        self._on_freed = self._freed.append

    # --- blocks ------------------------------------------------------------------------------------------

    def track(self, memory: object, size: int | None = None) -> Block:
        """Count this memory as a block until it is freed. Returns the block. `size`: its allocated bytes, if known."""
        block = Block(memory, self._on_freed)
        if size is None:
            size = _size_of(memory)
        block.size = size
        block.uses = 0
        self._blocks[block] = block
        self._alive += size
        return block

    def acquire(self, block: Block) -> None:
        """Record that another buffered fetch refers to the block."""
        self._needed += 0 if block.uses else block.size
        block.uses += 1

    def release(self, block: Block) -> None:
        """Record that a buffered fetch no longer refers to the block. The user's batches may still refer to it."""
        if block.uses:
            block.uses -= 1
            self._needed -= 0 if block.uses else block.size

    @property
    def has_freed(self) -> bool:
        """True if a block was freed since the last `reap_freed`."""
        return bool(self._freed)

    def reap_freed(self) -> None:
        """Subtract the sizes of freed blocks from the counters."""
        while self._freed:
            block = self._blocks.pop(self._freed.popleft())
            self._alive -= block.size
            if block.uses:
                block.uses = 0
                self._needed -= block.size

    # --- reservations ------------------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes for the response to a request."""
        self.reserved += size

    def cancel_reservation(self, size: int) -> None:
        """Cancel a reservation, because the response has arrived and is counted, or the request has failed."""
        self.reserved -= size

    # --- room --------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Bytes of all blocks that are not freed yet."""
        self.reap_freed()
        return self._alive

    @property
    def held_by_caller(self) -> int:
        """Bytes of blocks that only the user's batches refer to."""
        self.reap_freed()
        return self._alive - self._needed

    @property
    def used(self) -> int:
        """Bytes that count against the limit.

        These are all blocks of buffered fetches, plus the blocks that only the user's batches refer to, up to half of
        the limit.
        """
        if self._freed:
            self.reap_freed()
        # Every poll reads this, so `held_by_caller` and `min` are written out here, which saves two calls.
        callers_bytes, half = self._alive - self._needed, self.limit // 2
        return self._needed + (callers_bytes if callers_bytes < half else half)

    @property
    def room(self) -> int:
        """Bytes that may still be requested. Negative while a batch larger than all limits is in memory."""
        return self.limit - self.used - self.reserved - self.decompressed

    @property
    def output_room(self) -> int:
        """Bytes that a poll may decompress: at most a quarter of the limit, and at most the room that is left.

        The value is at least 1, so that a poll can always decompress one batch.
        """
        return max(1, min(self.limit // MEMORY_SHARES, self.limit - self.used - self.reserved))

    def record_decompressed(self, unpacked: int) -> None:
        """Record that a poll decompressed `unpacked` bytes."""
        self.decompressed = max(unpacked, self.decompressed - (self.decompressed + 63) // 64)

    def record_response(self, size: int, expected: int) -> None:
        """Record that a response uses `size` bytes of memory. At most `expected` bytes were expected."""
        faded = self.least_response - (self.least_response + 7) // 8
        self.least_response = max(faded, size if size > expected else 0)

    def per_request_limit(self, brokers: int) -> int:
        """Returns the maximum number of bytes to request at once if there are this many brokers.

        With this limit, there is room for two responses of each broker: one in flight, and one that is being read.
        """
        return max(1, self.limit // max(MEMORY_SHARES, 2 * brokers))

    def reserve_for(self, max_bytes: int) -> int:
        """Returns the bytes to reserve for the response to a request for `max_bytes`.

        The result is more than `max_bytes`: more memory is allocated than the response has bytes, and the first batch
        of a response is always complete, whatever its size.
        """
        return max(max_bytes + max_bytes // 4, self.least_response)

    def usage(self) -> str:
        """Returns a text that describes what the memory is used for, with numbers of bytes."""
        held = self.held_by_caller
        return (
            f"{self._needed:,} bytes buffered, {held:,} in returned batches that are still referenced,"
            f" {self.reserved:,} requested, {self.decompressed:,} kept free for decompression, of {self.limit:,}"
        )

    def __repr__(self) -> str:
        return (
            f"<Memory {self.total} bytes, {self.held_by_caller} of them only in returned batches, {self.reserved}"
            f" requested, of {self.limit}>"
        )


def _size_of(memory: object) -> int:
    """Returns the allocated bytes of a block. Network frames and bytearrays allocate more than their length."""
    if not isinstance(memory, memoryview):
        size: int | None = getattr(memory, "capacity", None)
        if size is not None:
            return size
        memory = memoryview(memory)  # type: ignore[arg-type]  # all that is held has the buffer protocol
    shown = memory.obj
    return shown.__alloc__() if isinstance(shown, bytearray) else memory.nbytes
