"""Decompresses the batches after the open one in the background, so that they are there when their turn comes.

Decides which batches that is worth trying for: ordinary lz4 and zstd ones (see frames.pyx), a few at a time, of the
partition that is being read. Every batch that is not there in time, or did not work out, is left to the caller, who
decompresses it himself and finds the words for what is wrong with it. So nothing depends on this but the time it takes.

The functions that decompress come from the libraries that the packages `lz4` and `zstandard` bring along, or else from
those of the system: called through Python they would have to wait for the GIL twice for each batch, as long as 5 ms
each time if the caller is in a loop of his own.
"""

cimport cython
from libc.stdlib cimport realloc
from libc.string cimport memset

from kconsumer._core.batch cimport CODEC, CONTROL, FOUND_BATCH, BatchHeader, next_batch
from kconsumer._core.frames cimport find_lz4_block, most_of_zstd
from kconsumer._core.wire cimport Frame, Slice, Span, new_frame, remaining, slice_of


cdef extern from "unpacker.h" nogil:
    bint kc_unpacker_use(kc_codec codec, const char* library)
    bint kc_unpacker_knows(kc_codec codec)
    bint kc_tasks_submit(kc_task* first, kc_task* last)
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


@cython.final
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

    cdef Slice take(self, const unsigned char* body):
        """What the batch with this body holds; None if it is not known here. Batches before it are let go of."""
        cdef Place* place
        cdef Py_ssize_t size
        global batches_taken
        while self.used:
            place = &self.places[self.first]
            if place.body > body:
                return None
            if place.body == body:
                batches_taken += 1
                size = kc_task_end(&place.task, True)
                frame = <Frame> self.frames[self.first]
                self.skip()
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
        cdef Place* place
        cdef kc_task* first = NULL
        cdef kc_task* last = NULL
        cdef int codec
        if self.used > PLACES // 2:
            return 0
        if self.reached < rest.p:
            self.reached = rest.p
        rest.p = self.reached
        while self.used < PLACES and bytes_used < MOST_BYTES and next_batch(&rest, &header) == FOUND_BATCH:
            self.reached = rest.p
            codec = header.attributes & CODEC
            if codec != LZ4 and codec != ZSTD or header.attributes & CONTROL:
                continue
            place = &self.places[(self.first + self.used) % PLACES]
            if not self.fill(place, codec, header.body):
                continue
            if last == NULL:
                first = &place.task
            else:
                last.next = &place.task
            last = &place.task
        if last != NULL:
            kc_tasks_submit(first, last)
        return 0

    cdef bint fill(self, Place* place, int codec, Span body) except -1:
        """Describe the task for a batch; False if it is none for this."""
        cdef Span packed = body
        cdef Py_ssize_t most = 0
        cdef Frame frame
        global bytes_used
        if codec == LZ4:
            if not kc_unpacker_knows(KC_LZ4) or not find_lz4_block(body, &packed, &most):
                return False
        elif kc_unpacker_knows(KC_ZSTD):
            most = most_of_zstd(body)
        if most <= 0:
            return False
        frame = new_frame(min(most, self.usual))
        place.body = body.p
        place.task.codec = KC_LZ4 if codec == LZ4 else KC_ZSTD
        place.task.packed = packed.p
        place.task.size = <size_t> remaining(&packed)
        place.task.memory = frame.data
        place.task.capacity = <size_t> frame.size
        self.frames[(self.first + self.used) % PLACES] = frame
        self.used += 1
        bytes_used += frame.capacity
        return True

    cdef int skip(self) noexcept:
        """Let go of the first batch."""
        global bytes_used
        kc_task_end(&self.places[self.first].task, False)
        bytes_used -= (<Frame> self.frames[self.first]).capacity
        self.frames[self.first] = None
        self.first = (self.first + 1) % PLACES
        self.used -= 1
        return 0
