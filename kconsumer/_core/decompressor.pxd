"""Decompression without Python; see decompressor.pyx.

Contents:
    PrefetchDecompressor   decompresses the batches of one fetch, zstd batches in advance
    can_decompress         whether the functions of any codec are available
"""

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
    PLACES = 32              # batches of one partition that are submitted or decompressed


cdef struct Place:
    kc_task* task
    const unsigned char* body    # of the batch
    Py_ssize_t bytes             # of memory, as counted in `bytes_used`


cdef bint can_decompress() noexcept


cdef class PrefetchDecompressor:
    cdef Slice data              # the fetched bytes
    cdef const unsigned char* reached    # the first batch that was not considered yet
    cdef Place[PLACES] places    # a ring buffer
    cdef list frames             # the memory of each place
    cdef int first, used
    cdef Py_ssize_t expected_size        # estimated decompressed size of a batch in bytes

    cdef Slice take(self, int codec, Span body)
    cdef Slice take_lz4(self, Span body)
    cdef Slice take_zstd(self, const unsigned char* body)
    cdef int prefetch(self, Span rest) except -1
    cdef int update_expected_size(self, Py_ssize_t size) except -1
    cdef int skip(self, bint ended=*) noexcept
    cdef kc_task* submit(self, Span body) except? NULL
