"""Records as columns, filled from runs in C, in the memory layout of Arrow.

Decides how columns lie in memory and how long they live: each is a block of its own with a counter, and whoever lets go
last, in any thread and without the GIL, frees it. Which records are in the runs is decided elsewhere, and how others
get at the columns in `arrow`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kconsumer._core.batch cimport Record, offset_at, read_nullable
from kconsumer._core.record cimport changed
from kconsumer._core.run cimport RecordRun, Segment, read_next
from kconsumer._core.wire cimport Span, read_varint, remaining, take


cdef enum:
    MANY_BYTES = 32768     # from so much on, columns are filled without the GIL

# What an int32 offset can reach: the bytes of one column, and the headers of one batch of rows.
MOST_BYTES = INT32_MAX

COLUMNS = tuple([KC_TYPES[kind].name.decode() for kind in range(KC_COLUMNS)])


# --- blocks that are shared


cdef Column* new_column(int64_t length, int64_t nulls, void* valid) noexcept nogil:
    """A column with one reference, which takes over `valid`; NULL, and `valid` freed, without memory."""
    cdef Column* column = <Column*> calloc(1, sizeof(Column))
    if column == NULL:
        free(valid)
        return NULL
    column.references = 1
    column.length = length
    column.nulls = nulls
    column.n_buffers = 1
    column.buffers[0] = valid
    if valid != NULL and nulls == 0:
        free(valid)
        column.buffers[0] = NULL
    return column


cdef void let_go(Column* column) noexcept nogil:
    """Give up one reference; the last one frees."""
    cdef int i
    if column == NULL or kc_count_down(&column.references):
        return
    for i in range(3):
        free(column.buffers[i])
    for i in range(column.n_children):
        let_go(column.children[i])
    free(column)


# --- filling


cdef enum Status:
    GOOD
    FULL           # the next record would take a column past what int32 offsets reach
    MALFORMED      # the bytes were checked, but are not what they were then
    NO_MEMORY


cdef struct Bytes:
    # A column of byte strings that grows.
    int32_t* ends          # ends[i], ends[i + 1]: where string i begins and ends
    unsigned char* data
    uint8_t* valid         # a bit a row
    Py_ssize_t used
    Py_ssize_t room
    int64_t nulls


cdef struct Builder:
    bint wants[KC_COLUMNS]
    Py_ssize_t limit       # of bytes in a column
    Py_ssize_t rows
    Py_ssize_t room        # for rows
    Bytes key
    Bytes value
    Bytes topic
    int64_t* offset
    int64_t* timestamp
    int32_t* partition
    int8_t* timestamp_type
    int32_t* epoch
    uint8_t* epoch_valid
    int64_t epoch_nulls
    int32_t* header_ends   # header_ends[i], header_ends[i + 1]: the headers of row i
    Bytes header_key
    Bytes header_value
    Py_ssize_t headers
    Py_ssize_t headers_room


cdef struct Piece:
    # A segment, of which what has been used is taken off, and what its records have in common.
    Segment segment
    int64_t end            # records from this offset on are left out
    int32_t partition
    const char* topic
    Py_ssize_t topic_size


cdef void* block(Py_ssize_t count, size_t size) noexcept nogil:
    """Memory for `count` items, never of no bytes."""
    return malloc(<size_t> count * size + 8)


cdef uint8_t* all_valid(Py_ssize_t rows) noexcept nogil:
    cdef uint8_t* bits = <uint8_t*> block(rows // 8 + 1, 1)
    if bits != NULL:
        memset(bits, 0xFF, <size_t> (rows // 8 + 1))
    return bits


cdef inline void clear_bit(uint8_t* bits, Py_ssize_t row) noexcept nogil:
    bits[row >> 3] &= <uint8_t> ~(1 << (row & 7))


cdef bint start_bytes(Bytes* column, Py_ssize_t rows, Py_ssize_t room) noexcept nogil:
    column.room = room
    column.ends = <int32_t*> block(rows + 1, sizeof(int32_t))
    column.data = <unsigned char*> block(room, 1)
    column.valid = all_valid(rows)
    if column.ends == NULL or column.data == NULL or column.valid == NULL:
        return False
    column.ends[0] = 0
    return True


cdef void stop_bytes(Bytes* column) noexcept nogil:
    free(column.ends)
    free(column.data)
    free(column.valid)


cdef Status grow(Bytes* column, Py_ssize_t size, Py_ssize_t limit) noexcept nogil:
    """Make room for `size` more bytes."""
    cdef Py_ssize_t room
    cdef unsigned char* data
    if size > limit - column.used:
        return FULL
    room = min(max(2 * column.room, column.used + size), limit)
    data = <unsigned char*> realloc(column.data, <size_t> room + 8)
    if data == NULL:
        return NO_MEMORY
    column.data = data
    column.room = room
    return GOOD


cdef inline Status reserve(Bytes* column, Py_ssize_t size, Py_ssize_t limit) noexcept nogil:
    if size <= column.room - column.used:
        return GOOD
    return grow(column, size, limit)


cdef inline void append(Bytes* column, Py_ssize_t row, const unsigned char* data, int32_t size) noexcept nogil:
    """Add the string of a row, for which there is room; a negative size is null."""
    if size > 0:
        memcpy(column.data + column.used, data, <size_t> size)
        column.used += size
    elif size < 0:
        clear_bit(column.valid, row)
        column.nulls += 1
    column.ends[row + 1] = <int32_t> column.used


cdef bint start(Builder* builder, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
    """Get memory for `rows` rows whose records are `size` bytes; False without memory."""
    cdef Py_ssize_t room = min(size, builder.limit)
    cdef bint good
    builder.room = rows
    builder.offset = <int64_t*> block(rows, sizeof(int64_t))
    good = builder.offset != NULL
    if builder.wants[KC_KEY]:
        good &= start_bytes(&builder.key, rows, min(room, 16 * rows))
    if builder.wants[KC_VALUE]:
        good &= start_bytes(&builder.value, rows, room)
    if builder.wants[KC_TOPIC]:
        good &= start_bytes(&builder.topic, rows, min(16 * rows, builder.limit))
    if builder.wants[KC_TIMESTAMP]:
        builder.timestamp = <int64_t*> block(rows, sizeof(int64_t))
        good &= builder.timestamp != NULL
    if builder.wants[KC_PARTITION]:
        builder.partition = <int32_t*> block(rows, sizeof(int32_t))
        good &= builder.partition != NULL
    if builder.wants[KC_TIMESTAMP_TYPE]:
        builder.timestamp_type = <int8_t*> block(rows, 1)
        good &= builder.timestamp_type != NULL
    if builder.wants[KC_LEADER_EPOCH]:
        builder.epoch = <int32_t*> block(rows, sizeof(int32_t))
        builder.epoch_valid = all_valid(rows)
        good &= builder.epoch != NULL and builder.epoch_valid != NULL
    if builder.wants[KC_HEADERS]:
        builder.header_ends = <int32_t*> block(rows + 1, sizeof(int32_t))
        good &= builder.header_ends != NULL
        good &= start_bytes(&builder.header_key, 0, 0) and start_bytes(&builder.header_value, 0, 0)
        if good:
            builder.header_ends[0] = 0
    return good


cdef void stop(Builder* builder) noexcept nogil:
    """Free what no column took over."""
    stop_bytes(&builder.key)
    stop_bytes(&builder.value)
    stop_bytes(&builder.topic)
    stop_bytes(&builder.header_key)
    stop_bytes(&builder.header_value)
    free(builder.offset)
    free(builder.timestamp)
    free(builder.partition)
    free(builder.timestamp_type)
    free(builder.epoch)
    free(builder.epoch_valid)
    free(builder.header_ends)


cdef Status fill(Builder* builder, Piece* piece) noexcept nogil:
    """Add records of the piece until it is empty, or the builder full."""
    cdef Py_ssize_t first = builder.rows
    cdef Status status = fill_records(builder, &piece.segment, piece.end)
    if builder.rows > first and status != MALFORMED:
        fill_constants(builder, piece, first)
    return status


cdef Status fill_records(Builder* builder, Segment* segment, int64_t end) noexcept nogil:
    """Fill the columns that differ from record to record."""
    cdef Record record
    cdef const unsigned char* at
    cdef int64_t offset
    cdef Py_ssize_t row = builder.rows
    cdef Status status
    cdef bint key = builder.wants[KC_KEY], value = builder.wants[KC_VALUE], headers = builder.wants[KC_HEADERS]
    while segment.count and row < builder.room:
        at = segment.span.p
        if not read_next(&segment.span, segment.magic, &record):
            return MALFORMED
        offset = offset_at(segment.base_offset, record.offset_delta)
        if offset < segment.floor:
            continue
        if offset >= end:
            segment.count -= 1
            continue
        status = GOOD
        if key:
            status = reserve(&builder.key, record.key_size, builder.limit)
        if value and status == GOOD:
            status = reserve(&builder.value, record.value_size, builder.limit)
        if headers and status == GOOD:
            status = fill_headers(builder, row, record.headers)
        if status != GOOD:
            segment.span.p = at
            return status
        if key:
            append(&builder.key, row, record.key, record.key_size)
        if value:
            append(&builder.value, row, record.value, record.value_size)
        builder.offset[row] = offset
        if builder.timestamp != NULL:
            builder.timestamp[row] = segment.base_timestamp
            if not segment.one_timestamp:
                builder.timestamp[row] = offset_at(segment.base_timestamp, record.timestamp_delta)
        segment.count -= 1
        row += 1
        builder.rows = row
    return GOOD if segment.count == 0 else FULL


cdef Status fill_headers(Builder* builder, Py_ssize_t row, Span span) noexcept nogil:
    """Add a record's headers. Unless GOOD is returned, none of them was added."""
    cdef Bytes* keys = &builder.header_key
    cdef Bytes* values = &builder.header_value
    cdef int32_t count = 0, size
    cdef Span key
    cdef const unsigned char* value
    cdef Status status
    cdef Py_ssize_t headers = builder.headers, most = remaining(&span)
    if most > 1:
        if not read_varint(&span, &count) or not 0 <= count <= most:
            return MALFORMED
        # A bad byte of a key becomes U+FFFD, which has three.
        status = reserve(keys, 3 * most, builder.limit)
        if status == GOOD:
            status = reserve(values, most, builder.limit)
        if status == GOOD:
            status = reserve_headers(builder, count)
        if status != GOOD:
            return status
    for _ in range(count):
        if not (read_varint(&span, &size) and take(&span, size, &key) and read_nullable(&span, &value, &size)):
            return MALFORMED
        append_text(keys, headers, key)
        append(values, headers, value, size)
        headers += 1
    builder.headers = headers
    builder.header_ends[row + 1] = <int32_t> headers
    return GOOD


cdef Status reserve_headers(Builder* builder, Py_ssize_t count) noexcept nogil:
    """Make room for `count` more headers."""
    cdef Py_ssize_t needed = builder.headers + count, room = builder.headers_room
    if needed <= room:
        return GOOD
    if needed > builder.limit:
        return FULL
    room = max(2 * room, needed, 64)
    if not grow_rows(&builder.header_key, builder.headers_room, room):
        return NO_MEMORY
    if not grow_rows(&builder.header_value, builder.headers_room, room):
        return NO_MEMORY
    builder.headers_room = room
    return GOOD


cdef bint grow_rows(Bytes* column, Py_ssize_t before, Py_ssize_t rows) noexcept nogil:
    cdef void* ends = realloc(column.ends, <size_t> (rows + 1) * sizeof(int32_t))
    cdef uint8_t* valid
    if ends == NULL:
        return False
    column.ends = <int32_t*> ends
    valid = <uint8_t*> realloc(column.valid, <size_t> (rows // 8 + 1))
    if valid == NULL:
        return False
    memset(valid + before // 8 + 1, 0xFF, <size_t> (rows // 8 - before // 8))
    column.valid = valid
    return True


cdef void append_text(Bytes* column, Py_ssize_t row, Span text) noexcept nogil:
    """Add a string that must be UTF-8; what is not becomes U+FFFD, as in ConsumerRecord."""
    cdef const unsigned char* p = text.p
    while p < text.end and p[0] < 0x80:
        p += 1
    if p == text.end:
        append(column, row, text.p, <int32_t> remaining(&text))
    else:
        append_decoded(column, row, text)


cdef void append_decoded(Bytes* column, Py_ssize_t row, Span text) noexcept with gil:
    """A function of its own: one with Python objects takes the GIL whenever it is called."""
    made = PyUnicode_DecodeUTF8(<const char*> text.p, remaining(&text), "replace").encode()
    append(column, row, <const unsigned char*> PyBytes_AS_STRING(made), <int32_t> PyBytes_GET_SIZE(made))


cdef void fill_constants(Builder* builder, Piece* piece, Py_ssize_t first) noexcept nogil:
    """Fill the columns that are the same for all records of a segment, from row `first` on."""
    cdef Py_ssize_t row
    cdef bint known = piece.segment.leader_epoch >= 0
    if builder.partition != NULL:
        for row in range(first, builder.rows):
            builder.partition[row] = piece.partition
    if builder.timestamp_type != NULL:
        memset(builder.timestamp_type + first, piece.segment.timestamp_kind, <size_t> (builder.rows - first))
    if builder.epoch != NULL:
        for row in range(first, builder.rows):
            builder.epoch[row] = piece.segment.leader_epoch if known else 0
        if not known:
            builder.epoch_nulls += builder.rows - first
            for row in range(first, builder.rows):
                clear_bit(builder.epoch_valid, row)


cdef Status fill_topic(Builder* builder, const char* topic, Py_ssize_t size, Py_ssize_t first) noexcept nogil:
    """Repeat the topic from row `first` on."""
    cdef Py_ssize_t row
    cdef Status status = reserve(&builder.topic, size * (builder.rows - first), builder.limit)
    if status != GOOD:
        builder.rows = first
        return status
    for row in range(first, builder.rows):
        append(&builder.topic, row, <const unsigned char*> topic, <int32_t> size)
    return GOOD


cdef Status fill_all(Builder* builder, Piece* pieces, Py_ssize_t* at, Py_ssize_t count) noexcept nogil:
    """Fill from pieces[at[0]] on; leaves `at` where to go on."""
    cdef Status status = GOOD, topic
    cdef Py_ssize_t first
    while at[0] < count and status == GOOD:
        first = builder.rows
        status = fill(builder, &pieces[at[0]])
        if builder.wants[KC_TOPIC] and builder.rows > first:
            topic = fill_topic(builder, pieces[at[0]].topic, pieces[at[0]].topic_size, first)
            if topic != GOOD:
                return topic
        if status == GOOD:
            at[0] += 1
    return status


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

    Gives back what memory it does not need only if that is much: malloc gives large blocks to the system when they
    are freed unless they come again in the same size, and new pages cost more than filling them.
    """
    cdef Column* column = new_column(rows, data.nulls, data.valid)
    cdef void* smaller = NULL
    data.valid = NULL
    if column == NULL:
        return NULL
    if data.used < data.room // 2:
        smaller = realloc(data.data, <size_t> data.used + 8)
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


# --- what Python sees


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
        self.pieces = <Piece*> block(used, sizeof(Piece))
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


cdef int kinds_of(tuple names, int* kinds) except -1:
    """The columns of these names; how many they are. ValueError unless each is one of COLUMNS, and there once."""
    cdef int count = 0
    if len(set(names)) != len(names):
        raise ValueError(f"a column is named twice: {names}")
    for name in names:
        kinds[count] = <int> COLUMNS.index(name)
        count += 1
    return count
