"""Memory for received bytes, views into it, and the splitting of a byte stream into frames.

Decides where received bytes are stored and for how long. Parses only the four-byte size prefix of each frame.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kconsumer.errors import ProtocolError


# --- the pool of receive blocks -----------------------------------------------------------------------------
# A consumer receives many fetch responses of about a megabyte. If the block of each response was returned to the
# system, the page faults of the next block would cost more than receiving the bytes. Freed blocks are therefore kept in
# a pool. A thread that finds the pool locked does not wait, but uses malloc and free; that happens only without the
# GIL. So a child is not blocked either if another thread of its parent held the lock during the fork.

cdef extern from "atomics.h" nogil:
    bint kc_try_lock(int32_t* lock) noexcept
    void kc_unlock(int32_t* lock) noexcept

cdef enum:
    POOL_BLOCKS = 8
    MAX_POOL_BYTES = 1 << 24
    MIN_POOLED_BYTES = 1 << 16

cdef struct Block:
    unsigned char* data
    Py_ssize_t capacity

cdef int32_t pool_lock = 0     # guards the next three
cdef Block[POOL_BLOCKS] pool
cdef int pooled = 0
cdef Py_ssize_t pooled_bytes = 0


cdef Py_ssize_t rounded(Py_ssize_t size) noexcept:
    """Returns the capacity in bytes to allocate for `size` bytes.

    Sizes from 64 KiB on are rounded up, at most by an eighth. So frames of similar sizes can use the same block.
    """
    cdef Py_ssize_t step = MIN_POOLED_BYTES >> 3
    if size < MIN_POOLED_BYTES:
        return size if size > 0 else 1
    while (step << 4) <= size:
        step <<= 1
    return (size + step - 1) & ~(step - 1)


cdef unsigned char* take_block(Py_ssize_t size, Py_ssize_t* capacity) except NULL:
    """Returns a block of at least `size` bytes, and sets `capacity` to its size.

    Takes the smallest sufficient block from the pool. Allocates a new block if the pool has none, or if that block is
    larger than `size` by more than a quarter. Raises MemoryError.
    """
    cdef unsigned char* data = NULL
    if size >= MIN_POOLED_BYTES and kc_try_lock(&pool_lock):
        data = take_pooled(size, capacity)
        kc_unlock(&pool_lock)
    if data == NULL:
        capacity[0] = rounded(size)
        data = <unsigned char*> malloc(<size_t> capacity[0])
        if data == NULL:
            raise MemoryError()
    return data


cdef unsigned char* take_pooled(Py_ssize_t size, Py_ssize_t* capacity) noexcept:
    """Do what `take_block` does, but return NULL if the pool has no such block."""
    global pooled, pooled_bytes
    cdef int i, best = -1
    cdef unsigned char* data
    for i in range(pooled):
        if size <= pool[i].capacity <= size + (size >> 2) and (best < 0 or pool[i].capacity < pool[best].capacity):
            best = i
    if best < 0:
        return NULL
    data = pool[best].data
    capacity[0] = pool[best].capacity
    pooled_bytes -= capacity[0]
    pooled -= 1
    pool[best] = pool[pooled]
    return data


cdef void give_block(unsigned char* data, Py_ssize_t capacity) noexcept:
    """Put a block into the pool. If the pool is full, first frees its oldest blocks.

    A block that is too small or too large for the pool is freed instead.
    """
    global pooled, pooled_bytes
    cdef int i, dropped = 0
    if not MIN_POOLED_BYTES <= capacity <= MAX_POOL_BYTES or not kc_try_lock(&pool_lock):
        free(data)
        return
    while pooled - dropped == POOL_BLOCKS or pooled_bytes + capacity > MAX_POOL_BYTES:
        free(pool[dropped].data)
        pooled_bytes -= pool[dropped].capacity
        dropped += 1
    if dropped:
        pooled -= dropped
        for i in range(pooled):
            pool[i] = pool[i + dropped]
    pool[pooled].data = data
    pool[pooled].capacity = capacity
    pooled += 1
    pooled_bytes += capacity
    kc_unlock(&pool_lock)


# --- memory -------------------------------------------------------------------------------------------------

cdef Frame new_frame(Py_ssize_t size):
    """Returns a Frame of `size` uninitialized bytes for the caller to fill."""
    cdef Frame frame = Frame.__new__(Frame)
    frame.data = take_block(size, &frame.capacity)
    frame.size = size
    frame.filling = True
    return frame


cdef class Frame:
    """One received frame without its size prefix. Python code reads it through the buffer protocol."""

    def __init__(self):
        raise TypeError("frames are created by a FrameBuffer")

    def __dealloc__(self):
        if self.data != NULL:
            give_block(self.data, self.capacity)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE and not self.filling:
            raise BufferError("a received frame is read-only")
        PyBuffer_FillInfo(view, self, self.data, self.size, not self.filling, flags)

    def __len__(self):
        return self.size

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<char*> self.data, self.size)

    def __repr__(self):
        return f"<Frame of {self.size} bytes>"


cdef class Slice:
    """A read-only part of another object's buffer. Its reference to the object keeps the buffer alive.

    `Slice(obj)` wraps any contiguous buffer without copying it. `bytes(slice)` returns a copy.
    """

    def __cinit__(self, source=None):
        cdef Py_buffer* view
        if source is None:
            return
        if isinstance(source, Frame) and not (<Frame> source).filling:
            self.owner = source
            self.span.p = (<Frame> source).data
            self.span.end = self.span.p + (<Frame> source).size
            return
        self.owner = memoryview(source)
        view = PyMemoryView_GET_BUFFER(self.owner)
        if not self.owner.c_contiguous:
            raise BufferError("the buffer is not contiguous")
        self.span.p = <const unsigned char*> view.buf
        self.span.end = self.span.p + view.len

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*> self.span.p, self.span.end - self.span.p, True, flags)

    def __len__(self):
        return self.span.end - self.span.p

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char*> self.span.p, self.span.end - self.span.p)

    def __eq__(self, other):
        if isinstance(other, Slice):
            return bytes(self) == bytes(other)
        if isinstance(other, (bytes, bytearray, memoryview)):
            return bytes(self) == bytes(other)
        return NotImplemented

    __hash__ = None

    def __repr__(self):
        return f"<Slice of {len(self)} bytes>"


# --- the byte stream ----------------------------------------------------------------------------------------

cdef enum:
    SCRATCH_BYTES = 1 << 16
    PREFIX_BYTES = 4


cdef class FrameBuffer:
    """Splits one connection's byte stream into frames.

    The caller receives bytes into `recv_view()`, and then calls `received(n)`, which returns the completed frames.

    While the size of the next frame is unknown, bytes are received into a scratch block. If a frame is not complete in
    the scratch block, it gets its own block, and the rest of the frame is received directly into that block.

    If the next frame is expected to be large, the caller can receive all of it directly into its own block. The caller
    then uses `prefetch_view()` and `received_prefetched()` in place of the two methods above.
    """

    def __cinit__(self, Py_ssize_t max_frame_bytes=2_147_483_647):
        self.max_frame_bytes = max_frame_bytes
        self.scratch = new_frame(SCRATCH_BYTES)
        self.scratch_view = memoryview(self.scratch)

    cpdef object recv_view(self):
        """Returns a writable memoryview to receive the next bytes into. It is never empty.

        It is valid until `received` is called.
        """
        if self.partial is not None:
            return memoryview(self.partial)[self.filled:]
        return self.scratch_view[self.scratched:] if self.scratched else self.scratch_view

    cpdef list received(self, Py_ssize_t count):
        """Process `count` bytes that were written to `recv_view()`. Returns the completed frames in order.

        Raises ProtocolError if a size prefix is negative or above `max_frame_bytes`. Then the FrameBuffer cannot be
        used any more.
        """
        cdef list frames = []
        if self.partial is not None:
            if not 0 <= count <= self.partial.size - self.filled:
                raise ValueError(f"{count} bytes do not fit into recv_view()")
            self.filled += count
            self.finish_partial(frames)
            return frames
        if not 0 <= count <= self.scratch.size - self.scratched:
            raise ValueError(f"{count} bytes do not fit into recv_view()")
        self.scratched += count
        self.cut(frames)
        return frames

    cdef int cut(self, list frames) except -1:
        """Move the frames from the scratch block into their own blocks. Appends complete frames to `frames`.

        An incomplete last frame becomes `partial`. An incomplete size prefix remains in the scratch block.
        """
        cdef unsigned char* base = self.scratch.data
        cdef Py_ssize_t at = 0, size, have
        cdef Frame frame
        while self.scratched - at >= PREFIX_BYTES:
            size = self.size_of(base + at)
            have = min(size, self.scratched - at - PREFIX_BYTES)
            frame = new_frame(size)
            memcpy(frame.data, base + at + PREFIX_BYTES, <size_t> have)
            at += PREFIX_BYTES + have
            if have < size:
                self.partial, self.filled = frame, have
                break
            self.complete(frame, frames)
        self.scratched -= at
        if at and self.scratched:
            memcpy(base, base + at, <size_t> self.scratched)   # at most three bytes of the next prefix
        return 0

    cpdef object prefetch_view(self, Py_ssize_t min_bytes):
        """Returns a writable memoryview to receive the next frame into, without its size prefix.

        Returns None if bytes of the next frame were already received, or if it is expected to have at most `min_bytes`
        bytes.
        """
        if self.expected <= min_bytes or self.scratched or self.partial is not None:
            return None
        self.prefetch = new_frame(min(self.expected + (self.expected >> 3), self.max_frame_bytes))
        return memoryview(self.prefetch)

    cpdef list received_prefetched(self, bytes prefix, Py_ssize_t count):
        """Process a frame whose first `count` bytes were received into `prefetch_view()`.

        `prefix`: the received bytes of its size prefix, at most four. `count` must be 0 if the frame is larger than the
        view, or if the prefix is incomplete. Returns a list of the frame, or an empty list if the frame is incomplete.
        Raises ProtocolError like `received`.
        """
        cdef list frames = []
        cdef Frame frame = self.prefetch
        cdef Py_ssize_t size = 0
        if frame is None or not 0 <= count <= frame.size or len(prefix) > PREFIX_BYTES:
            raise ValueError(f"{count} bytes do not fit into prefetch_view()")
        if len(prefix) < PREFIX_BYTES:
            self.prefetch = None
            memcpy(self.scratch.data, <const char*> prefix, <size_t> len(prefix))
            self.scratched = len(prefix)
            return frames
        size = self.size_of(<const unsigned char*> prefix)
        if not frame.capacity >> 1 <= size <= frame.size:   # a small frame must not occupy a large block
            frame = new_frame(size)
            memcpy(frame.data, self.prefetch.data, <size_t> min(count, size))
        self.prefetch = None
        frame.size = size
        self.partial, self.filled = frame, min(count, size)
        self.finish_partial(frames)
        return frames

    cdef int finish_partial(self, list frames) except -1:
        """If the frame `partial` has all of its bytes now, append it to `frames` and set `partial` to None."""
        if self.filled == self.partial.size:
            self.complete(self.partial, frames)
            self.partial = None
        return 0

    cdef int complete(self, Frame frame, list frames) except -1:
        """Append a complete frame to `frames`, and update `expected`, the estimated size of the next frame.

        After a frame that is larger than the estimate, the estimate is the size of this frame. After each smaller
        frame, it decreases by a quarter.
        """
        frame.filling = False
        self.expected = max(frame.size, self.expected - (self.expected >> 2))
        frames.append(frame)
        return 0

    cdef Py_ssize_t size_of(self, const unsigned char* prefix) except -1:
        """Returns the frame size in a size prefix.

        Raises ProtocolError if the size is negative or above `max_frame_bytes`.
        """
        cdef Py_ssize_t size = <int32_t> kc_load_be32(prefix)
        if size < 0 or size > self.max_frame_bytes:
            raise ProtocolError(f"a frame of {size} bytes, the limit is {self.max_frame_bytes}")
        return size

    @property
    def pending(self):
        """The number of received bytes of an incomplete frame, including its size prefix."""
        return self.scratched if self.partial is None else self.filled + PREFIX_BYTES

    @property
    def missing(self):
        """The number of bytes of the incomplete frame that have not arrived; 0 if its size is not known yet."""
        return 0 if self.partial is None else self.partial.size - self.filled


# --- for tests ---------------------------------------------------------------------------------------

def read_one(str kind, data):
    """Call the function `read_<kind>` of wire.pxd. Returns `(value, bytes read)`, or None for an incomplete value."""
    cdef Slice source = Slice(data)
    cdef Span span = source.span
    cdef int8_t i8 = 0
    cdef int16_t i16 = 0
    cdef uint16_t u16 = 0
    cdef int32_t i32 = 0
    cdef uint32_t u32 = 0
    cdef int64_t i64 = 0
    cdef uint64_t u64 = 0
    cdef bint fits
    cdef object value
    if kind == "i8":
        fits, value = read_i8(&span, &i8), i8
    elif kind == "i16":
        fits, value = read_i16(&span, &i16), i16
    elif kind == "u16":
        fits, value = read_u16(&span, &u16), u16
    elif kind == "i32":
        fits, value = read_i32(&span, &i32), i32
    elif kind == "u32":
        fits, value = read_u32(&span, &u32), u32
    elif kind == "i64":
        fits, value = read_i64(&span, &i64), i64
    elif kind == "uvarint":
        fits, value = read_uvarint(&span, &u32), u32
    elif kind == "uvarlong":
        fits, value = read_uvarlong(&span, &u64), u64
    elif kind == "varint":
        fits, value = read_varint(&span, &i32), i32
    elif kind == "varlong":
        fits, value = read_varlong(&span, &i64), i64
    else:
        raise ValueError(f"there is no reader read_{kind}")
    taken = span.p - source.span.p
    if not fits:
        assert taken == 0, "a failed read moved the span"
        return None
    return value, taken
