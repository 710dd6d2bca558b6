# Decompresses lz4 and zstd batches with C functions, without Python libraries; see decompressor.pyx.
#
# Contents:
#     PrefetchDecompressor   decompresses the batches of one fetch, and zstd batches in advance
#     can_decompress         returns whether the C functions of any codec are available

from kconsumer._core.wire cimport Slice, Span


cdef extern from "decompressor.h" nogil:
    ctypedef struct kc_decompressor:
        pass
    ctypedef struct kc_task:
        kc_decompressor* owner
        const unsigned char* packed
        size_t size
        unsigned char* memory
        size_t capacity


cdef enum:
    SLOTS = 32               # maximum number of batches of one fetch that are waiting, being decompressed or finished


cdef struct Slot:
    kc_task* task
    const unsigned char* body    # start of the compressed records; identifies the batch
    Py_ssize_t bytes             # bytes of memory for the decompressed batch, which are counted in `bytes_used`


cdef bint can_decompress() noexcept


cdef class PrefetchDecompressor:
    cdef Slice data              # the fetched bytes
    cdef const unsigned char* reached    # start of the first batch that `prefetch` has not examined
    cdef Slot[SLOTS] slots       # a ring buffer of submitted batches
    cdef list frames             # for each slot, the Frame to decompress into, or None
    cdef int first, used         # index of the first used slot, and number of used slots
    cdef Py_ssize_t expected_size        # estimated decompressed size of a batch in bytes

    cdef Slice take(self, int codec, Span body)
    cdef Slice take_lz4(self, Span body)
    cdef Slice take_zstd(self, const unsigned char* body)
    cdef int prefetch(self, Span rest) except -1
    cdef int update_expected_size(self, Py_ssize_t size) except -1
    cdef int skip(self, bint ended=*) noexcept
    cdef kc_task* submit(self, Span body) except? NULL
