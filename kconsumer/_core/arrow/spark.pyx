"""Converts columns to the layout of Apache Spark's Kafka source.

In this layout timestamps are in microseconds, the timestamp type is an int32, and empty headers are null. Some columns
have other names. Columns that are equal in both layouts are not copied: the new Columns refer to the same memory. Spark
refuses batches whose schema is not exactly its own, so the converted columns must have exactly Spark's types.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kconsumer._core.arrow import schema_capsule


cdef extern from "arrow_abi.h" nogil:
    struct ArrowSchema:
        const char* format
        const char* name
        int64_t n_children
        ArrowSchema** children


# kconsumer's names of columns -> Spark's names, in the order of Spark's schema. Spark has no leader_epoch.
NAMES = {
    "key": "key",
    "value": "value",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp_type": "timestampType",
    "headers": "headers",
}


cdef Column* like(const Column* column) noexcept nogil:
    """Returns a new column with the length of `column` and one reference, but without buffers and children.

    Returns NULL if memory is exhausted.
    """
    cdef Column* made = <Column*> calloc(1, sizeof(Column))
    if made != NULL:
        made.references = 1
        made.length = column.length
        made.n_buffers = 2
    return made


cdef Column* microseconds(const Column* column) noexcept nogil:
    """Returns a column of milliseconds converted to microseconds, or NULL if memory is exhausted.

    Values beyond 64 bits become INT64_MAX or INT64_MIN.
    """
    cdef Column* made = like(column)
    cdef const int64_t* given = <const int64_t*> column.buffers[1]
    cdef int64_t* times = <int64_t*> new_block(8 * column.length)
    cdef int64_t row, time
    if made == NULL or times == NULL:
        free(made)
        free_block(times)
        return NULL
    for row in range(column.length):
        time = given[row]
        if time > INT64_MAX // 1000:
            times[row] = INT64_MAX
        elif time < -(INT64_MAX // 1000):
            times[row] = INT64_MIN
        else:
            times[row] = time * 1000
    made.buffers[1] = times
    return made


cdef Column* widened(const Column* column) noexcept nogil:
    """Returns an int8 column converted to int32, or NULL if memory is exhausted."""
    cdef Column* made = like(column)
    cdef const int8_t* given = <const int8_t*> column.buffers[1]
    cdef int32_t* wide = <int32_t*> new_block(4 * column.length)
    cdef int64_t row
    if made == NULL or wide == NULL:
        free(made)
        free_block(wide)
        return NULL
    for row in range(column.length):
        wide[row] = given[row]
    made.buffers[1] = wide
    return made


cdef Column* null_if_empty(const Column* column) noexcept nogil:
    """Returns a column of lists with null in place of empty lists, or NULL if memory is exhausted."""
    cdef Column* made = like(column)
    cdef const int32_t* ends = <const int32_t*> column.buffers[1]
    cdef Py_ssize_t ends_size = 4 * column.length + 4
    cdef Py_ssize_t bits_size = column.length // 8 + 1
    cdef int32_t* copied = <int32_t*> new_block(ends_size)
    cdef uint8_t* valid = <uint8_t*> new_block(bits_size)
    cdef int64_t row
    if made == NULL or copied == NULL or valid == NULL:
        free(made)
        free_block(copied)
        free_block(valid)
        return NULL
    memcpy(copied, ends, <size_t> ends_size)
    memset(valid, 0, <size_t> bits_size)
    made.nulls = column.length
    for row in range(column.length):
        if ends[row] != ends[row + 1]:
            valid[row >> 3] |= <uint8_t> (1 << (row & 7))
            made.nulls -= 1
    made.buffers[0] = valid
    made.buffers[1] = copied
    share(made, column.children[0])
    return made


cdef void share(Column* parent, Column* child) noexcept nogil:
    """Append `child` to the children of `parent`. Adds a reference to `child`, because it has another parent, too."""
    kc_count_up(&child.references)
    parent.children[parent.n_children] = child
    parent.n_children += 1


cdef Column* converted(int kind, const Column* column) noexcept nogil:
    """Returns a timestamp, timestamp type or headers column in Spark's layout, or NULL if memory is exhausted."""
    if kind == KC_TIMESTAMP:
        return microseconds(column)
    if kind == KC_TIMESTAMP_TYPE:
        return widened(column)
    return null_if_empty(column)


def spark_columns(Columns columns not None):
    """Returns Columns of the same rows in Spark's layout.

    Raises ValueError if there is a column `leader_epoch`, which Spark does not have.
    """
    cdef Columns made = Columns.__new__(Columns)
    cdef int kinds[MAX_CHILDREN]
    cdef Column* child
    cdef int i, count = kinds_of(columns.names, kinds)
    for name in columns.names:
        if name not in NAMES:
            raise ValueError(f"Spark's Kafka source has no column {name!r}; it has {', '.join(NAMES.values())}")
    made.names = tuple(["spark " + NAMES[name] for name in columns.names])  # so streams cannot mix layouts
    kc_count_up(&columns.offsets.references)
    made.offsets = columns.offsets
    made.root = like(columns.root)
    if made.root == NULL:
        raise MemoryError()
    made.root.n_buffers = 1
    for i in range(count):
        child = columns.root.children[i]
        if kinds[i] == KC_TIMESTAMP or kinds[i] == KC_TIMESTAMP_TYPE or kinds[i] == KC_HEADERS:
            child = converted(kinds[i], child)
            if child == NULL:
                raise MemoryError()
            made.root.children[made.root.n_children] = child
            made.root.n_children += 1
        else:
            share(made.root, child)
    return made


def spark_schema(tuple names not None):
    """Returns a new `arrow_schema` capsule for rows in Spark's layout. `names` are kconsumer's names of the columns."""
    cdef int kinds[MAX_CHILDREN]
    cdef int i, count = kinds_of(names, kinds)
    cdef ArrowSchema* child
    capsule = schema_capsule(names)
    schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    for i in range(count):
        child = schema.children[i]
        if kinds[i] == KC_TIMESTAMP:
            child.format = "tsu:UTC"
        elif kinds[i] == KC_TIMESTAMP_TYPE:
            child.name = "timestampType"
            child.format = "i"
        elif kinds[i] == KC_HEADERS:
            child.children[0].name = "element"
    return capsule
