"""Columns: blocks of memory with a reference count. Any thread may drop a reference without the GIL.

Decides which columns exist and how long they live. arrow_fill.pyx fills them, arrow_build.pyx chooses the records, and
arrow.pyx exports them.
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
    """Allocate a block of at least `size` bytes, never of zero bytes. Returns NULL if memory is exhausted."""
    return kc_block_new(<size_t> size + 8)


cdef void* grown_block(void* data, Py_ssize_t used, Py_ssize_t size) noexcept nogil:
    """Returns a block of at least `size` bytes that begins with the first `used` bytes of `data`, which is freed.

    If memory is exhausted, returns NULL and does not free `data`.
    """
    return kc_block_grow(data, <size_t> used, <size_t> size + 8)


cdef void free_block(void* data) noexcept nogil:
    """Free a block that `new_block` or `grown_block` returned."""
    kc_block_free(data)


cdef Column* new_column(int64_t length, int64_t nulls, void* valid) noexcept nogil:
    """Returns a column with one reference. It takes the ownership of `valid`, its validity bitmap, which may be NULL.

    If memory is exhausted, frees `valid` and returns NULL.
    """
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


cdef void release_column(Column* column) noexcept nogil:
    """Drop one reference. If it was the last one, free the column and drop its references to its children."""
    cdef int i
    if column == NULL or kc_count_down(&column.references):
        return
    for i in range(3):
        kc_block_free(column.buffers[i])
    for i in range(column.n_children):
        release_column(column.children[i])
    free(column)


@cython.final
@cython.auto_pickle(False)
cdef class Columns:
    """Rows in columnar form, with the selected columns only. Exported arrays (arrow.pyx) may outlive this object."""

    def __init__(self):
        raise TypeError("columns are created by build()")

    def __dealloc__(self):
        release_column(self.root)
        release_column(self.offsets)

    def __len__(self):
        return self.root.length

    def gaps(self, int64_t start, int64_t end=-1):
        """Returns the ranges of offsets that have no row, as pairs (first offset, offset after the last).

        Covers the offsets from `start` up to, not including, `end`. If the last row has a higher offset than `end`,
        covers the offsets up to this row instead.
        """
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
    """Store the kinds (KC_KEY, …) of the columns `names` in `kinds`. Returns the number of columns.

    Raises ValueError for an unknown name and for a name that occurs twice.
    """
    cdef int count = 0
    if len(set(names)) != len(names):
        raise ValueError(f"a column is named twice: {names}")
    for name in names:
        kinds[count] = <int> COLUMNS.index(name)
        count += 1
    return count
