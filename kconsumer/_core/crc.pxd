"""Checksums over memory.

Contents:
    crc32c_of      Castagnoli, of v2 batches
    crc32_of       IEEE, of v0 and v1 messages
"""

from libc.stdint cimport uint32_t


cdef int crc32c_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1
cdef int crc32_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1
