# Decodes messages, as a Program (a compiled plan) describes them.

from cpython.object cimport PyObject

from kconsumer._core.wire cimport Slice, Span


cdef struct Source:
    Span span               # the bytes that were not decoded yet
    const unsigned char* start   # the first byte of the buffer, for positions in error messages
    PyObject* owner         # a borrowed reference to the object that keeps the bytes alive; Slices refer to it


cdef int open_source(Slice whole, Py_ssize_t offset, Source* source) except -1
cdef object read_message(Program program, Source* source)
cdef int read_tags(Program program, object message, Source* source) except -1
cdef int finish(Program program, Source* source) except -1
cdef malformed(Program program, Op* op, Source* source, str problem)
