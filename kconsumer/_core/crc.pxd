"""Checksums over memory.

Contents:
    crc32c_of      CRC-32C (Castagnoli), for v2 batches
    crc32_of       CRC-32 (IEEE), for v0 and v1 messages
"""

from libc.stdint cimport uint32_t


cdef int crc32c_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1
cdef int crc32_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1
