"""The buffered data of a consumer, and its memory: what happens for each response and each poll.

`kconsumer/fetching/buffer.py` has the rest of these classes, and explains them. A CompletedFetch is a part of a
response, a BufferedChain is what is buffered of one partition, and a BufferQueue is what is buffered of all partitions.

Memory counts the bytes of fetched data in memory, and decides how many more bytes may be requested (`buffer_memory`). A
block is the memory of one response, or of the records decompressed from one batch. It is freed when neither the buffer
nor a batch that the user keeps refers to it. Any thread may free it. A block counts in full until it is freed. However,
blocks that only the user's batches refer to count for at most half of the memory. So the consumer still fetches ahead
for a user who keeps many batches.
"""

from collections import deque
from weakref import ref

cimport cython
from libc.stdint cimport int64_t

from kconsumer._core.metrics cimport FetchEvents, ResponseTally

MEMORY_SHARES = 4
DEFAULT_MAX_BATCH = 1 << 20


cdef enum:
    SHARES = 4         # MEMORY_SHARES
    MAX_AHEAD = 2      # if a partition has this many buffered fetches, no other one is sent


class Block(ref):
    """A weak reference to a block of memory, with its size."""

    __slots__ = ("size", "uses")

    # By identity: a reference to a bytearray has no other hash.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __repr__(self):
        return f"<Block of {self.size} bytes, {self.uses} uses>"


@cython.final
cdef class Memory:
    """Counts the memory of one consumer's fetched data.

    `reserved` are bytes requested and not received yet. `decompressed` is an estimate from earlier polls: bytes that
    the next poll decompresses before the user releases the last batch. `least_response` is an estimate from earlier
    responses: bytes that a response may have even if less was requested.
    """

    def __init__(self, Py_ssize_t limit):
        self.decompressed, self.least_response = limit, <Py_ssize_t> DEFAULT_MAX_BATCH
        self.resize(limit)
        self.blocks = {}
        # A block may be freed in any thread, between any two bytecodes. Appending to a deque is atomic; changing a
        # counter is not.
        self.freed = deque()
        self.on_freed = self.freed.append

    def resize(self, Py_ssize_t limit):
        """Set the limit. The estimates take at most a part of it, so that they cannot prevent all requests."""
        self.limit = limit
        self.decompressed = min(self.decompressed, limit // (2 * SHARES))
        self.least_response = min(self.least_response, limit // (2 * SHARES))

    # --- blocks ------------------------------------------------------------------------------------------

    cpdef object track(self, object memory, size=None):
        """Count this memory as a block until it is freed. Returns the block. `size`: its allocated bytes, if known."""
        cdef Py_ssize_t count = size_of(memory) if size is None else size
        block = Block(memory, self.on_freed)
        block.size, block.uses = count, 0
        self.blocks[block] = block
        self.alive += count
        return block

    cpdef int acquire(self, object block) except -1:
        """Record that another buffered fetch refers to the block."""
        cdef int uses = block.uses
        if not uses:
            self.needed += block.size
        block.uses = uses + 1
        return 0

    cpdef int release(self, object block) except -1:
        """Record that a buffered fetch no longer refers to the block. The user's batches may still refer to it."""
        cdef int uses = block.uses
        if uses:
            block.uses = uses - 1
            if uses == 1:
                self.needed -= block.size
        return 0

    @property
    def has_freed(self):
        """True if a block was freed since the last `reap_freed`."""
        return bool(self.freed)

    cpdef int reap_freed(self) except -1:
        """Subtract the sizes of freed blocks from the counters."""
        while self.freed:
            block = self.blocks.pop(self.freed.popleft())
            self.alive -= block.size
            if block.uses:
                block.uses = 0
                self.needed -= block.size
        return 0

    # --- reservations ------------------------------------------------------------------------------------

    def reserve(self, Py_ssize_t size):
        """Reserve `size` bytes for the response to a request."""
        self.reserved += size

    def cancel_reservation(self, Py_ssize_t size):
        """Cancel a reservation, because the response has arrived and is counted, or the request has failed."""
        self.reserved -= size

    # --- room --------------------------------------------------------------------------------------------

    @property
    def total(self):
        """Bytes of all blocks that are not freed yet."""
        self.reap_freed()
        return self.alive

    @property
    def held_by_caller(self):
        """Bytes of blocks that only the user's batches refer to."""
        self.reap_freed()
        return self.alive - self.needed

    @property
    def used(self):
        """Bytes that count against the limit.

        These are all blocks of buffered fetches, plus the blocks that only the user's batches refer to, up to half of
        the limit.
        """
        return self.used_bytes()

    cdef Py_ssize_t used_bytes(self) except -1:
        self.reap_freed()
        return self.needed + min(self.alive - self.needed, self.limit // 2)

    @property
    def room(self):
        """Bytes that may still be requested. Negative while a batch larger than all limits is in memory."""
        return self.room_bytes()

    cdef Py_ssize_t room_bytes(self) except? -1:
        return self.limit - self.used_bytes() - self.reserved - self.decompressed

    @property
    def output_room(self):
        """Bytes that a poll may decompress: at most a quarter of the limit, and at most the room that is left.

        The value is at least 1, so that a poll can always decompress one batch.
        """
        return max(1, min(self.limit // SHARES, self.limit - self.used_bytes() - self.reserved))

    cpdef int record_decompressed(self, Py_ssize_t unpacked) except -1:
        """Record that a poll decompressed `unpacked` bytes."""
        self.decompressed = max(unpacked, self.decompressed - (self.decompressed + 63) // 64)
        return 0

    cpdef int record_response(self, Py_ssize_t size, Py_ssize_t expected) except -1:
        """Record that a response uses `size` bytes of memory. At most `expected` bytes were expected."""
        cdef Py_ssize_t faded = self.least_response - (self.least_response + 7) // 8
        self.least_response = max(faded, size if size > expected else 0)
        return 0

    def per_request_limit(self, Py_ssize_t brokers):
        """Returns the maximum number of bytes to request at once if there are this many brokers.

        With this limit, there is room for two responses of each broker: one in flight, and one that is being read.
        """
        return max(1, self.limit // max(<Py_ssize_t> SHARES, 2 * brokers))

    cpdef Py_ssize_t reserve_for(self, Py_ssize_t max_bytes) except -1:
        """Returns the bytes to reserve for the response to a request for `max_bytes`.

        The result is more than `max_bytes`: more memory is allocated than the response has bytes, and the first batch
        of a response is always complete, whatever its size.
        """
        return max(max_bytes + max_bytes // 4, self.least_response)

    def usage(self):
        """Returns a text that describes what the memory is used for, with numbers of bytes."""
        held = self.held_by_caller
        return (
            f"{self.needed:,} bytes buffered, {held:,} in returned batches that are still referenced,"
            f" {self.reserved:,} requested, {self.decompressed:,} kept free for decompression, of {self.limit:,}"
        )

    def __repr__(self):
        return (
            f"<Memory {self.total} bytes, {self.held_by_caller} of them only in returned batches, {self.reserved}"
            f" requested, of {self.limit}>"
        )


cdef Py_ssize_t size_of(object memory) except -1:
    """Returns the allocated bytes of a block. Network frames and bytearrays allocate more than their length."""
    if not isinstance(memory, memoryview):
        size = getattr(memory, "capacity", None)
        if size is not None:
            return size
        memory = memoryview(memory)
    shown = memory.obj
    return shown.__alloc__() if isinstance(shown, bytearray) else memory.nbytes


@cython.final
cdef class CompletedFetch:
    """The part of a Fetch response for one partition.

    It contains one of three things: data, an error code, or the offset at which the leader's log begins to differ from
    the records that were read (`diverging_epoch`). `size` is the number of bytes received, `records` how many records
    were taken, and `record_bytes` their uncompressed size. `tally` has the sums of the whole response. `block` is the
    memory that contains the bytes, and `decompressed_block` that of the batch decompressed last. `failure` says why the
    data cannot be read, since `failed_at` (ms); it is empty if it can. `corrupt_at` is the position of corrupt bytes,
    if these are the cause. `topic_id` distinguishes topics of the same name.
    """

    def __init__(
        self,
        BufferedChain chain not None,
        int64_t fetch_offset,
        PartitionFetch data=None,
        *,
        Py_ssize_t size=0,
        int error_code=0,
        diverging_epoch=None,
        tally=None,
        block=None,
        double arrived_at=0.0,
        topic_id=None,
    ):
        self.chain, self.fetch_offset, self.data, self.size = chain, fetch_offset, data, size
        self.error_code, self.diverging_epoch, self.tally = error_code, diverging_epoch, tally
        self.block, self.arrived_at, self.topic_id = block, arrived_at, topic_id
        self.failure = ""

    @property
    def is_error(self):
        """True if this contains an error and no data."""
        return self.error_code != 0 or self.diverging_epoch is not None

    @property
    def position(self):
        """The offset of the next record to take."""
        return self.fetch_offset if self.data is None else self.data.next_offset

    def attach(self, PartitionFetch data not None):
        """Set the data. It refers to this fetch, and is created after it."""
        self.data = data

    def advance(self, Py_ssize_t taken, Py_ssize_t size):
        """Count records that were taken and their bytes, and clear an earlier failure, because reading succeeded."""
        self.records += taken
        self.record_bytes += size
        self.failure, self.corrupt_at = "", None

    def fail(self, str reason not None, double now, corrupt_at=None):
        """Store the reason why the data cannot be read. `corrupt_at` is the position of corrupt bytes, if they are the
        cause."""
        if not self.failure:
            self.failed_at = now
        self.failure, self.corrupt_at = reason, corrupt_at

    def __repr__(self):
        what = f"error {self.error_code}" if self.error_code else f"{self.size} bytes"
        return f"<CompletedFetch {self.chain.topic_partition} at {self.position}: {what}>"


cdef class BufferedChain:
    """The fields of a `FetchChain`."""

    def __init__(self, topic_partition, state, position):
        self.topic_partition, self.state, self.leader = topic_partition, state, position.leader
        self.position, self.next_offset = position.offset, position.offset
        self.fetches, self.failure = [], ""

    cdef bint has_error(self) except -1:
        """Returns True if there is an error at the end of the chain."""
        cdef CompletedFetch last
        if not self.fetches:
            return False
        last = <CompletedFetch> self.fetches[len(self.fetches) - 1]
        return last.error_code != 0 or last.diverging_epoch is not None

    cdef bint follows(self, object leader) except -1:
        """Returns True if the log of this leader is fetched."""
        return self.leader is leader or self.leader == leader

    @property
    def has_room(self):
        """True if another fetch of the partition may be sent before the buffered ones are read."""
        return self.may_grow()

    cdef bint may_grow(self) except -1:
        """Returns `has_room`.

        After a leader change, the data buffered from the old leader must be read first. The position may then have to
        be validated against the new leader's log.
        """
        if len(self.fetches) - self.has_error() >= MAX_AHEAD or self.next_offset is None:
            return False
        position = self.state.position
        return position is not None and self.follows(position.leader)

    cpdef int advance(self, int64_t offset, object leader) except -1:
        """Set the position to `offset`, because the records before it were taken. `leader` is the current leader.

        If the records came from the log of an earlier leader, the new leader's log may not contain them. Then the
        position must be validated before data of the new leader is appended (see `follow_leader`).
        """
        self.position = offset
        if not self.follows(leader):
            self.leader_changed = True
        return 0


cdef class BufferQueue:
    """The chains of all partitions, and their fetches in order of arrival.

    When an entry of `turns` is next, the oldest fetch of its chain is read, so that the order within a partition never
    changes. The entry of a fetch that was dropped or set aside stays there and is skipped, because its `in_turn_queue`
    is False.
    """

    def __init__(self, Py_ssize_t buffer_memory):
        self.memory = Memory(buffer_memory)
        self.dirty = {}         # partitions whose chain grew, shrank or was dropped
        self.chains = {}
        self.turns = deque()
        self.waiting = 0        # fetches whose `in_turn_queue` is True
        self.paused = {}        # chains of paused partitions
        self.current = None     # the fetch that is being read
        self.finished = []      # fetches read or dropped since the last call of `account`
        self.buffered = 0          # the size of all buffered fetches
        self.error = None       # the error that the next collect raises

    def find(self, tp):
        """Returns the partition's chain, or None."""
        return self.chains.get(tp)

    def accepts(self, BufferedChain chain not None, offset, leader):
        """Returns True if data that was fetched from `offset` in the log of `leader` continues the chain.

        Returns False if the chain was dropped meanwhile.
        """
        return self.chains.get(chain.topic_partition) is chain and chain.next_offset == offset and chain.follows(leader)

    cpdef int append(self, CompletedFetch fetch, object next_offset) except -1:
        """Add a fetch at the end of its chain. The next fetch starts at `next_offset`.

        `next_offset` is None if it is unknown until the data of this fetch is decoded.
        """
        cdef BufferedChain chain = fetch.chain
        if chain.has_error():
            self.clear_error(chain)
        if not chain.fetches:
            chain.buffered_since = fetch.arrived_at
        if fetch.block is not None:
            self.memory.acquire(fetch.block)
        chain.fetches.append(fetch)
        chain.next_offset = next_offset
        self.buffered += fetch.size
        self.dirty[chain.topic_partition] = None
        if not chain.set_aside:
            self.enqueue(fetch)
            self.turns.append(fetch)
        return 0

    def unpack(self, CompletedFetch fetch not None, output):
        """Count the memory `output` as used by `fetch`. A batch of this fetch was decompressed into it.

        Releases the memory of the batch that was decompressed before.
        """
        if fetch.decompressed_block is not None:
            self.memory.release(fetch.decompressed_block)
        fetch.decompressed_block = self.memory.track(output)
        self.memory.acquire(fetch.decompressed_block)

    cpdef int clear_error(self, BufferedChain chain) except -1:
        """Remove the error at the end of a chain, if there is one, because another response replaces it."""
        if chain.has_error():
            self.finish(chain.fetches.pop())
            self.dirty[chain.topic_partition] = None
        return 0

    def mark_dirty(self, tp):
        """Mark a partition as changed, so that the fetch planner assigns a broker to it again."""
        self.dirty[tp] = None

    def take_dirty(self):
        """Returns the partitions whose chain has changed since the last call."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    cpdef int account(self, FetchEvents events, double now) except -1:
        """Record the metrics of the fetches that were read or dropped since the last call. `events` may be None."""
        cdef CompletedFetch fetch
        cdef ResponseTally tally
        finished, self.finished = self.finished, []
        if events is None:
            return 0
        for fetch in finished:
            tally = fetch.tally
            if tally is not None:
                tally.add(fetch.chain.topic_partition.topic, fetch.record_bytes, fetch.records)
                if tally.unread == 0:
                    events.record_drained(tally, now)
        return 0

    def fail(self, error):
        """Store an error that the next call of `Collector.collect` raises."""
        self.error = error

    def take_failure(self):
        """Returns the error stored by `fail`, or None, and clears it."""
        error, self.error = self.error, None
        return error

    cpdef CompletedFetch peek(self):
        """Returns the fetch that is being read. If there is none, returns the next one in order of arrival, or None."""
        cdef CompletedFetch fetch
        while self.current is None and self.turns:
            fetch = <CompletedFetch> self.turns.popleft()
            if fetch.in_turn_queue:
                self.current = fetch.chain.fetches[0]
        return self.current

    cpdef int pop(self, CompletedFetch fetch) except -1:
        """Remove a fetch that has been read. It must be the first of its chain."""
        cdef BufferedChain chain = fetch.chain
        del chain.fetches[0]
        self.current = None
        self.finish(fetch)
        self.dirty[chain.topic_partition] = None
        if not chain.fetches and chain.next_offset != chain.position:
            chain.next_offset = chain.position    # the old value was unknown, or wrong because of a corrupt header
        return 0

    def requeue(self, CompletedFetch fetch not None):
        """Move a fetch behind the fetches of all other partitions, because its error was raised.

        It stays the first fetch of its chain.
        """
        self.current = None
        self.turns.append(fetch)

    cpdef bint has_data(self) except -1:
        """Returns True if data or an error can be collected. Data of paused partitions does not count."""
        return self.waiting > 0 or self.error is not None

    @property
    def has_paused(self):
        """True if a chain of a paused partition is set aside."""
        return bool(self.paused)

    @property
    def waiting_bytes(self):
        """Bytes of all buffered fetches, including those of paused partitions."""
        return self.buffered

    cpdef int enqueue(self, CompletedFetch fetch) except -1:
        """Mark the fetch as waiting to be read."""
        if not fetch.in_turn_queue:
            fetch.in_turn_queue = True
            self.waiting += 1
        return 0

    cpdef int dequeue(self, CompletedFetch fetch) except -1:
        """Mark the fetch as not waiting. Its entry in `turns` is skipped later."""
        if fetch.in_turn_queue:
            fetch.in_turn_queue = False
            self.waiting -= 1
        if self.current is fetch:
            self.current = None
        return 0

    cpdef int finish(self, CompletedFetch fetch) except -1:
        """Release the memory of a fetch that was read or dropped, and add it to the finished fetches."""
        self.dequeue(fetch)
        self.buffered -= fetch.size
        if fetch.block is not None:
            self.memory.release(fetch.block)
        if fetch.decompressed_block is not None:
            self.memory.release(fetch.decompressed_block)
        fetch.data = None
        self.finished.append(fetch)
        return 0
