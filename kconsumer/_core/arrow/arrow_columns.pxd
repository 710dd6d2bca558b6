# Columns: records as blocks of memory in Arrow's layout, with reference counts.
#
# Contents:
#     KC_…, kc_type           the kinds of columns and their types (see arrow_abi.h)
#     new_block …             allocate and free memory for columns, with a pool
#     Column, release_column  a column, and the function that drops one reference to it
#     Columns                 rows of selected columns: the items that `arrow_build.build` returns
#     kinds_of                converts names of columns to kinds

from libc.stdint cimport int32_t, int64_t


cdef extern from "arrow_abi.h" nogil:
    enum:
        KC_NULLABLE
        KC_KEY
        KC_VALUE
        KC_TOPIC
        KC_PARTITION
        KC_OFFSET
        KC_TIMESTAMP
        KC_TIMESTAMP_TYPE
        KC_HEADERS
        KC_LEADER_EPOCH
        KC_COLUMNS
        KC_ROOT

    struct kc_type:
        const char* name
        const char* format
        int n_children
        const int* children

    const kc_type* KC_TYPES
    void kc_count_up(int32_t* count) noexcept
    int32_t kc_count_down(int32_t* count) noexcept


cdef enum:
    MAX_CHILDREN = 9


cdef struct Column:
    int32_t references
    int64_t length         # number of rows
    int64_t nulls          # number of rows that are null
    int n_buffers
    void* buffers[3]       # blocks; the first is the validity bitmap, or NULL if no row is null
    int n_children
    Column* children[MAX_CHILDREN]


cdef class Columns:
    cdef Column* root             # a struct whose children are the selected columns
    cdef Column* offsets          # the offsets of the rows, even if the column `offset` was not selected
    cdef readonly tuple names


cdef void* new_block(Py_ssize_t size) noexcept nogil
cdef void* grown_block(void* data, Py_ssize_t used, Py_ssize_t size) noexcept nogil
cdef void free_block(void* data) noexcept nogil
cdef Column* new_column(int64_t length, int64_t nulls, void* valid) noexcept nogil
cdef void release_column(Column* column) noexcept nogil
cdef int kinds_of(tuple names, int* kinds) except -1
