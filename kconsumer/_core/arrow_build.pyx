"""Makes columns of runs: one batch of rows, or as many as it takes.

Decides which records become rows of which batch, and what becomes of the memory that `filling` filled.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kconsumer._core.arrow_columns cimport (
    KC_HEADERS,
    KC_KEY,
    KC_OFFSET,
    KC_PARTITION,
    KC_TIMESTAMP,
    KC_TIMESTAMP_TYPE,
    KC_TOPIC,
    KC_VALUE,
    MOST_CHILDREN,
    Column,
    Columns,
    free_block,
    kc_count_up,
    kinds_of,
    let_go,
    new_block,
    new_column,
)
from kconsumer._core.arrow_fill cimport (
    FULL,
    MALFORMED,
    NO_MEMORY,
    Builder,
    Bytes,
    Piece,
    Status,
    fill_all,
    start,
    stop,
)
from kconsumer._core.record cimport changed
from kconsumer._core.record_run cimport RecordRun
from kconsumer._core.wire cimport remaining


cdef enum:
    MANY_BYTES = 32768     # from so much on, columns are filled without the GIL

# What an int32 offset can reach: the bytes of one column, and the headers of one batch of rows.
MOST_BYTES = INT32_MAX


def build(tuple runs not None, tuple names not None, dict ends=None, *, Py_ssize_t most_bytes=MOST_BYTES):
    """The records of `runs` as a list of Columns, one unless a column grows past `most_bytes`; never none.

    `names`: of the columns, a selection of COLUMNS. `ends`: records at and beyond their partition's offset here are
    left out. Raises OverflowError for a single record that is too large, CorruptRecordError if the bytes of the
    records have been changed since they were checked, MemoryError.
    """
    return Build(runs, ends or {}).all(names, most_bytes)


@cython.final
@cython.auto_pickle(False)
cdef class Build:
    """The pieces of runs, and how far they have been used."""

    cdef Piece* pieces
    cdef Py_ssize_t count
    cdef Py_ssize_t at
    cdef Py_ssize_t longest_topic
    cdef tuple runs               # keeps the records' bytes alive
    cdef list topics              # and these the names

    def __cinit__(self, tuple runs, dict ends):
        cdef RecordRun run
        cdef Py_ssize_t used, i
        self.runs = runs
        self.topics = []
        self.longest_topic = 1
        used = sum([(<RecordRun?> run).used for run in runs])
        self.pieces = <Piece*> malloc(<size_t> used * sizeof(Piece) + 1)
        if self.pieces == NULL:
            raise MemoryError()
        for run in runs:
            topic, partition = run.topic_partition
            encoded = topic.encode("utf-8", "replace")
            self.topics.append(encoded)
            self.longest_topic = max(self.longest_topic, len(encoded))
            for i in range(min(run.used, used - self.count)):
                self.pieces[self.count].segment = run.segments[i]
                self.pieces[self.count].end = ends.get(run.topic_partition, INT64_MAX)
                self.pieces[self.count].partition = partition
                self.pieces[self.count].topic = PyBytes_AS_STRING(encoded)
                self.pieces[self.count].topic_size = PyBytes_GET_SIZE(encoded)
                self.count += 1

    def __dealloc__(self):
        free(self.pieces)

    cdef list all(self, tuple names, Py_ssize_t most_bytes):
        """Everything, in as many parts as it takes."""
        cdef Columns part
        parts = []
        while True:
            part = self.next_part(names, most_bytes)
            if part.root.length or not parts:
                parts.append(part)
            while self.at < self.count and self.pieces[self.at].segment.count == 0:
                self.at += 1
            if self.at == self.count:
                return parts

    cdef Columns next_part(self, tuple names, Py_ssize_t most_bytes):
        """As many rows as fit into one part."""
        cdef Builder builder
        cdef int kinds[MOST_CHILDREN]
        cdef Py_ssize_t rows = 0, size = 0, i
        cdef Status status
        memset(&builder, 0, sizeof(Builder))
        builder.limit = most_bytes
        for i in range(kinds_of(names, kinds)):
            builder.wants[kinds[i]] = True
        for i in range(self.at, self.count):
            rows += self.pieces[i].segment.count
            size += remaining(&self.pieces[i].segment.span)
        rows = min(rows, max(most_bytes // self.longest_topic, 1))
        try:
            if not start(&builder, rows, size):
                raise MemoryError()
            if size > MANY_BYTES:
                with nogil:
                    status = fill_all(&builder, self.pieces, &self.at, self.count)
            else:
                status = fill_all(&builder, self.pieces, &self.at, self.count)
            if status == MALFORMED:
                raise changed()
            if status == NO_MEMORY:
                raise MemoryError()
            if status == FULL and builder.rows == 0:
                raise OverflowError(f"a record does not fit into Arrow columns of at most {most_bytes} bytes")
            return finished(&builder, names)
        finally:
            stop(&builder)


cdef Columns finished(Builder* builder, tuple names):
    """Columns of what was filled."""
    cdef Columns columns = Columns.__new__(Columns)
    cdef int kinds[MOST_CHILDREN]
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
    """A column of numbers, which takes them over; NULL without memory."""
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


cdef Column* strings(Bytes* data, Py_ssize_t rows) noexcept nogil:
    """A column of byte strings, which takes them over.

    Gives back what memory it does not need only if that is much, since it is copied then.
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
    """Add a child; False if there is none for want of memory."""
    if child == NULL:
        return False
    parent.children[parent.n_children] = child
    parent.n_children += 1
    return True


cdef Column* headers_column(Builder* builder) noexcept nogil:
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
    let_go(column)
    return NULL


cdef Column* column_of(Builder* builder, int kind) noexcept nogil:
    """One of the columns; each can be had once."""
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
