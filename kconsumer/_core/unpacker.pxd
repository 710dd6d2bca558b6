"""Decompression ahead of need; unpacker.pyx says how.

Contents:
    Ahead                  the batches after the open one, being decompressed in the background
    can_unpack             whether there is a codec that this can be done for
"""

from kconsumer._core.wire cimport Slice, Span


cdef extern from "unpacker.h" nogil:
    ctypedef enum kc_task_state:
        KC_IDLE
        KC_WAITING
        KC_RUNNING
        KC_DONE
    ctypedef enum kc_codec:
        KC_LZ4
        KC_ZSTD
    ctypedef struct kc_task:
        kc_task_state state
        kc_codec codec
        const unsigned char* packed
        size_t size
        unsigned char* memory
        size_t capacity
        kc_task* next


cdef enum:
    PLACES = 32              # batches of one partition under way or done


cdef struct Place:
    kc_task task
    const unsigned char* body    # of the batch


cdef bint can_unpack() noexcept


cdef class Ahead:
    cdef Slice data              # the fetched bytes
    cdef const unsigned char* reached    # the first batch that nobody has looked at
    cdef Place[PLACES] places    # a ring
    cdef list frames             # memory of the places
    cdef int first, used
    cdef Py_ssize_t usual        # about how many bytes a batch comes to

    cdef Slice take(self, const unsigned char* body)
    cdef int look(self, Span rest) except -1
    cdef int learn(self, Py_ssize_t size) except -1
    cdef int skip(self) noexcept
    cdef bint fill(self, Place* place, int codec, Span body) except -1
