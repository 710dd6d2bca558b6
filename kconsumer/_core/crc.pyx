"""Checksums over memory.

On x86 CRC-32C is computed here (see crc32c.h): for a batch of 16 KiB, the default of the Java producer, in a quarter of
the time that the package `crc32c` needs. Other machines use that package. CRC-32 (formats 0 and 1) comes from the
standard library. Both use the hardware, and a call takes about 50 ns for a memoryview of the bytes.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory

from kconsumer._core.wire cimport Slice, remaining


cdef extern from "crc32c.h" nogil:
    int kc_crc32c_kind() noexcept
    uint32_t kc_crc32c(int kind, const unsigned char* p, size_t size) noexcept


cdef enum:
    MIN_BYTES_WITHOUT_GIL = 65536     # the GIL is released for as many or more bytes

cdef int best_kind = kc_crc32c_kind()

# Imported on first use: the import of the crc32c package takes 5 ms.
cdef object castagnoli = None
cdef object ieee = None


cdef int load() except -1:
    """Import both functions."""
    global castagnoli, ieee
    from zlib import crc32 as ieee

    from crc32c import crc32c as castagnoli
    return 0


cdef int crc32c_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """Compute the CRC-32C of `size` bytes at `p`."""
    return crc32c_by(best_kind, p, size, out)


cdef int crc32c_by(int kind, const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """Compute the CRC-32C with one of the methods of `crc32c_kinds`; 0 is the package."""
    if kind == 0:
        if castagnoli is None:
            load()
        out[0] = castagnoli(PyMemoryView_FromMemory(<char*> p, size, PyBUF_READ)) if size else 0
    elif size < MIN_BYTES_WITHOUT_GIL:
        out[0] = kc_crc32c(kind, p, <size_t> size)
    else:
        with nogil:
            out[0] = kc_crc32c(kind, p, <size_t> size)
    return 0


cdef int crc32_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """Compute the CRC-32 (IEEE) of `size` bytes at `p`."""
    if ieee is None:
        load()
    out[0] = ieee(PyMemoryView_FromMemory(<char*> p, size, PyBUF_READ)) if size else 0
    return 0


def crc32c_kinds():
    """Return the methods for CRC-32C on this machine: numbers for `crc32c`, the fastest last."""
    return tuple(range(best_kind + 1))


def crc32c(data, kind=None):
    """Return the CRC-32C of a buffer by the fastest or a given method. For tests of `crc32c_of`."""
    cdef Slice part = Slice(data)
    cdef uint32_t value = 0
    cdef int chosen = best_kind if kind is None else kind
    if not 0 <= chosen <= best_kind:
        raise ValueError(f"this machine has no method {kind} for CRC-32C")
    crc32c_by(chosen, part.span.p, remaining(&part.span), &value)
    return value


def crc32(data):
    """Return the CRC-32 (IEEE) of a buffer. For tests of `crc32_of`."""
    cdef Slice part = Slice(data)
    cdef uint32_t value = 0
    crc32_of(part.span.p, remaining(&part.span), &value)
    return value
