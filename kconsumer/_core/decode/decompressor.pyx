"""Decompresses lz4 and zstd batches with C functions. zstd batches are decompressed in advance, by a background thread.

Decides which batches are decompressed here. They must have an ordinary compression frame (see compression_frames.pyx),
and zstd batches must have been submitted by `prefetch`. If decompression fails here, the caller uses a Python library,
which also reports the error. So this module affects speed only.

The functions come from the shared libraries of the packages `lz4` and `zstandard`, or otherwise from those of the
system. The background thread cannot use the Python functions of these packages, because it would have to take the GIL
twice for each batch. If the calling thread is running Python code then, the background thread waits up to 5 ms (the
switch interval) each time.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport realloc
from libc.string cimport memset

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

cdef extern from "atomics.h" nogil:
    int64_t kc_atomic_add_64(int64_t* at, int64_t number) noexcept
    int64_t kc_atomic_load_64(int64_t* at) noexcept


cdef enum:
    LZ4 = 3                  # codec numbers in the attributes of a batch
    ZSTD = 4
    MIN_EXPECTED_SIZE = 1 << 12     # bytes
    MAX_EXPECTED_SIZE = 1 << 18     # larger batches are decompressed by the Python library
    MAX_PREFETCHED_BYTES = 1 << 21  # memory for prefetched batches in the whole process, also for those never taken

cdef int64_t bytes_used = 0     # bytes of memory for prefetched batches now; atomic
cdef int64_t batches_taken = 0  # number of prefetched batches that were taken; atomic


def use_library(str codec, str path):
    """Load the shared library of the codec "lz4" or "zstd". Returns False if this fails or if a function is missing."""
    return kc_use_library(KC_LZ4 if codec == "lz4" else KC_ZSTD, path.encode())


def prefetch_hits():
    """Returns how many batches this process has decompressed in advance and then used."""
    return kc_atomic_load_64(&batches_taken)


cdef bint can_decompress() noexcept:
    return kc_has_codec(KC_LZ4) or kc_has_codec(KC_ZSTD)


cdef int shrink(Frame frame, Py_ssize_t size) noexcept:
    """Mark the frame as complete with `size` bytes. Free the rest of its memory if more than a quarter is unused."""
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
    """Decompresses the batches of one fetch: lz4 batches in `take`, zstd batches in the background before `take`."""

    def __cinit__(self, Slice data):
        self.data = data
        self.reached = data.span.p
        self.frames = [None] * SLOTS
        self.expected_size = 4 * MIN_EXPECTED_SIZE
        memset(self.slots, 0, sizeof(self.slots))

    def __dealloc__(self):
        while self.used:
            self.skip()

    cdef Slice take(self, int codec, Span body):
        """Returns the decompressed records of the batch with this body.

        Returns None if a Python library must decompress it.
        """
        if codec == LZ4:
            return self.take_lz4(body)
        return self.take_zstd(body.p) if codec == ZSTD else None

    cdef Slice take_lz4(self, Span body):
        """Decompress an lz4 batch. Returns its records, or None like `take`.

        It runs on the calling thread, because passing the batch to another thread would take half as much time as
        decompressing it.
        """
        cdef Span packed
        cdef Py_ssize_t max_size = 0, size
        cdef Frame frame
        if not kc_has_codec(KC_LZ4) or not find_lz4_block(body, &packed, &max_size) or max_size == 0:
            return None
        frame = new_frame(min(max_size, self.expected_size))
        size = kc_decompress_lz4(packed.p, <size_t> remaining(&packed), frame.data, <size_t> frame.size)
        if size < 0:
            return None
        shrink(frame, size)
        self.update_expected_size(size)
        return slice_of(frame, frame.data, size)

    cdef Slice take_zstd(self, const unsigned char* body):
        """Wait until the batch with this body is decompressed. Returns its records.

        Returns None if the batch was not submitted or cannot be decompressed here. Drops the submitted batches before
        it.
        """
        cdef Slot* slot
        cdef Py_ssize_t size
        while self.used:
            slot = &self.slots[self.first]
            if slot.body > body:
                return None
            if slot.body == body:
                kc_atomic_add_64(&batches_taken, 1)
                size = kc_task_end(slot.task, True)
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
        """Update `expected_size`, the estimated decompressed size of a batch, after a batch with `size` bytes.

        The estimate is a little above the sizes of the last batches.
        """
        cdef Py_ssize_t decayed = self.expected_size - (self.expected_size >> 3)
        self.expected_size = min(max(size + (size >> 2), decayed, MIN_EXPECTED_SIZE), MAX_EXPECTED_SIZE)
        return 0

    cdef int prefetch(self, Span rest) except -1:
        """Submit the zstd batches in `rest` that were not submitted yet to the background thread.

        Stops when all slots for submitted batches are in use, or when the memory limit is reached. Does nothing until
        half of the slots are free, because waking the thread costs more than submitting a batch.
        """
        cdef BatchHeader header
        cdef kc_task* task = NULL
        cdef kc_task* last = NULL
        if self.used > SLOTS // 2 or not kc_has_codec(KC_ZSTD):
            return 0
        if self.reached < rest.p:
            self.reached = rest.p
        rest.p = self.reached
        while (
            self.used < SLOTS
            and kc_atomic_load_64(&bytes_used) < MAX_PREFETCHED_BYTES
            and next_batch(&rest, &header) == FOUND_BATCH
        ):
            self.reached = rest.p
            if header.attributes & CODEC == ZSTD and not header.attributes & CONTROL:
                task = self.submit(header.body)
                if task != NULL:
                    last = task
        if last != NULL:
            kc_decompressor_wake(last.owner)
        return 0

    cdef kc_task* submit(self, Span body) except? NULL:
        """Submit the zstd batch with this body to the background thread, in the next free slot. Returns its task.

        Returns NULL if `zstd_max_size` does not accept the compression frame, or if the thread accepts no further task
        now.
        """
        cdef Py_ssize_t max_size = zstd_max_size(body)
        cdef int at = (self.first + self.used) % SLOTS
        cdef kc_task* task
        cdef Frame frame
        if max_size <= 0:
            return NULL
        frame = new_frame(min(max_size, self.expected_size))
        task = kc_task_new()
        if task == NULL:
            return NULL
        task.packed = body.p
        task.size = <size_t> remaining(&body)
        task.memory = frame.data
        task.capacity = <size_t> frame.size
        self.slots[at].task = task
        self.slots[at].body = body.p
        self.slots[at].bytes = frame.capacity
        self.frames[at] = frame
        self.used += 1
        kc_atomic_add_64(&bytes_used, frame.capacity)
        kc_task_submit(task)
        return task

    cdef int skip(self, bint ended=False) noexcept:
        """Remove the first submitted batch.

        `ended` is True if the caller has ended the batch's task already. Otherwise this method ends the task, too.
        """
        cdef int at = self.first
        # Free the slot before any operation that can fail. Otherwise the next call would remove the same batch again.
        self.first = (at + 1) % SLOTS
        self.used -= 1
        if not ended:
            kc_task_end(self.slots[at].task, False)
        kc_atomic_add_64(&bytes_used, -self.slots[at].bytes)
        self.frames[at] = None
        return 0
