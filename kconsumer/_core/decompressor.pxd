"""Decompression without Python; decompressor.pyx says how.

Contents:
    Ahead                  decompresses one stretch of batches, zstd before it is asked
    can_unpack             whether there is a codec that this can be done for
"""

from kconsumer._core.wire cimport Slice, Span


cdef extern from "decompressor.h" nogil:
    ctypedef struct kc_unpacker:
        pass
    ctypedef struct kc_task:
        kc_unpacker* owner
        const unsigned char* packed
        size_t size
        unsigned char* memory
        size_t capacity


cdef enum:
    PLACES = 32              # batches of one partition under way or done


cdef struct Place:
    kc_task* task
    const unsigned char* body    # of the batch
    Py_ssize_t bytes             # of memory, as counted in `bytes_used`


cdef bint can_unpack() noexcept


cdef class Ahead:
    cdef Slice data              # the fetched bytes
    cdef const unsigned char* reached    # the first batch that nobody has looked at
    cdef Place[PLACES] places    # a ring
    cdef list frames             # memory of the places
    cdef int first, used
    cdef Py_ssize_t usual        # about how many bytes a batch comes to

    cdef Slice take(self, int codec, Span body)
    cdef Slice take_lz4(self, Span body)
    cdef Slice take_zstd(self, const unsigned char* body)
    cdef int look(self, Span rest) except -1
    cdef int learn(self, Py_ssize_t size) except -1
    cdef int skip(self, bint ended=*) noexcept
    cdef kc_task* submit(self, Span body) except? NULL
