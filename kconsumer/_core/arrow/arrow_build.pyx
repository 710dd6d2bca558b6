"""Builds columns from runs of records (see record_run.pxd).

The result is one Columns object, or several if a column would become too large. This module decides which records each
Columns object contains. arrow_fill.pyx fills the memory. This module then passes the ownership of the memory to
columns.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kconsumer._core.decode cimport changed_error
from kconsumer._core.decode cimport RecordRun
from kconsumer._core.wire cimport remaining


cdef enum:
    MIN_BYTES_WITHOUT_GIL = 32768     # the GIL is released to fill columns with more bytes of records

# Arrow's int32 offsets limit the number of bytes in one column, and the number of headers in one part.
MAX_COLUMN_BYTES = INT32_MAX


def build(tuple runs not None, tuple names not None, dict ends=None, *, Py_ssize_t max_bytes=MAX_COLUMN_BYTES):
    """Returns the records of `runs` as a list of Columns.

    The list has several items only if a column of all records would exceed `max_bytes` bytes.

    `names`: names of columns, from COLUMNS.
    `ends`: a dict of partition -> offset. Records of the partition at or above this offset are omitted.

    Raises OverflowError if a single record exceeds `max_bytes`, CorruptRecordError if the bytes of the records have
    changed since they were checked, TypeError if a record that a user created has a key or value that is not bytes, and
    MemoryError.
    """
    cdef RecordRun run
    for run in runs:
        if run.objects is not None:
            runs = tuple([each.encoded() for each in runs])
            break
    return RunCursor(runs, ends or {}).all(names, max_bytes)


@cython.final
@cython.auto_pickle(False)
cdef class RunCursor:
    """Reads the records of several runs in order, and builds columns from them."""

    cdef FillSegment* segments
    cdef Py_ssize_t count         # number of segments
    cdef Py_ssize_t at            # index of the segment to continue with
    cdef Py_ssize_t longest_topic  # size of the longest topic name in bytes, at least 1
    cdef tuple runs               # keeps the records' bytes alive
    cdef list topics              # keeps the encoded topic names alive

    def __cinit__(self, tuple runs, dict ends):
        cdef RecordRun run
        cdef Py_ssize_t used, i
        self.runs = runs
        self.topics = []
        self.longest_topic = 1
        used = sum([(<RecordRun?> run).used for run in runs])
        self.segments = <FillSegment*> malloc(<size_t> used * sizeof(FillSegment) + 1)
        if self.segments == NULL:
            raise MemoryError()
        for run in runs:
            topic, partition = run.topic_partition
            encoded = topic.encode("utf-8", "replace")
            self.topics.append(encoded)
            self.longest_topic = max(self.longest_topic, len(encoded))
            for i in range(min(run.used, used - self.count)):
                self.segments[self.count].segment = run.segments[i]
                self.segments[self.count].end = ends.get(run.topic_partition, INT64_MAX)
                self.segments[self.count].partition = partition
                self.segments[self.count].topic = PyBytes_AS_STRING(encoded)
                self.segments[self.count].topic_size = PyBytes_GET_SIZE(encoded)
                self.count += 1

    def __dealloc__(self):
        free(self.segments)

    cdef list all(self, tuple names, Py_ssize_t max_bytes):
        """Returns all records as a list of Columns. It has at least one item, which may have no rows."""
        cdef Columns part
        parts = []
        while True:
            part = self.next_part(names, max_bytes)
            if part.root.length or not parts:
                parts.append(part)
            while self.at < self.count and self.segments[self.at].segment.count == 0:
                self.at += 1
            if self.at == self.count:
                return parts

    cdef Columns next_part(self, tuple names, Py_ssize_t max_bytes):
        """Returns the next records as Columns: as many as possible without a column of more than `max_bytes` bytes.

        Raises the errors of `build`.
        """
        cdef Builder builder
        cdef int kinds[MAX_CHILDREN]
        cdef Py_ssize_t rows = 0, size = 0, i
        cdef Status status
        memset(&builder, 0, sizeof(Builder))
        builder.limit = max_bytes
        for i in range(kinds_of(names, kinds)):
            builder.wants[kinds[i]] = True
        for i in range(self.at, self.count):
            rows += self.segments[i].segment.count
            size += remaining(&self.segments[i].segment.span)
        rows = min(rows, max(max_bytes // self.longest_topic, 1))
        try:
            if not start(&builder, rows, size):
                raise MemoryError()
            if size > MIN_BYTES_WITHOUT_GIL:
                with nogil:
                    status = fill_all(&builder, self.segments, &self.at, self.count)
            else:
                status = fill_all(&builder, self.segments, &self.at, self.count)
            if status == MALFORMED:
                raise changed_error()
            if status == NO_MEMORY:
                raise MemoryError()
            if status == FULL and builder.rows == 0:
                raise OverflowError(f"a record does not fit into Arrow columns of at most {max_bytes} bytes")
            return finished(&builder, names)
        finally:
            stop(&builder)


cdef Columns finished(Builder* builder, tuple names):
    """Returns Columns that take the ownership of the filled memory from `builder`. Raises MemoryError."""
    cdef Columns columns = Columns.__new__(Columns)
    cdef int kinds[MAX_CHILDREN]
    cdef int i
    columns.names = names
    columns.offsets = column_of(builder, KC_OFFSET)
    columns.root = new_column(builder.rows, 0, NULL)
    if columns.offsets == NULL or columns.root == NULL:
        raise MemoryError()
    for i in range(kinds_of(names, kinds)):
        if kinds[i] == KC_OFFSET:
            kc_count_up(&columns.offsets.references)
            adopt(columns.root, columns.offsets)
        elif not adopt(columns.root, column_of(builder, kinds[i])):
            raise MemoryError()
    return columns


# --- from builder to columns


cdef Column* fixed(Builder* builder, void** data, uint8_t** valid, int64_t nulls) noexcept nogil:
    """Returns a column of numbers, or NULL if memory is exhausted.

    The column takes the ownership of the numbers `data` and of the validity bitmap `valid`, which has `nulls` zero
    bits. `valid` is NULL if no row is null.
    """
    cdef void* bits = NULL
    cdef Column* column
    if valid != NULL:
        bits, valid[0] = valid[0], NULL
    column = new_column(builder.rows, nulls, bits)
    if column != NULL:
        column.n_buffers = 2
        column.buffers[1] = data[0]
        data[0] = NULL
    return column


cdef Column* strings(BytesColumn* data, Py_ssize_t rows) noexcept nogil:
    """Returns a column that takes the ownership of the byte strings `data`, or NULL if memory is exhausted.

    If more than half of the memory is unused, the strings are copied to a smaller block.
    """
    cdef Column* column = new_column(rows, data.nulls, data.valid)
    cdef void* smaller = NULL
    data.valid = NULL
    if column == NULL:
        return NULL
    if data.used < data.room // 2:
        smaller = new_block(data.used)
        if smaller != NULL:
            memcpy(smaller, data.data, <size_t> data.used)
            free_block(data.data)
    column.n_buffers = 3
    column.buffers[1] = data.ends
    column.buffers[2] = smaller if smaller != NULL else data.data
    data.ends = NULL
    data.data = NULL
    return column


cdef bint adopt(Column* parent, Column* child) noexcept nogil:
    """Append `child` to the children of `parent`. Returns True, or False if `child` is NULL."""
    if child == NULL:
        return False
    parent.children[parent.n_children] = child
    parent.n_children += 1
    return True


cdef Column* headers_column(Builder* builder) noexcept nogil:
    """Returns the column `headers`, a list of structs of key and value, or NULL if memory is exhausted."""
    cdef Column* column = fixed(builder, <void**> &builder.header_ends, NULL, 0)
    cdef Column* item
    if column == NULL:
        return NULL
    item = new_column(builder.headers, 0, NULL)
    if (
        adopt(column, item)
        and adopt(item, strings(&builder.header_key, builder.headers))
        and adopt(item, strings(&builder.header_value, builder.headers))
    ):
        return column
    release_column(column)
    return NULL


cdef Column* column_of(Builder* builder, int kind) noexcept nogil:
    """Returns the column of the kind `kind` (KC_KEY, …), or NULL if memory is exhausted.

    The column takes the ownership of its memory from `builder`, so this must be called only once for each kind.
    """
    if kind == KC_KEY:
        return strings(&builder.key, builder.rows)
    if kind == KC_VALUE:
        return strings(&builder.value, builder.rows)
    if kind == KC_TOPIC:
        return strings(&builder.topic, builder.rows)
    if kind == KC_PARTITION:
        return fixed(builder, <void**> &builder.partition, NULL, 0)
    if kind == KC_OFFSET:
        return fixed(builder, <void**> &builder.offset, NULL, 0)
    if kind == KC_TIMESTAMP:
        return fixed(builder, <void**> &builder.timestamp, NULL, 0)
    if kind == KC_TIMESTAMP_TYPE:
        return fixed(builder, <void**> &builder.timestamp_type, NULL, 0)
    if kind == KC_HEADERS:
        return headers_column(builder)
    return fixed(builder, <void**> &builder.epoch, &builder.epoch_valid, builder.epoch_nulls)
