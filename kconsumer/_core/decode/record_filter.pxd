# RecordTest: selects records by their bytes, without creating Python objects.

from kconsumer._core.wire cimport Span


cdef class RecordTest:
    cdef readonly bytes name        # of a header, in UTF-8; None: the key is tested
    cdef readonly bytes value       # of the header, None for null; or the first bytes of the key
    # Where these bytes are. They live as long as the object, because it is never initialized again.
    cdef const unsigned char* name_at
    cdef const unsigned char* value_at
    cdef Py_ssize_t name_size
    cdef Py_ssize_t value_size      # -1: null


cdef bint passes(RecordTest test, const unsigned char* key, Py_ssize_t key_size, Span headers) noexcept nogil
