"""Decompresses lz4 and zstd batches without Python, zstd batches in the background before their turn comes.

Decides which batches that is worth trying for: ordinary ones (see compression_frames.pyx), and of zstd a few at a time
of the partition being read. Every batch that did not work out is left to the caller, who decompresses it through Python
and finds the words for what is wrong with it. So nothing depends on this but the time it takes.

The functions that decompress come from the libraries that the packages `lz4` and `zstandard` bring along, or else from
those of the system: called through Python they would have to wait for the GIL twice for each batch, as long as 5 ms
each time if the caller is in a loop of his own.
"""

cimport cython
from libc.stdlib cimport realloc
from libc.string cimport memset

from kconsumer._core.batch cimport CODEC, CONTROL, FOUND_BATCH, BatchHeader, next_batch
from kconsumer._core.compression_frames cimport find_lz4_block, most_of_zstd
from kconsumer._core.wire cimport Frame, Slice, Span, new_frame, remaining, slice_of


cdef extern from "decompressor.h" nogil:
    ctypedef enum kc_codec:
        KC_LZ4
        KC_ZSTD
    bint kc_unpacker_use(kc_codec codec, const char* library)
    bint kc_unpacker_knows(kc_codec codec)
    Py_ssize_t kc_unpack_lz4(const unsigned char* packed, size_t size, unsigned char* memory, size_t capacity)
    kc_task* kc_task_new()
    void kc_task_submit(kc_task* task)
    void kc_unpacker_wake(kc_unpacker* unpacker)
    Py_ssize_t kc_task_end(kc_task* task, bint wanted)


cdef enum:
    LZ4 = 3                  # in a batch's attributes
    ZSTD = 4
    LEAST_USUAL = 1 << 12    # bytes
    MOST_USUAL = 1 << 18     # larger batches pay for their own way
    MOST_BYTES = 1 << 21     # of memory for all partitions together, also of those that are not read on after all

cdef Py_ssize_t bytes_used = 0
cdef Py_ssize_t batches_taken = 0


def use_library(str codec, str path):
    """Have "lz4" or "zstd" decompressed by this library; False if it cannot be loaded or lacks the functions."""
    return kc_unpacker_use(KC_LZ4 if codec == "lz4" else KC_ZSTD, path.encode())


def taken_ahead():
    """How many batches were ready when their turn came, since the process began."""
    return batches_taken


cdef bint can_unpack() noexcept:
    return kc_unpacker_knows(KC_LZ4) or kc_unpacker_knows(KC_ZSTD)


cdef int shrink(Frame frame, Py_ssize_t size) noexcept:
    """The frame is complete with so many bytes; give back what is left of its memory if that is much."""
    cdef unsigned char* data
    frame.size = size
    frame.filling = False
    if size > frame.capacity - (frame.capacity >> 2) or size == 0:
        return 0
    data = <unsigned char*> realloc(frame.data, <size_t> size)
    if data != NULL:
        frame.data = data
        frame.capacity = size
    return 0


# The cycle collector must not clear `data` and `frames`: the thread reads and writes that memory until __dealloc__ has
# taken every task back, and __dealloc__ needs the frames. Neither can be part of a cycle.
@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Ahead:
    """What is decompressed ahead in one stretch of batches."""

    def __cinit__(self, Slice data):
        self.data = data
        self.reached = data.span.p
        self.frames = [None] * PLACES
        self.usual = 4 * LEAST_USUAL
        memset(self.places, 0, sizeof(self.places))

    def __dealloc__(self):
        while self.used:
            self.skip()

    cdef Slice take(self, int codec, Span body):
        """What the batch with this body holds; None if that is not known here."""
        if codec == LZ4:
            return self.take_lz4(body)
        return self.take_zstd(body.p) if codec == ZSTD else None

    cdef Slice take_lz4(self, Span body):
        """Decompressed now: to hand a batch over and back takes half as long as this."""
        cdef Span packed
        cdef Py_ssize_t most = 0, size
        cdef Frame frame
        if not kc_unpacker_knows(KC_LZ4) or not find_lz4_block(body, &packed, &most) or most == 0:
            return None
        frame = new_frame(min(most, self.usual))
        size = kc_unpack_lz4(packed.p, <size_t> remaining(&packed), frame.data, <size_t> frame.size)
        if size < 0:
            return None
        shrink(frame, size)
        self.learn(size)
        return slice_of(frame, frame.data, size)

    cdef Slice take_zstd(self, const unsigned char* body):
        """Decompressed before, or now; batches before it are let go of."""
        cdef Place* place
        cdef Py_ssize_t size
        global batches_taken
        while self.used:
            place = &self.places[self.first]
            if place.body > body:
                return None
            if place.body == body:
                batches_taken += 1
                size = kc_task_end(place.task, True)
                frame = <Frame> self.frames[self.first]
                self.skip(True)
                if size < 0:
                    return None
                shrink(frame, size)
                self.learn(size)
                return slice_of(frame, frame.data, size)
            self.skip()
        return None

    cdef int learn(self, Py_ssize_t size) except -1:
        """A batch came to so many bytes: have a little more ready for the next ones."""
        self.usual = min(max(size + (size >> 2), self.usual - (self.usual >> 3), LEAST_USUAL), MOST_USUAL)
        return 0

    cdef int look(self, Span rest) except -1:
        """Have the batches at the front of `rest` decompressed, those that were not looked at yet, as many as have a
        place. Waits until half of the places are free: to wake the thread costs more than to hand it a batch."""
        cdef BatchHeader header
        cdef kc_task* task = NULL
        cdef kc_task* last = NULL
        if self.used > PLACES // 2 or not kc_unpacker_knows(KC_ZSTD):
            return 0
        if self.reached < rest.p:
            self.reached = rest.p
        rest.p = self.reached
        while self.used < PLACES and bytes_used < MOST_BYTES and next_batch(&rest, &header) == FOUND_BATCH:
            self.reached = rest.p
            if header.attributes & CODEC == ZSTD and not header.attributes & CONTROL:
                task = self.submit(header.body)
                if task != NULL:
                    last = task
        if last != NULL:
            kc_unpacker_wake(last.owner)
        return 0

    cdef kc_task* submit(self, Span body) except? NULL:
        """Have a zstd batch decompressed at the next place; NULL if it is none for this, or not the time."""
        cdef Py_ssize_t most = most_of_zstd(body)
        cdef int at = (self.first + self.used) % PLACES
        cdef kc_task* task
        cdef Frame frame
        global bytes_used
        if most <= 0:
            return NULL
        frame = new_frame(min(most, self.usual))
        task = kc_task_new()
        if task == NULL:
            return NULL
        task.packed = body.p
        task.size = <size_t> remaining(&body)
        task.memory = frame.data
        task.capacity = <size_t> frame.size
        self.places[at].task = task
        self.places[at].body = body.p
        self.places[at].bytes = frame.capacity
        self.frames[at] = frame
        self.used += 1
        bytes_used += frame.capacity
        kc_task_submit(task)
        return task

    cdef int skip(self, bint ended=False) noexcept:
        """Let go of the first batch."""
        global bytes_used
        cdef int at = self.first
        # First what cannot fail: a place that stayed in use would be skipped again and again.
        self.first = (at + 1) % PLACES
        self.used -= 1
        if not ended:
            kc_task_end(self.places[at].task, False)
        bytes_used -= self.places[at].bytes
        self.frames[at] = None
        return 0
