"""Received bytes: the blocks that hold them, views into them, and the cutting of a byte stream into frames.

Decides where received bytes live and for how long. Knows the four-byte size prefix and nothing else of the
protocol.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kconsumer.errors import ProtocolError


# --- the pool of receive blocks -----------------------------------------------------------------------------
# A fetch response of a megabyte comes again and again; giving its block back to the system each time costs
# more in page faults than receiving it. The pool is guarded by the GIL: blocks are taken and returned with it
# held.

cdef enum:
    POOL_BLOCKS = 8
    POOL_BYTES = 1 << 24
    SMALLEST_POOLED = 1 << 16

cdef struct Block:
    unsigned char* data
    Py_ssize_t capacity

cdef Block[POOL_BLOCKS] pool
cdef int pooled = 0
cdef Py_ssize_t pooled_bytes = 0


cdef Py_ssize_t rounded(Py_ssize_t size) noexcept:
    """The capacity to ask for: eight steps to each doubling, so frames of nearly one size share blocks."""
    cdef Py_ssize_t step = SMALLEST_POOLED >> 3
    if size < SMALLEST_POOLED:
        return size if size > 0 else 1
    while (step << 4) <= size:
        step <<= 1
    return (size + step - 1) & ~(step - 1)


cdef unsigned char* take_block(Py_ssize_t size, Py_ssize_t* capacity) except NULL:
    """A block of at least `size` bytes: the pool's best fit if at most a quarter too large, or a new one."""
    global pooled, pooled_bytes
    cdef int i, best = -1
    cdef unsigned char* data
    if size >= SMALLEST_POOLED:
        for i in range(pooled):
            if size <= pool[i].capacity <= size + (size >> 2) and (best < 0 or pool[i].capacity < pool[best].capacity):
                best = i
    if best >= 0:
        data = pool[best].data
        capacity[0] = pool[best].capacity
        pooled_bytes -= capacity[0]
        pooled -= 1
        pool[best] = pool[pooled]
        return data
    capacity[0] = rounded(size)
    data = <unsigned char*> malloc(<size_t> capacity[0])
    if data == NULL:
        raise MemoryError()
    return data


cdef void give_block(unsigned char* data, Py_ssize_t capacity) noexcept:
    """Take a block back: into the pool, in place of the oldest ones if it is full, or to the system."""
    global pooled, pooled_bytes
    cdef int i, dropped = 0
    if not SMALLEST_POOLED <= capacity <= POOL_BYTES:
        free(data)
        return
    while pooled - dropped == POOL_BLOCKS or pooled_bytes + capacity > POOL_BYTES:
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


# --- memory -------------------------------------------------------------------------------------------------

cdef Frame new_frame(Py_ssize_t size):
    """An empty Frame of `size` bytes, to be filled by the caller."""
    cdef Frame frame = Frame.__new__(Frame)
    frame.data = take_block(size, &frame.capacity)
    frame.size = size
    frame.filling = True
    return frame


cdef class Frame:
    """One received frame without its size prefix. Read-only to Python, through the buffer protocol."""

    def __init__(self):
        raise TypeError("frames come out of a FrameBuffer")

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
    """A read-only piece of bytes that somebody else owns and that this object keeps alive.

    `Slice(obj)` wraps any contiguous buffer without copying; `bytes(piece)` copies it out.
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
    """Cuts one connection's byte stream into frames: receive into `recv_view()`, then call `received(n)`.

    Bytes arrive in a scratch block while no frame is known; a frame that does not fit in what has arrived
    gets its own block and the rest of it is received there, without a copy. When large frames follow each other,
    memory for the next one can be had before its size is known: `prefetch_view()`, then `received_prefetched()`.
    """

    cdef readonly Py_ssize_t max_frame_bytes
    cdef Frame scratch            # whatever has arrived of prefixes and small frames
    cdef Py_ssize_t scratched     # bytes of it in use
    cdef Frame partial            # the frame being received into its own block, or None
    cdef Py_ssize_t filled        # bytes of it in use
    cdef Frame ahead              # what `prefetch_view` gave, or None
    cdef Py_ssize_t expected      # about how large the next frame is, if it is like those before

    def __cinit__(self, Py_ssize_t max_frame_bytes=2_147_483_647):
        self.max_frame_bytes = max_frame_bytes
        self.scratch = new_frame(SCRATCH_BYTES)

    def recv_view(self):
        """The writable memory the next bytes belong in; never empty. Valid until `received` is called."""
        if self.partial is not None:
            return memoryview(self.partial)[self.filled:]
        return memoryview(self.scratch)[self.scratched:]

    def received(self, Py_ssize_t count):
        """Account for `count` bytes written to `recv_view()`; the frames they complete, in order.

        Raises ProtocolError if a size prefix is negative or above `max_frame_bytes`; the stream is then
        unusable.
        """
        cdef list frames = []
        if self.partial is not None:
            if not 0 <= count <= self.partial.size - self.filled:
                raise ValueError(f"{count} bytes do not fit in what recv_view() gave")
            self.filled += count
            self.finish_partial(frames)
            return frames
        if not 0 <= count <= self.scratch.size - self.scratched:
            raise ValueError(f"{count} bytes do not fit in what recv_view() gave")
        self.scratched += count
        self.cut(frames)
        return frames

    cdef int cut(self, list frames) except -1:
        """Move whole frames out of the scratch block; start the last, incomplete one in its own block."""
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

    def ahead_view(self, Py_ssize_t least):
        """Memory for the next frame without its size; None in the middle of a frame, and unless frames of more than
        `least` bytes are what comes."""
        if self.expected <= least or self.scratched or self.partial is not None:
            return None
        self.ahead = new_frame(min(self.expected + (self.expected >> 3), self.max_frame_bytes))
        return memoryview(self.ahead)

    def received_ahead(self, bytes prefix, Py_ssize_t count):
        """Account for the bytes of a size and for `count` bytes of its frame in `prefetch_view()`; the frames they
        complete. There are none of the frame if it is larger than that view. Raises as `received`."""
        cdef list frames = []
        cdef Frame frame = self.ahead
        cdef Py_ssize_t size = 0
        if frame is None or not 0 <= count <= frame.size or len(prefix) > PREFIX_BYTES:
            raise ValueError(f"{count} bytes do not fit in what ahead_view() gave")
        if len(prefix) < PREFIX_BYTES:
            self.ahead = None
            memcpy(self.scratch.data, <const char*> prefix, <size_t> len(prefix))
            self.scratched = len(prefix)
            return frames
        size = self.size_of(<const unsigned char*> prefix)
        if not frame.capacity >> 1 <= size <= frame.size:   # a small frame must not keep much memory
            frame = new_frame(size)
            memcpy(frame.data, self.ahead.data, <size_t> min(count, size))
        self.ahead = None
        frame.size = size
        self.partial, self.filled = frame, min(count, size)
        self.finish_partial(frames)
        return frames

    cdef int finish_partial(self, list frames) except -1:
        """Give out the frame in its own block if it is complete."""
        if self.filled == self.partial.size:
            self.complete(self.partial, frames)
            self.partial = None
        return 0

    cdef int complete(self, Frame frame, list frames) except -1:
        """All bytes of a frame are there. Many small ones in a row make large ones unexpected."""
        frame.filling = False
        self.expected = max(frame.size, self.expected - (self.expected >> 2))
        frames.append(frame)
        return 0

    cdef Py_ssize_t size_of(self, const unsigned char* prefix) except -1:
        """The size that a prefix announces."""
        cdef Py_ssize_t size = <int32_t> kc_load_be32(prefix)
        if size < 0 or size > self.max_frame_bytes:
            raise ProtocolError(f"a frame of {size} bytes, the limit is {self.max_frame_bytes}")
        return size

    @property
    def pending(self):
        """Bytes received of a frame that is not complete."""
        return self.scratched if self.partial is None else self.filled + PREFIX_BYTES


# --- a door for tests ---------------------------------------------------------------------------------------

def read_one(str kind, data):
    """What a reader of wire.pxd makes of `data`: `(value, bytes taken)`, or None if it does not fit.

    `kind` is the reader's name without `read_`.
    """
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
        raise ValueError(f"no reader is called read_{kind}")
    taken = span.p - source.span.p
    if not fits:
        assert taken == 0, "a failed read moved the span"
        return None
    return value, taken
