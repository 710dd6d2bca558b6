"""Decompresses lz4 and zstd batches without Python, zstd batches in the background before their turn comes.

Decides which batches are decompressed here: ordinary ones (see compression_frames.pyx), and of zstd the next few
batches of the partition that is being read. If decompression fails here, the caller uses a Python library, which also
reports the error. So this module affects speed only.

The functions come from the shared libraries of the packages `lz4` and `zstandard`, or else from those of the system. If
they were called through Python, the background thread would have to take the GIL twice for each batch and would wait up
to 5 ms (the switch interval) each time while the calling thread runs Python code.
"""

cimport cython
from libc.stdlib cimport realloc
from libc.string cimport memset

from kconsumer._core.batch cimport CODEC, CONTROL, FOUND_BATCH, BatchHeader, next_batch
from kconsumer._core.compression_frames cimport find_lz4_block, zstd_max_size
from kconsumer._core.wire cimport Frame, Slice, Span, new_frame, remaining, slice_of


cdef extern from "decompressor.h" nogil:
    ctypedef enum kc_codec:
        KC_LZ4
        KC_ZSTD
    bint kc_use_library(kc_codec codec, const char* library)
    bint kc_has_codec(kc_codec codec)
    Py_ssize_t kc_decompress_lz4(const unsigned char* packed, size_t size, unsigned char* memory, size_t capacity)
    kc_task* kc_task_new()
    void kc_task_submit(kc_task* task)
    void kc_decompressor_wake(kc_decompressor* decompressor)
    Py_ssize_t kc_task_end(kc_task* task, bint wanted)


cdef enum:
    LZ4 = 3                  # in a batch's attributes
    ZSTD = 4
    MIN_EXPECTED_SIZE = 1 << 12     # bytes
    MAX_EXPECTED_SIZE = 1 << 18     # larger batches are decompressed by the Python library
    MAX_PREFETCHED_BYTES = 1 << 21  # of memory in the whole process, including batches that are never taken

cdef Py_ssize_t bytes_used = 0
cdef Py_ssize_t batches_taken = 0


def use_library(str codec, str path):
    """Use this shared library for "lz4" or "zstd". Returns False if it cannot be loaded or lacks the functions."""
    return kc_use_library(KC_LZ4 if codec == "lz4" else KC_ZSTD, path.encode())


def prefetch_hits():
    """Return the number of batches that were decompressed before their turn, since the process started."""
    return batches_taken


cdef bint can_decompress() noexcept:
    return kc_has_codec(KC_LZ4) or kc_has_codec(KC_ZSTD)


cdef int shrink(Frame frame, Py_ssize_t size) noexcept:
    """Complete the frame with `size` bytes. Returns unused memory to the system if it is more than a quarter."""
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


# The garbage collector must not clear `data` and `frames`: the background thread reads and writes their memory until
# __dealloc__ has ended every task, and __dealloc__ uses `frames`. Neither attribute can be part of a reference cycle.
@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class PrefetchDecompressor:
    """Decompresses the batches of one fetch, zstd batches in the background before they are requested."""

    def __cinit__(self, Slice data):
        self.data = data
        self.reached = data.span.p
        self.frames = [None] * PLACES
        self.expected_size = 4 * MIN_EXPECTED_SIZE
        memset(self.places, 0, sizeof(self.places))

    def __dealloc__(self):
        while self.used:
            self.skip()

    cdef Slice take(self, int codec, Span body):
        """Return the decompressed batch with this body, or None if it must be decompressed elsewhere."""
        if codec == LZ4:
            return self.take_lz4(body)
        return self.take_zstd(body.p) if codec == ZSTD else None

    cdef Slice take_lz4(self, Span body):
        """Decompress a batch on the calling thread: passing it to another thread would take half the time of
        decompression."""
        cdef Span packed
        cdef Py_ssize_t most = 0, size
        cdef Frame frame
        if not kc_has_codec(KC_LZ4) or not find_lz4_block(body, &packed, &most) or most == 0:
            return None
        frame = new_frame(min(most, self.expected_size))
        size = kc_decompress_lz4(packed.p, <size_t> remaining(&packed), frame.data, <size_t> frame.size)
        if size < 0:
            return None
        shrink(frame, size)
        self.update_expected_size(size)
        return slice_of(frame, frame.data, size)

    cdef Slice take_zstd(self, const unsigned char* body):
        """Return a batch that was submitted before, waiting for it if necessary. Drops the batches before it."""
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
                self.update_expected_size(size)
                return slice_of(frame, frame.data, size)
            self.skip()
        return None

    cdef int update_expected_size(self, Py_ssize_t size) except -1:
        """Update the memory to reserve for a batch: a little more than the size of the last ones."""
        cdef Py_ssize_t decayed = self.expected_size - (self.expected_size >> 3)
        self.expected_size = min(max(size + (size >> 2), decayed, MIN_EXPECTED_SIZE), MAX_EXPECTED_SIZE)
        return 0

    cdef int prefetch(self, Span rest) except -1:
        """Submit the next batches of `rest` that were not submitted yet, as many as there are free places.

        Does nothing until half of the places are free, because waking the thread costs more than submitting a batch.
        """
        cdef BatchHeader header
        cdef kc_task* task = NULL
        cdef kc_task* last = NULL
        if self.used > PLACES // 2 or not kc_has_codec(KC_ZSTD):
            return 0
        if self.reached < rest.p:
            self.reached = rest.p
        rest.p = self.reached
        while self.used < PLACES and bytes_used < MAX_PREFETCHED_BYTES and next_batch(&rest, &header) == FOUND_BATCH:
            self.reached = rest.p
            if header.attributes & CODEC == ZSTD and not header.attributes & CONTROL:
                task = self.submit(header.body)
                if task != NULL:
                    last = task
        if last != NULL:
            kc_decompressor_wake(last.owner)
        return 0

    cdef kc_task* submit(self, Span body) except? NULL:
        """Submit a zstd batch at the next place. Returns NULL if the batch is not an ordinary one or no task is
        free."""
        cdef Py_ssize_t most = zstd_max_size(body)
        cdef int at = (self.first + self.used) % PLACES
        cdef kc_task* task
        cdef Frame frame
        global bytes_used
        if most <= 0:
            return NULL
        frame = new_frame(min(most, self.expected_size))
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
        """Drop the first batch."""
        global bytes_used
        cdef int at = self.first
        # Free the place before anything that can fail; otherwise the next call would skip it again.
        self.first = (at + 1) % PLACES
        self.used -= 1
        if not ended:
            kc_task_end(self.places[at].task, False)
        bytes_used -= self.places[at].bytes
        self.frames[at] = None
        return 0
