"""Exports columns through the Arrow C data and stream interfaces, as PyCapsules that Python libraries can import.

No Arrow library is needed. An exported array holds references to columns. If a library has imported the array, the
references are dropped when the library releases it. Otherwise they are dropped when the capsule is deallocated.
"""

from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_New
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset


cdef extern from "arrow_abi.h" nogil:
    struct ArrowSchema:
        const char* format
        const char* name
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil
        void* private_data


cdef struct ArrayHolder:
    # The memory that an exported array points to. It contains the children. The library that imports the array may move
    # a child to other memory, and release it later than the array.
    Column* column
    const void* buffers[3]
    ArrowArray* pointers[MAX_CHILDREN]
    ArrowArray children[MAX_CHILDREN]


cdef void release_array(ArrowArray* array) noexcept nogil:
    """Release an exported array and its children: the `release` callback of ArrowArray.

    Does not release a child that the importing library has moved to other memory.
    """
    cdef ArrayHolder* holder = <ArrayHolder*> array.private_data
    cdef int i
    for i in range(holder.column.n_children):
        if holder.children[i].release != NULL:
            holder.children[i].release(&holder.children[i])
    release_column(holder.column)
    free(holder)
    array.release = NULL


cdef int export_array(Column* column, ArrowArray* out) noexcept nogil:
    """Export the column to `out`, which the caller has zeroed. Returns 0, or ENOMEM if memory is exhausted.

    After ENOMEM, `out` need not be released.
    """
    cdef ArrayHolder* holder = <ArrayHolder*> calloc(1, sizeof(ArrayHolder))
    cdef int i
    if holder == NULL:
        return ENOMEM
    kc_count_up(&column.references)
    holder.column = column
    for i in range(3):
        holder.buffers[i] = column.buffers[i]
    out.length = column.length
    out.null_count = column.nulls
    out.n_buffers = column.n_buffers
    out.buffers = holder.buffers
    out.n_children = column.n_children
    out.children = holder.pointers
    out.private_data = holder
    out.release = release_array
    for i in range(column.n_children):
        holder.pointers[i] = &holder.children[i]
        if export_array(column.children[i], holder.pointers[i]):
            release_array(out)
            return ENOMEM
    return 0


cdef struct SchemaHolder:
    ArrowSchema* pointers[MAX_CHILDREN]
    ArrowSchema children[MAX_CHILDREN]


cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    """Release an exported schema and its children: the `release` callback of ArrowSchema.

    Does not release a child that the importing library has moved to other memory.
    """
    cdef SchemaHolder* holder = <SchemaHolder*> schema.private_data
    cdef int64_t i
    for i in range(schema.n_children):
        if holder.children[i].release != NULL:
            holder.children[i].release(&holder.children[i])
    free(holder)
    schema.release = NULL


cdef int export_schema(int kind, const int* kinds, int count, ArrowSchema* out) noexcept nogil:
    """Export a type to `out`, which the caller has zeroed. Returns 0, or ENOMEM if memory is exhausted.

    `kind` is KC_ROOT for the type of rows, or the kind of a column or of a column's child. For KC_ROOT, `count` is the
    number of columns, and `kinds` contains their kinds. For other values of `kind`, `kinds` and `count` are ignored.
    """
    cdef SchemaHolder* holder = <SchemaHolder*> calloc(1, sizeof(SchemaHolder))
    cdef int i
    if holder == NULL:
        return ENOMEM
    out.private_data = holder
    out.children = holder.pointers
    out.release = release_schema
    if kind == KC_ROOT:
        out.format = "+s"
        out.name = ""
    else:
        out.format = KC_TYPES[kind].format
        out.name = KC_TYPES[kind].name
        out.flags = KC_NULLABLE
        kinds, count = KC_TYPES[kind].children, KC_TYPES[kind].n_children
    out.n_children = count
    for i in range(count):
        holder.pointers[i] = &holder.children[i]
        if export_schema(kinds[i], NULL, 0, holder.pointers[i]):
            release_schema(out)
            return ENOMEM
    return 0


# --- capsules


cdef object new_capsule(size_t size, const char* name, void* destructor):
    """Returns a capsule that points to `size` zero bytes. `destructor` must free them. Raises MemoryError."""
    cdef void* content = calloc(1, size)
    if content == NULL:
        raise MemoryError()
    try:
        return PyCapsule_New(content, name, <PyCapsule_Destructor> destructor)
    except BaseException:
        free(content)
        raise


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void drop_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


def array_capsule(Columns columns not None):
    """Returns a new `arrow_array` capsule that shares the memory of `columns`. May be called repeatedly."""
    cdef ArrowArray* array
    capsule = new_capsule(sizeof(ArrowArray), "arrow_array", <void*> drop_array)
    array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if export_array(columns.root, array):
        raise MemoryError()
    return capsule


def schema_capsule(tuple names not None):
    """Returns a new `arrow_schema` capsule for rows of the columns `names`."""
    cdef int kinds[MAX_CHILDREN]
    cdef int count = kinds_of(names, kinds)
    capsule = new_capsule(sizeof(ArrowSchema), "arrow_schema", <void*> drop_schema)
    if export_schema(KC_ROOT, kinds, count, <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")):
        raise MemoryError()
    return capsule


cdef struct StreamHolder:
    int kinds[MAX_CHILDREN]
    int width
    Py_ssize_t next
    Py_ssize_t count
    Column* parts[1]       # `count` items


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    cdef StreamHolder* holder = <StreamHolder*> stream.private_data
    memset(out, 0, sizeof(ArrowSchema))
    return export_schema(KC_ROOT, holder.kinds, holder.width, out)


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    """Export the next Columns of the stream to `out`: the `get_next` callback of ArrowArrayStream.

    After the last Columns, zeroes `out`, which means the end of the stream. Returns 0, or ENOMEM if memory is
    exhausted.
    """
    cdef StreamHolder* holder = <StreamHolder*> stream.private_data
    memset(out, 0, sizeof(ArrowArray))
    if holder.next == holder.count:
        return 0
    if export_array(holder.parts[holder.next], out):
        return ENOMEM
    release_column(holder.parts[holder.next])
    holder.parts[holder.next] = NULL
    holder.next += 1
    return 0


cdef const char* stream_error(ArrowArrayStream* stream) noexcept nogil:
    return "out of memory"


cdef void release_stream(ArrowArrayStream* stream) noexcept nogil:
    cdef StreamHolder* holder = <StreamHolder*> stream.private_data
    cdef Py_ssize_t i
    for i in range(holder.next, holder.count):
        release_column(holder.parts[i])
    free(holder)
    stream.release = NULL


def stream_capsule(list parts not None, tuple names not None):
    """Returns a new `arrow_array_stream` capsule of `parts`, which are Columns.

    `names` are the columns of the stream. Raises ValueError if a part has other columns.
    """
    cdef StreamHolder* holder
    cdef ArrowArrayStream* stream
    cdef Columns part
    capsule = new_capsule(sizeof(ArrowArrayStream), "arrow_array_stream", <void*> drop_stream)
    stream = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    holder = <StreamHolder*> calloc(1, sizeof(StreamHolder) + <size_t> len(parts) * sizeof(Column*))
    if holder == NULL:
        raise MemoryError()
    stream.private_data = holder
    stream.release = release_stream
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    holder.width = kinds_of(names, holder.kinds)
    for part in parts:
        if part.names != names:
            raise ValueError(f"a part has columns {part.names}, not {names}")
        kc_count_up(&part.root.references)
        holder.parts[holder.count] = part.root
        holder.count += 1
    return capsule
