# Encodes messages, as a Program (a compiled plan) describes them.

from libc.stdint cimport int8_t, int16_t, int32_t, uint32_t


cdef struct Target:
    unsigned char* data     # memory from realloc, which the creator of the Target must free
    Py_ssize_t size         # number of written bytes
    Py_ssize_t capacity     # number of allocated bytes


cdef int write_message(Program program, object message, Target* target) except -1
cdef int write_i16(Target* target, int16_t value) except -1
cdef int write_i32(Target* target, int32_t value) except -1
cdef int write_uvarint(Target* target, uint32_t value) except -1
cdef int write_raw(Target* target, const void* data, Py_ssize_t size) except -1
