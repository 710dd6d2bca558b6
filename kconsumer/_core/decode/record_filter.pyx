"""Which records are returned: the check of a batch, tests of records before Python objects are created from them, and
callables. `kconsumer.filters` has their public forms."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memcmp

from kconsumer._core.wire cimport Span, read_varint, remaining, take


@cython.auto_pickle(False)
cdef class RecordTest:
    """Selects the records whose last header `name` has the value `value`.

    If `name` is None, selects the records whose key begins with `value`.
    """

    def __init__(self, bytes name, bytes value):
        if self.name_at != NULL or self.value_at != NULL:
            raise TypeError(f"a {type(self).__name__} is immutable")
        self.name, self.value = name, value
        self.value_size = -1
        if name is not None:
            self.name_at, self.name_size = <const unsigned char*> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        if value is not None:
            self.value_at, self.value_size = <const unsigned char*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return (self.name, self.value) == (other.name, other.value)

    def __hash__(self):
        return hash((self.name, self.value))


cdef bint passes(RecordTest test, const unsigned char* key, Py_ssize_t key_size, Span headers) noexcept nogil:
    """Returns True if the test selects a record with this key and these headers, which were checked before."""
    if test.name_at == NULL:
        return key_size >= test.value_size and memcmp(key, test.value_at, <size_t> test.value_size) == 0
    return header_equals(test, headers)


cdef bint header_equals(RecordTest test, Span headers) noexcept nogil:
    """Returns True if the last header of the test's name has the test's value."""
    cdef int32_t count, size
    cdef Span name
    cdef const unsigned char* value
    cdef bint found = False
    if remaining(&headers) <= 1 or not read_varint(&headers, &count):
        return False
    while count > 0:
        count -= 1
        if not (
            read_varint(&headers, &size) and take(&headers, size, &name) and read_nullable(&headers, &value, &size)
        ):
            return False
        if remaining(&name) == test.name_size and memcmp(name.p, test.name_at, <size_t> test.name_size) == 0:
            found = size == test.value_size and (size <= 0 or memcmp(value, test.value_at, <size_t> size) == 0)
    return found


# --- of one batch


cdef bint check_records(
    OpenBatch* batch, Py_ssize_t limit, Py_ssize_t size, RecordTest test, RunSegment* out, Py_ssize_t* dropped
) noexcept nogil:
    """Check records at the front of the batch and move them to `out`.

    Drops records that `test` does not select, and sets their number. Stops after such a record if it is behind one in
    `out`. Stops after `limit` records, or as soon as the records in `out` have `size` bytes or more. Also stops at a
    malformed record, which remains the first record in the batch. Returns False in this case, else True.
    """
    cdef Record record
    cdef const unsigned char* start
    cdef int64_t offset, last_delta = 0
    # Values that change with each record are in local variables, which the compiler can keep in registers. It could not
    # do so with fields of the structs, because another pointer might refer to them.
    cdef Span rest = batch.segment.span
    cdef Py_ssize_t left = batch.left, count = 0
    cdef int64_t reached = batch.reached, floor = batch.segment.floor, base_offset = batch.segment.base_offset
    cdef bint passed = batch.control, good = True, selects = test is not None
    cdef int magic = batch.segment.magic
    out[0] = batch.segment
    out.span.end = out.span.p
    dropped[0] = 0
    while left and count < limit and (count == 0 or out.span.end - out.span.p < size):
        start = rest.p
        if not read_next(&rest, magic, &record) or (magic == 2 and not check_headers(record.headers)):
            good = False
            break
        offset = offset_at(base_offset, record.offset_delta)
        if offset < 0 or offset == INT64_MAX or (left == 1 and rest.p != rest.end):
            good = False
            break
        left -= 1
        if offset >= reached:
            reached = offset + 1
        if offset < floor or passed:
            continue
        if selects and not passes(test, record.key, record.key_size, record.headers):
            dropped[0] += 1
            if count:
                break
            continue
        if count == 0:
            out.span.p = start
        count += 1
        last_delta = record.timestamp_delta
        out.span.end = rest.p
    if not good:
        rest.p = start
    batch.segment.span = rest
    batch.left = left
    batch.reached = reached
    out.count = count
    out.last_timestamp = timestamp_of(out, last_delta)
    return good


# --- by a callable


cdef list keep_selected(RecordRun run, object record_filter):
    """Do what `RecordRun.keep` does."""
    cdef RecordTest test = record_filter if isinstance(record_filter, RecordTest) else None
    cdef ConsumerRecord record = None
    cdef list dropped = []
    cdef Py_ssize_t done = 0
    cdef int64_t last = -1
    cdef bint selected
    marks = bytearray(run.count)
    try:
        for item in RecordIterator((run,)):
            record = <ConsumerRecord> item
            if test is not None:
                selected = passes(test, record.key_at, record.serialized_key_size, record.headers_at)
            else:
                selected = selects(record_filter(record))
            if not selected:
                dropped.append(record.offset)
            marks[done] = selected
            last = record.offset
            done += 1
    except Exception as error:
        if record is None:
            raise
        run.stop_before(done, last)
        if done == 0:
            raise deserialization_error("filter", record, error) from error
    except BaseException:
        run.stop_before(0, -1)  # as in `deserialize`
        raise
    if dropped:
        keep_marked(run, marks)
    run.dropped += len(dropped)
    return dropped


cdef int keep_marked(RecordRun run, const unsigned char* marks) except -1:
    """Drop the records whose mark is 0. There is one mark for each record."""
    cdef RunSegment* before = run.segments
    cdef Py_ssize_t used = run.used, i
    owners, run.owners = run.owners, []
    run.segments = NULL
    run.used = run.room = run.count = run.size = 0
    try:
        for i in range(used):
            add_marked(run, &before[i], owners[i], marks)
            marks += before[i].count
    finally:
        free(before)
    return 0


cdef int add_marked(RecordRun run, const RunSegment* segment, object owner, const unsigned char* marks) except -1:
    """Append the records of a segment whose mark is not 0. Adjacent ones become one segment."""
    cdef RunSegment part = segment[0]
    cdef Record record
    cdef Span rest = segment.span
    cdef const unsigned char* start
    cdef Py_ssize_t index = 0
    part.count = 0
    while index < segment.count:
        start = rest.p
        if not read_next(&rest, segment.magic, &record):
            raise changed_error()
        if offset_at(segment.base_offset, record.offset_delta) < segment.floor:
            continue
        if marks[index]:
            if part.count == 0:
                part.span.p = start
            part.span.end = rest.p
            part.last_timestamp = timestamp_of(&part, record.timestamp_delta)
            part.count += 1
        elif part.count:
            run.add(&part, owner)
            part.count = 0
        index += 1
    return run.add(&part, owner) if part.count else 0


cpdef bint selects(object result) except -1:
    """Returns whether the result of a filter is true. Raises TypeError for an awaitable, which is always true."""
    if has_await(result):
        if PyCoro_CheckExact(result):
            result.close()  # so that Python does not warn that it was never awaited
        raise TypeError("it returned an awaitable, which is not awaited: a filter is not a coroutine function")
    return bool(result)
