"""Fills columns from runs without the GIL, in Arrow's memory layout.

Decides the memory layout of columns and how they grow. arrow_build.pyx chooses the records, and then passes the
ownership of the memory to columns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from kconsumer._core.decode cimport Record, offset_at, read_nullable
from kconsumer._core.decode cimport read_next
from kconsumer._core.wire cimport Span, kc_load_be64, read_varint, remaining, take


cdef uint64_t BEYOND_ASCII = 0x8080808080808080      # the highest bit of eight bytes: set in non-ASCII characters


cdef uint8_t* new_validity_bits(Py_ssize_t rows) noexcept nogil:
    """Returns a validity bitmap in which no row is null, or NULL if memory is exhausted."""
    cdef uint8_t* bits = <uint8_t*> new_block(rows // 8 + 1)
    if bits != NULL:
        memset(bits, 0xFF, <size_t> (rows // 8 + 1))
    return bits


cdef inline void clear_bit(uint8_t* bits, Py_ssize_t row) noexcept nogil:
    bits[row >> 3] &= <uint8_t> ~(1 << (row & 7))


cdef bint start_bytes(BytesColumn* column, Py_ssize_t rows, Py_ssize_t room) noexcept nogil:
    """Allocate memory for `rows` strings with `room` bytes in total. Returns False if memory is exhausted."""
    column.room = room
    column.ends = <int32_t*> new_block(4 * rows + 4)
    column.data = <unsigned char*> new_block(room)
    column.valid = new_validity_bits(rows)
    if column.ends == NULL or column.data == NULL or column.valid == NULL:
        return False
    column.ends[0] = 0
    return True


cdef void stop_bytes(BytesColumn* column) noexcept nogil:
    free_block(column.ends)
    free_block(column.data)
    free_block(column.valid)


cdef Status grow(BytesColumn* column, Py_ssize_t size, Py_ssize_t limit) noexcept nogil:
    """Reallocate `column.data`, so that `size` more bytes can be appended.

    Returns GOOD, FULL if the data would exceed `limit` bytes, or NO_MEMORY.
    """
    cdef Py_ssize_t room
    cdef unsigned char* data
    if size > limit - column.used:
        return FULL
    room = min(max(2 * column.room, column.used + size), limit)
    data = <unsigned char*> grown_block(column.data, column.used, room)
    if data == NULL:
        return NO_MEMORY
    column.data = data
    column.room = room
    return GOOD


cdef inline Status reserve(BytesColumn* column, Py_ssize_t size, Py_ssize_t limit) noexcept nogil:
    """Ensure that `size` more bytes can be appended. Returns GOOD, FULL (`limit` would be exceeded) or NO_MEMORY."""
    if size <= column.room - column.used:
        return GOOD
    return grow(column, size, limit)


cdef inline void append(BytesColumn* column, Py_ssize_t row, const unsigned char* data, int32_t size) noexcept nogil:
    """Append a string, which is the value of the next row, `row`. The caller has reserved memory for it.

    If `size` is negative, the row is null.
    """
    if size > 0:
        memcpy(column.data + column.used, data, <size_t> size)
        column.used += size
    elif size < 0:
        clear_bit(column.valid, row)
        column.nulls += 1
    column.ends[row + 1] = <int32_t> column.used


cdef bint start(Builder* builder, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
    """Allocate memory for `rows` records of `size` bytes in total. Returns False if memory is exhausted."""
    cdef Py_ssize_t room = min(size, builder.limit)
    cdef bint good
    builder.room = rows
    builder.offset = <int64_t*> new_block(8 * rows)
    good = builder.offset != NULL
    if builder.wants[KC_KEY]:
        good &= start_bytes(&builder.key, rows, min(room, 16 * rows))
    if builder.wants[KC_VALUE]:
        good &= start_bytes(&builder.value, rows, room)
    if builder.wants[KC_TOPIC]:
        good &= start_bytes(&builder.topic, rows, min(16 * rows, builder.limit))
    if builder.wants[KC_TIMESTAMP]:
        builder.timestamp = <int64_t*> new_block(8 * rows)
        good &= builder.timestamp != NULL
    if builder.wants[KC_PARTITION]:
        builder.partition = <int32_t*> new_block(4 * rows)
        good &= builder.partition != NULL
    if builder.wants[KC_TIMESTAMP_TYPE]:
        builder.timestamp_type = <int8_t*> new_block(rows)
        good &= builder.timestamp_type != NULL
    if builder.wants[KC_LEADER_EPOCH]:
        builder.epoch = <int32_t*> new_block(4 * rows)
        builder.epoch_valid = new_validity_bits(rows)
        good &= builder.epoch != NULL and builder.epoch_valid != NULL
    if builder.wants[KC_HEADERS]:
        builder.header_ends = <int32_t*> new_block(4 * rows + 4)
        good &= builder.header_ends != NULL
        good &= start_bytes(&builder.header_key, 0, 0) and start_bytes(&builder.header_value, 0, 0)
        if good:
            builder.header_ends[0] = 0
    return good


cdef void stop(Builder* builder) noexcept nogil:
    """Free the memory whose ownership was not passed to a column."""
    stop_bytes(&builder.key)
    stop_bytes(&builder.value)
    stop_bytes(&builder.topic)
    stop_bytes(&builder.header_key)
    stop_bytes(&builder.header_value)
    free_block(builder.offset)
    free_block(builder.timestamp)
    free_block(builder.partition)
    free_block(builder.timestamp_type)
    free_block(builder.epoch)
    free_block(builder.epoch_valid)
    free_block(builder.header_ends)


cdef Status fill(Builder* builder, FillSegment* filled) noexcept nogil:
    """Append records of `filled.segment` to all columns except `topic`, and remove them from the segment.

    Appends as many records as possible. Returns GOOD if the segment is empty now, FULL if the builder is full,
    MALFORMED or NO_MEMORY.
    """
    cdef Py_ssize_t first = builder.rows
    cdef Status status = fill_records(builder, &filled.segment, filled.end)
    if builder.rows > first and status != MALFORMED:
        fill_constants(builder, filled, first)
    return status


cdef Status fill_records(Builder* builder, RunSegment* segment, int64_t end) noexcept nogil:
    """Append records of `segment` to the columns whose values differ from record to record.

    Removes these records from the segment. Records at or above the offset `end` are removed, but not appended. Returns
    the same statuses as `fill`.
    """
    cdef Record record
    cdef Span rest = segment.span
    cdef const unsigned char* at
    cdef int64_t offset
    cdef Py_ssize_t row = builder.rows, left = segment.count
    cdef Status status = GOOD
    cdef bint key = builder.wants[KC_KEY], value = builder.wants[KC_VALUE], headers = builder.wants[KC_HEADERS]
    cdef int64_t* timestamp = builder.timestamp
    while left and row < builder.room:
        at = rest.p
        if not read_next(&rest, segment.magic, &record):
            status = MALFORMED
            break
        offset = offset_at(segment.base_offset, record.offset_delta)
        if offset < segment.floor:
            continue
        if offset >= end:
            left -= 1
            continue
        if key:
            status = reserve(&builder.key, record.key_size, builder.limit)
        if value and status == GOOD:
            status = reserve(&builder.value, record.value_size, builder.limit)
        if headers and status == GOOD:
            status = fill_headers(builder, row, record.headers)
        if status != GOOD:
            rest.p = at
            break
        if key:
            append(&builder.key, row, record.key, record.key_size)
        if value:
            append(&builder.value, row, record.value, record.value_size)
        builder.offset[row] = offset
        if timestamp != NULL:
            timestamp[row] = segment.base_timestamp
            if not segment.one_timestamp:
                timestamp[row] = offset_at(segment.base_timestamp, record.timestamp_delta)
        left -= 1
        row += 1
    segment.span = rest
    segment.count = left
    builder.rows = row
    if status != GOOD:
        return status
    return GOOD if left == 0 else FULL


cdef Status fill_headers(Builder* builder, Py_ssize_t row, Span span) noexcept nogil:
    """Append the headers of a record, which is the row `row`. `span` contains their encoded form.

    Returns GOOD. If the limit would be exceeded, memory is exhausted or the bytes are invalid, adds no header and
    returns FULL, NO_MEMORY or MALFORMED.
    """
    cdef BytesColumn* keys = &builder.header_key
    cdef BytesColumn* values = &builder.header_value
    cdef int32_t count = 0, size
    cdef Span key
    cdef const unsigned char* value
    cdef Status status
    cdef Py_ssize_t headers = builder.headers, max_count = remaining(&span)
    if max_count > 1:
        if not read_varint(&span, &count) or not 0 <= count <= max_count:
            return MALFORMED
        # An invalid byte of a key becomes U+FFFD, which has three bytes.
        status = reserve(keys, 3 * max_count, builder.limit)
        if status == GOOD:
            status = reserve(values, max_count, builder.limit)
        if status == GOOD:
            status = reserve_headers(builder, count)
        if status != GOOD:
            return status
    for _ in range(count):
        if not (read_varint(&span, &size) and take(&span, size, &key) and read_nullable(&span, &value, &size)):
            return MALFORMED
        status = append_text(keys, headers, key)
        if status != GOOD:
            return status
        append(values, headers, value, size)
        headers += 1
    builder.headers = headers
    builder.header_ends[row + 1] = <int32_t> headers
    return GOOD


cdef Status reserve_headers(Builder* builder, Py_ssize_t count) noexcept nogil:
    """Ensure that `count` more headers can be appended.

    Returns GOOD, FULL if the number of headers would exceed `builder.limit`, or NO_MEMORY.
    """
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


cdef bint grow_rows(BytesColumn* column, Py_ssize_t before, Py_ssize_t rows) noexcept nogil:
    """Reallocate `column.ends` and `column.valid`, which have memory for `before` rows, for `rows` rows.

    Returns False if memory is exhausted.
    """
    cdef void* ends = grown_block(column.ends, 4 * before + 4, 4 * rows + 4)
    cdef uint8_t* valid
    if ends == NULL:
        return False
    column.ends = <int32_t*> ends
    valid = <uint8_t*> grown_block(column.valid, before // 8 + 1, rows // 8 + 1)
    if valid == NULL:
        return False
    memset(valid + before // 8 + 1, 0xFF, <size_t> (rows // 8 - before // 8))
    column.valid = valid
    return True


cdef Status append_text(BytesColumn* column, Py_ssize_t row, Span text) noexcept nogil:
    """Append a UTF-8 string, which is the value of the row `row`. Returns GOOD or NO_MEMORY.

    Replaces invalid bytes by U+FFFD, as ConsumerRecord does. The caller has reserved memory for the string.
    """
    cdef const unsigned char* p = text.p
    while text.end - p >= 8 and not kc_load_be64(p) & BEYOND_ASCII:
        p += 8
    while p < text.end and p[0] < 0x80:
        p += 1
    if p == text.end:
        append(column, row, text.p, <int32_t> remaining(&text))
        return GOOD
    return append_decoded(column, row, text)


cdef Status append_decoded(BytesColumn* column, Py_ssize_t row, Span text) noexcept with gil:
    """Append a string with non-ASCII characters, like `append_text`.

    It is a separate function because it takes the GIL at each call, which ASCII strings do not need.
    """
    try:
        made = PyUnicode_DecodeUTF8(<const char*> text.p, remaining(&text), "replace").encode()
    except MemoryError:
        return NO_MEMORY
    append(column, row, <const unsigned char*> PyBytes_AS_STRING(made), <int32_t> PyBytes_GET_SIZE(made))
    return GOOD


cdef void fill_constants(Builder* builder, FillSegment* filled, Py_ssize_t first) noexcept nogil:
    """From row `first` on, set the columns whose value is the same for all records of the segment.

    Does not set the column `topic`; `fill_topic` does.
    """
    cdef Py_ssize_t row
    cdef bint known = filled.segment.leader_epoch >= 0
    if builder.partition != NULL:
        for row in range(first, builder.rows):
            builder.partition[row] = filled.partition
    if builder.timestamp_type != NULL:
        memset(builder.timestamp_type + first, filled.segment.timestamp_kind, <size_t> (builder.rows - first))
    if builder.epoch != NULL:
        for row in range(first, builder.rows):
            builder.epoch[row] = filled.segment.leader_epoch if known else 0
        if not known:
            builder.epoch_nulls += builder.rows - first
            for row in range(first, builder.rows):
                clear_bit(builder.epoch_valid, row)


cdef Status fill_topic(Builder* builder, const char* topic, Py_ssize_t size, Py_ssize_t first) noexcept nogil:
    """Set the topic of each row from `first` on. Returns GOOD.

    If the limit would be exceeded or memory is exhausted, removes these rows and returns FULL or NO_MEMORY.
    """
    cdef Py_ssize_t row
    cdef Status status = reserve(&builder.topic, size * (builder.rows - first), builder.limit)
    if status != GOOD:
        builder.rows = first
        return status
    for row in range(first, builder.rows):
        append(&builder.topic, row, <const unsigned char*> topic, <int32_t> size)
    return GOOD


cdef Status fill_all(Builder* builder, FillSegment* segments, Py_ssize_t* at, Py_ssize_t count) noexcept nogil:
    """Append the records of the segments from index `at[0]` on. Sets `at[0]` to the index to continue with.

    Returns GOOD if all records were appended. Otherwise stops at the first status other than GOOD and returns it.
    """
    cdef Status status = GOOD, topic
    cdef Py_ssize_t first
    while at[0] < count and status == GOOD:
        first = builder.rows
        status = fill(builder, &segments[at[0]])
        if builder.wants[KC_TOPIC] and builder.rows > first:
            topic = fill_topic(builder, segments[at[0]].topic, segments[at[0]].topic_size, first)
            if topic != GOOD:
                return topic
        if status == GOOD:
            at[0] += 1
    return status
