"""Columns: blocks of memory with a counter. Whoever lets go last, in any thread and without the GIL, frees.

Decides how long columns live, and which there are. How they are filled is decided in `filling`, with what in
`building`, and how others get at them in `arrow`.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free


cdef extern from "blocks.h" nogil:
    void* kc_block_new(size_t size) noexcept
    void* kc_block_grow(void* data, size_t used, size_t size) noexcept
    void kc_block_free(void* data) noexcept


COLUMNS = tuple([KC_TYPES[kind].name.decode() for kind in range(KC_COLUMNS)])


cdef void* new_block(Py_ssize_t size) noexcept nogil:
    """Memory for a column, never of no bytes; NULL without memory."""
    return kc_block_new(<size_t> size + 8)


cdef void* grown_block(void* data, Py_ssize_t used, Py_ssize_t size) noexcept nogil:
    """More memory in place of `data`, with its first `used` bytes; NULL, and `data` as it was, without memory."""
    return kc_block_grow(data, <size_t> used, <size_t> size + 8)


cdef void free_block(void* data) noexcept nogil:
    """Give back what new_block gave."""
    kc_block_free(data)


cdef Column* new_column(int64_t length, int64_t nulls, void* valid) noexcept nogil:
    """A column with one reference, which takes over `valid`; NULL, and `valid` freed, without memory."""
    cdef Column* column = <Column*> calloc(1, sizeof(Column))
    if column == NULL:
        kc_block_free(valid)
        return NULL
    column.references = 1
    column.length = length
    column.nulls = nulls
    column.n_buffers = 1
    column.buffers[0] = valid
    if valid != NULL and nulls == 0:
        kc_block_free(valid)
        column.buffers[0] = NULL
    return column


cdef void let_go(Column* column) noexcept nogil:
    """Give up one reference; the last one frees."""
    cdef int i
    if column == NULL or kc_count_down(&column.references):
        return
    for i in range(3):
        kc_block_free(column.buffers[i])
    for i in range(column.n_children):
        let_go(column.children[i])
    free(column)


@cython.final
@cython.auto_pickle(False)
cdef class Columns:
    """Rows of chosen columns. What is exported of them (see `arrow`) outlives this object."""

    def __init__(self):
        raise TypeError("columns come out of build()")

    def __dealloc__(self):
        let_go(self.root)
        let_go(self.offsets)

    def __len__(self):
        return self.root.length

    def gaps(self, int64_t start, int64_t end=-1):
        """Offsets from `start` to `end` (or to the last row) that no row has: pairs of first one and the one after."""
        cdef int64_t* offset = <int64_t*> self.offsets.buffers[1]
        cdef int64_t row
        found = []
        for row in range(self.offsets.length):
            if offset[row] > start:
                found.append((start, offset[row]))
            start = offset[row] + 1
        if start < end:
            found.append((start, end))
        return found


cdef int kinds_of(tuple names, int* kinds) except -1:
    """The columns of these names; how many they are. ValueError unless each is one of COLUMNS, and there once."""
    cdef int count = 0
    if len(set(names)) != len(names):
        raise ValueError(f"a column is named twice: {names}")
    for name in names:
        kinds[count] = <int> COLUMNS.index(name)
        count += 1
    return count
