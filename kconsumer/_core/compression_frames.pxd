"""What ordinary compressed batches say of themselves, for compiled code; compression_frames.pyx tells the rest."""

from kconsumer._core.wire cimport Span


cdef bint find_lz4_block(Span frame, Span* block, Py_ssize_t* most) noexcept nogil
cdef Py_ssize_t most_of_zstd(Span frame) noexcept nogil
