# Computes checksums of bytes in memory.
#
# Contents:
#     crc32c_of      CRC-32C (Castagnoli), for batches of format 2
#     crc32_of       CRC-32 (IEEE), for messages of formats 0 and 1

from libc.stdint cimport uint32_t


cdef int crc32c_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1
cdef int crc32_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1
