"""Computes checksums of bytes in memory.

CRC-32C is computed by crc32c.h on x86, and by the package `crc32c` on other machines. For a batch of 16 KiB, which is
the default size of the Java producer, crc32c.h takes a quarter of the package's time. CRC-32, which formats 0 and 1
need, is computed by the standard library. Each call of the package or the standard library takes an additional 50 ns to
create a memoryview of the bytes.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory

from kconsumer._core.wire cimport Slice, remaining


cdef extern from "crc32c.h" nogil:
    int kc_crc32c_kind() noexcept
    uint32_t kc_crc32c(int kind, const unsigned char* p, size_t size) noexcept


cdef enum:
    MIN_BYTES_WITHOUT_GIL = 65536     # the GIL is released for this number of bytes or more

cdef int best_kind = kc_crc32c_kind()

# The functions of the package and of the standard library. They are imported on first use, because importing the crc32c
# package takes 5 ms.
cdef object castagnoli = None
cdef object ieee = None


cdef int load() except -1:
    """Import the functions of the package `crc32c` and of the standard library."""
    global castagnoli, ieee
    from zlib import crc32 as ieee

    from crc32c import crc32c as castagnoli
    return 0


cdef int crc32c_of(const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """Store the CRC-32C of `size` bytes at `p` in `out`."""
    return crc32c_by(best_kind, p, size, out)


cdef int crc32c_by(int kind, const unsigned char* p, Py_ssize_t size, uint32_t* out) except -1:
    """Store the CRC-32C like `crc32c_of`, computed by the method with the number `kind` (see `crc32c_kinds`).

    Method 0 is the package `crc32c`.
    """
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
    """Store the CRC-32 (IEEE) of `size` bytes at `p` in `out`."""
    if ieee is None:
        load()
    out[0] = ieee(PyMemoryView_FromMemory(<char*> p, size, PyBUF_READ)) if size else 0
    return 0


def crc32c_kinds():
    """Returns the numbers of the methods that can compute CRC-32C on this machine, the fastest last. For tests."""
    return tuple(range(best_kind + 1))


def crc32c(data, kind=None):
    """Returns the CRC-32C of a buffer. `kind`: the number of a method; None: the fastest one. For tests."""
    cdef Slice part = Slice(data)
    cdef uint32_t value = 0
    cdef int chosen = best_kind if kind is None else kind
    if not 0 <= chosen <= best_kind:
        raise ValueError(f"this machine has no method {kind} for CRC-32C")
    crc32c_by(chosen, part.span.p, remaining(&part.span), &value)
    return value


def crc32(data):
    """Returns the CRC-32 (IEEE) of a buffer. For tests."""
    cdef Slice part = Slice(data)
    cdef uint32_t value = 0
    crc32_of(part.span.p, remaining(&part.span), &value)
    return value
