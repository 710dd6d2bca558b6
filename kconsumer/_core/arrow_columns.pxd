"""Columns: records as blocks of memory in the layout of Arrow, each with a counter of who uses it.

Contents:
    KC_…, kc_type       the columns and their types, as arrow_abi.h has them
    new_block …         memory for them, of which some is kept for the next ones
    Column, let_go      a column, and giving up one reference to it
    Columns             rows of chosen columns: what `building` makes of runs
    kinds_of            the columns that names stand for
"""

from libc.stdint cimport int64_t


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
    void kc_count_up(long* count) noexcept
    long kc_count_down(long* count) noexcept


cdef enum:
    MOST_CHILDREN = 9


cdef struct Column:
    long references
    int64_t length
    int64_t nulls
    int n_buffers
    void* buffers[3]       # malloc'd; the first one says which rows are valid, NULL if all are
    int n_children
    Column* children[MOST_CHILDREN]


cdef class Columns:
    cdef Column* root
    cdef Column* offsets          # those of the rows, whether `offset` was chosen or not
    cdef readonly tuple names


cdef void* new_block(Py_ssize_t size) noexcept nogil
cdef void* grown_block(void* data, Py_ssize_t used, Py_ssize_t size) noexcept nogil
cdef void free_block(void* data) noexcept nogil
cdef Column* new_column(int64_t length, int64_t nulls, void* valid) noexcept nogil
cdef void let_go(Column* column) noexcept nogil
cdef int kinds_of(tuple names, int* kinds) except -1
