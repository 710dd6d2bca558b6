# Parses compression frames for compiled code; see compression_frames.pyx.

from kconsumer._core.wire cimport Span


cdef bint find_lz4_block(Span frame, Span* block, Py_ssize_t* max_size) noexcept nogil
cdef Py_ssize_t zstd_max_size(Span frame) noexcept nogil
