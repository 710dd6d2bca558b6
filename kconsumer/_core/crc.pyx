"""Checksums over memory.

CRC-32C is computed here on x86 (see crc32c.h): for a batch of 16 KiB, the Java producer's, that takes a quarter of what
the `crc32c` package takes. Elsewhere that package does it, and CRC-32 (of formats 0 and 1) is always the standard
library's; both use the hardware, and a call costs some 50 ns for a memoryview over the bytes.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory

from kconsumer._core.wire cimport Slice, remaining


cdef extern from "crc32c.h" nogil:
    int kc_crc32c_kind() noexcept
    uint32_t kc_crc32c(int kind, const unsigned char* p, size_t size) noexcept


cdef enum:
    MANY_BYTES = 65536     # from so many on, the GIL is released

cdef int best_kind = kc_crc32c_kind()

# Imported on first use: the crc32c package takes 5 ms, for a command line of its own.
cdef object castagnoli = None
cdef object ieee = None


cdef int load() except -1:
    """Import both functions."""
    global castagnoli, ieee
    from zlib import crc32 as ieee

    from crc32c import crc32c as castagnoli
    return 0


cdef int crc32c_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """CRC-32C of `size` bytes at `p`."""
    return crc32c_by(best_kind, p, size, out)


cdef int crc32c_by(int kind, const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """The same in one of the ways there are: 0 is the package."""
    if kind == 0:
        if castagnoli is None:
            load()
        out[0] = castagnoli(PyMemoryView_FromMemory(<char*> p, size, PyBUF_READ)) if size else 0
    elif size < MANY_BYTES:
        out[0] = kc_crc32c(kind, p, <size_t> size)
    else:
        with nogil:
            out[0] = kc_crc32c(kind, p, <size_t> size)
    return 0


cdef int crc32_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """CRC-32 (IEEE) of `size` bytes at `p`."""
    if ieee is None:
        load()
    out[0] = ieee(PyMemoryView_FromMemory(<char*> p, size, PyBUF_READ)) if size else 0
    return 0


def crc32c_kinds():
    """The ways of computing CRC-32C that this machine has: numbers for `crc32c`, the best one last."""
    return tuple(range(best_kind + 1))


def crc32c(data, kind=None):
    """CRC-32C of a buffer, in the best way or a given one: the test door onto `crc32c_of`."""
    cdef Slice piece = Slice(data)
    cdef uint32_t value = 0
    cdef int chosen = best_kind if kind is None else kind
    if not 0 <= chosen <= best_kind:
        raise ValueError(f"this machine has no way {kind} of computing CRC-32C")
    crc32c_by(chosen, piece.span.p, remaining(&piece.span), &value)
    return value


def crc32(data):
    """CRC-32 (IEEE) of a buffer: the test door onto `crc32_of`."""
    cdef Slice piece = Slice(data)
    cdef uint32_t value = 0
    crc32_of(piece.span.p, remaining(&piece.span), &value)
    return value
