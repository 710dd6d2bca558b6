"""Runs of checked records, and the iterator that creates ConsumerRecords from them.

A run stores where its records are and how many there are, but nothing for each record. Iteration parses each record a
second time, after fetch.pyx parsed it to check it. This costs less than writing and reading an index of the records. If
a user created the records, the run has no bytes. It then refers to the record objects.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc

from kconsumer.errors import RecordDeserializationError, RecordFilterError, framing_hint


cdef extern from "Python.h":
    void PyObject_GC_Track(void* op)
    int PyObject_GC_IsTracked(PyObject* op)
    bint PyCoro_CheckExact(object op)


cdef extern from "refill.h":
    enum:
        KC_REUSES
    bint kc_only_reference(PyObject* op) noexcept


cdef extern from *:
    """
    static inline int has_await(PyObject* op) {
        PyAsyncMethods* methods = Py_TYPE(op)->tp_as_async;
        return methods != NULL && methods->am_await != NULL;
    }
    """
    bint has_await(object op)


@cython.final
@cython.auto_pickle(False)
cdef class RecordRun:
    """Checked records of one partition in offset order. Iteration creates a ConsumerRecord for each of them."""

    def __init__(self):
        raise TypeError("runs are created by PartitionFetch.take() and by run_of()")

    def __dealloc__(self):
        free(self.segments)

    def __len__(self):
        return self.count

    def __iter__(self):
        return RecordIterator((self,))

    @property
    def leader_epoch(self):
        """The leader epoch of `next_offset`; None if its batch has none."""
        return None if self.epoch < 0 else self.epoch

    def keep(self, record_filter not None):
        """Drop the records that `record_filter` does not select. Returns their offsets.

        `record_filter` is a RecordTest, or a callable whose result for a record is true if the record is selected. The
        callable fails if it raises or returns an awaitable. For the first record, this raises RecordFilterError. For a
        later one, the run is cut off before that record, as in `deserialize`.
        """
        if self.objects is not None:
            raise TypeError("records that are objects already cannot be filtered")
        return keep_selected(self, record_filter)

    def deserialize(self, key, value):
        """Replace the keys and values by the results of the deserializers `key` and `value`.

        A deserializer is a result of `kconsumer.deserializers.adapt`, or None to keep the bytes. It fails if it raises
        or returns a coroutine, which cannot be awaited here. Raises RecordDeserializationError if the first record
        fails. If a later record fails, the run is cut off before that record, without an error. In both cases the
        position of the PartitionFetch moves back to the failing record, so read `exhausted` and `next_offset` only
        after this call.
        """
        cdef ConsumerRecord record = None
        cdef list keys = None if key is None else []
        cdef list values = None if value is None else []
        cdef Py_ssize_t done = 0
        cdef int64_t last = -1
        cdef str origin = "key"
        if self.objects is not None:
            raise TypeError("records that are objects already cannot be deserialized")
        plain_key = getattr(key, "plain", None)
        plain_value = getattr(value, "plain", None)
        try:
            for item in RecordIterator((self,)):
                record = <ConsumerRecord> item
                if keys is not None:
                    origin = "key"
                    result = deserialized(key, plain_key, record, record.key)
                    check_result(result)
                    keys.append(result)
                if values is not None:
                    origin = "value"
                    result = deserialized(value, plain_value, record, record.value)
                    check_result(result)
                    values.append(result)
                last = record.offset
                done += 1
        except Exception as error:
            if record is None:
                raise
            self.stop_before(done, last)
            if done == 0:
                raise deserialization_error(origin, record, error) from error
            if keys is not None:
                del keys[done:]      # the key of the record whose value failed
        except BaseException:
            self.stop_before(0, -1)  # a signal handler raised; the next take() must return these records again
            raise
        self.keys = keys
        self.values = values
        self.source = None

    def deserialize_steps(self, key, value, turn_over):
        """Returns a generator that does the same as `deserialize`, and may be suspended between two records.

        It yields each awaitable result of a deserializer, which the caller must await: send what this returns, or throw
        what it raises. It yields None after a record if `turn_over()` is True, so that other tasks can run. The return
        value is the error of the record that failed, before which the run is cut off, or None. A generator that is
        closed before its end has changed nothing.
        """
        cdef ConsumerRecord record = None
        cdef list keys = None if key is None else []
        cdef list values = None if value is None else []
        cdef Py_ssize_t done = 0
        cdef int64_t last = -1
        cdef str origin = "key"
        if self.objects is not None:
            raise TypeError("records that are objects already cannot be deserialized")
        plain_key = getattr(key, "plain", None)
        plain_value = getattr(value, "plain", None)
        failure = None
        for item in RecordIterator((self,)):
            record = <ConsumerRecord> item
            try:
                if keys is not None:
                    origin = "key"
                    result = deserialized(key, plain_key, record, record.key)
                    keys.append((yield result) if has_await(result) else result)
                if values is not None:
                    origin = "value"
                    result = deserialized(value, plain_value, record, record.value)
                    values.append((yield result) if has_await(result) else result)
            except Exception as error:
                failure = deserialization_error(origin, record, error)
                failure.__cause__ = error
                break
            last = record.offset
            done += 1
            if turn_over():
                yield None
        self.set_objects(done, last, keys, values)
        return failure

    def set_objects(self, Py_ssize_t count, int64_t last_offset, list keys, list values):
        """Drop all records after the first `count`. Replace the keys and values of the others by these objects.

        `last_offset` is the offset of the last remaining record; unused if `count` is 0. None keeps the bytes.
        """
        if self.objects is not None:
            raise TypeError("records that are objects already cannot be deserialized")
        if count < self.count:
            self.stop_before(count, last_offset)
        self.keys = keys if keys is None else keys[:count]
        self.values = values if values is None else values[:count]

    def acquired(self, int delivery_count, acknowledger):
        """Let iteration create ShareRecords with this delivery count, which call `acknowledger` (see share_record.pyx).

        All records of the run must have been acquired.
        """
        self.delivery_count = delivery_count
        self.acknowledger = acknowledger

    def size_of(self, offsets not None):
        """Returns the serialized size in bytes of the records with these offsets. The run must not consist of objects.
        """
        cdef Record parts
        cdef Span rest
        cdef const unsigned char* start
        cdef Py_ssize_t i, size = 0
        for i in range(self.used):
            rest = self.segments[i].span
            start = rest.p
            while rest.p < rest.end and read_next(&rest, self.segments[i].magic, &parts):
                if offset_at(self.segments[i].base_offset, parts.offset_delta) in offsets:
                    size += rest.p - start
                start = rest.p
        return size

    def encoded(self):
        """Returns a run of the same records in serialized form, from which Arrow columns can be built.

        A run that `run_of` has created is serialized now. Any other run has this form already, and is returned
        unchanged. Raises TypeError if a key, value or header value is neither bytes-like nor None.
        """
        cdef RecordRun run
        if self.objects is None:
            return self
        run = new_run(self.topic_partition, None)
        run.next_offset = self.next_offset
        run.epoch = self.epoch
        for record in self.objects:
            add_encoded(run, <ConsumerRecord?> record)
        return run

    def __repr__(self):
        where = f"{self.topic_partition}, next offset {self.next_offset}"
        return f"<RecordRun of {self.count} records of {where}>"

    # --- building and shortening

    cdef int add(self, const RunSegment* segment, object owner) except -1:
        """Append a segment; `owner` keeps its bytes alive."""
        cdef Py_ssize_t room
        cdef RunSegment* grown
        if self.used == self.room:
            room = 2 * self.room + 4
            grown = <RunSegment*> realloc(self.segments, <size_t> room * sizeof(RunSegment))
            if grown == NULL:
                raise MemoryError()
            self.segments = grown
            self.room = room
        self.owners.append(owner)
        self.segments[self.used] = segment[0]
        self.used += 1
        self.count += segment.count
        self.size += segment.span.end - segment.span.p
        return 0

    cdef int stop_before(self, Py_ssize_t index, int64_t last_offset) except -1:
        """Drop the records from `index` on, and move the position of the PartitionFetch back to the record at `index`.

        `last_offset`: the offset of the record before `index`; unused if `index` is 0.
        """
        cdef RunSegment* failed_in
        if self.count == 0:
            return 0
        failed_in = self.segment_of(index)
        if index == 0:
            self.next_offset, self.epoch = self.offset_before, self.epoch_before
        else:
            self.next_offset, self.epoch = last_offset + 1, self.segment_of(index - 1).leader_epoch
        if self.source is not None:
            self.source._rewind(failed_in.batch_at, self.next_offset, self.epoch)
        self.cut(index)
        return 0

    cdef RunSegment* segment_of(self, Py_ssize_t index) noexcept:
        """Returns the segment of the record at `index`."""
        cdef RunSegment* segment = self.segments
        while index >= segment.count:
            index -= segment.count
            segment += 1
        return segment

    cdef int64_t last_timestamp(self):
        """Returns the timestamp of the last record (ms since 1970); -1: there is none."""
        cdef Py_ssize_t i = self.used
        if self.objects is not None:
            return (<ConsumerRecord?> self.objects[self.count - 1]).timestamp
        while i:
            i -= 1
            if self.segments[i].count:
                return self.segments[i].last_timestamp
        return -1

    cdef int cut(self, Py_ssize_t count) noexcept:
        """Drop all records after the first `count`."""
        cdef Py_ssize_t left = count, i
        for i in range(self.used):
            cut_segment(&self.segments[i], left)
            left -= self.segments[i].count
        self.count = count
        self.size = 0
        for i in range(self.used):
            self.size += self.segments[i].span.end - self.segments[i].span.p
        return 0


cdef int cut_segment(RunSegment* segment, Py_ssize_t count) noexcept:
    """Drop all records of a segment after the first `count`."""
    cdef Record record
    cdef Span rest = segment.span
    cdef Py_ssize_t left = count
    if count >= segment.count:
        return 0
    while left and read_next(&rest, segment.magic, &record):
        if offset_at(segment.base_offset, record.offset_delta) >= segment.floor:
            left -= 1
            segment.last_timestamp = timestamp_of(segment, record.timestamp_delta)
    segment.span.end = rest.p
    segment.count = count
    return 0


cdef RecordRun new_run(object topic_partition, object source):
    """Returns an empty run of `source`, a PartitionFetch."""
    cdef RecordRun run = RecordRun.__new__(RecordRun)
    run.topic_partition = topic_partition
    run.source = source
    run.owners = []
    return run


def run_of(list records not None):
    """Returns a run of the ConsumerRecord objects in `records`. Iteration returns these objects.

    They must belong to one partition. The list must not be changed later. Raises ValueError if it is empty.
    """
    cdef RecordRun run
    cdef ConsumerRecord last
    if not records:
        raise ValueError("a run contains at least one record")
    last = <ConsumerRecord?> records[len(records) - 1]
    run = new_run(last.topic_partition, None)
    run.objects = records
    run.count = len(records)
    run.next_offset = last.offset + 1
    run.epoch = last.epoch
    return run


cdef int add_encoded(RecordRun run, ConsumerRecord record) except -1:
    """Append a record to the run, encoded in the format 2, in a segment of its own."""
    cdef RunSegment segment
    cdef bytes data = encoded_record(record)
    segment.span.p = <const unsigned char*> PyBytes_AS_STRING(data)
    segment.span.end = segment.span.p + PyBytes_GET_SIZE(data)
    segment.count = 1
    segment.floor = segment.base_offset = record.offset
    segment.base_timestamp = segment.last_timestamp = record.timestamp
    segment.one_timestamp = True
    segment.timestamp_kind = record.timestamp_kind
    segment.magic = 2
    segment.leader_epoch = record.epoch
    segment.batch_at = 0
    return run.add(&segment, data)


cdef bytes encoded_record(ConsumerRecord record):
    """Returns the record in the format 2, with an offset delta and a timestamp delta of 0."""
    body = bytearray(3)      # attributes and both deltas
    add_nullable(body, plain_bytes(record, record.key, "key"))
    add_nullable(body, plain_bytes(record, record.value, "value"))
    body += varint(len(record.headers))
    for name, data in record.headers:
        add_nullable(body, name.encode("utf-8", "replace"))
        add_nullable(body, plain_bytes(record, data, f"header {name!r}"))
    return varint(len(body)) + bytes(body)


cdef int add_nullable(object body, object data) except -1:
    """Append a byte string with its length, or the length -1 for None."""
    body += varint(-1 if data is None else len(data))
    if data is not None:
        body += data
    return 0


cdef object plain_bytes(ConsumerRecord record, object data, str what):
    """Returns `data` as bytes, or None if it is None. Raises TypeError if it is neither bytes-like nor None."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise TypeError(
        f"Arrow columns contain bytes, but the {what} of the record of {record.topic_partition} at offset "
        f"{record.offset} is {type(data).__name__}: create the record with bytes"
    )


cdef bytes varint(int64_t value):
    """Returns the zigzag varint of a number."""
    cdef uint64_t rest = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(<unsigned char> (rest & 0x7F | 0x80))
        rest >>= 7
    out.append(<unsigned char> rest)
    return bytes(out)


cdef object deserialized(object deserializer, object plain, ConsumerRecord record, object data):
    """Returns one deserialized key or value. As in Java, null becomes None and the deserializer is not called."""
    if data is None:
        return None
    if plain is not None:
        return plain(data)
    return deserializer(record.topic, record.headers, data)


cdef int check_result(object result) except -1:
    """Raise TypeError for a coroutine."""
    if PyCoro_CheckExact(result):
        result.close()  # so that Python does not warn that it was never awaited
        raise TypeError("it returned a coroutine, which only kconsumer.aio.AsyncConsumer awaits")
    return 0


def deserialization_error(str origin not None, ConsumerRecord record not None, object error):
    """Returns the error for a record on which code of the user failed. `origin`: "key" or "value" if this was a
    deserializer, "filter" if it was a filter."""
    cdef bint filters = origin == "filter"
    try:
        reason = str(error)
    except Exception:
        reason = "its message cannot be read"
    what = "record_filter" if filters else f"the {origin} deserializer"
    hint = "" if filters else framing_hint(error, record.key if origin == "key" else record.value)
    return (RecordFilterError if filters else RecordDeserializationError)(
        f"{what} failed on the record of {record.topic_partition} at offset {record.offset} "
        f"({type(error).__name__}: {reason}){hint}; seek to offset {record.offset + 1} to skip it",
        topic_partition=record.topic_partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp=record.timestamp,
        origin=origin,
    )


@cython.final
@cython.auto_pickle(False)
cdef class RecordIterator:
    """Iterates over the records of several runs in order.

    Without the GIL, threads may share an iterator, so it is locked. When its runs are freed, user code may run, which
    may suspend the lock. So a local variable refers to them until the fields do not.
    """

    def __cinit__(self, tuple runs not None):
        self.runs = runs

    def __iter__(self):
        return self

    def __next__(self):
        if KC_REUSES:     # with the GIL, where a critical section, which is nothing, would still cost 9 instructions
            record = following(self)
        else:
            with cython.critical_section(self):
                record = following(self)
        if record is None:
            raise StopIteration     # here, and not in `following`, this creates no exception
        return record

    @cython.critical_section
    def __length_hint__(self):
        cdef Py_ssize_t count = 0
        if self.run is not None:
            count = self.run.count - self.index
        for run in self.runs[self.next_run:]:
            count += (<RecordRun?> run).count
        return count

    @cython.critical_section
    def restart(self, RecordIterator fresh not None):
        """Replace the remaining records by those of `fresh`, a new iterator. A running loop then gets these records."""
        cdef tuple before = self.runs
        self.runs = fresh.runs
        self.next_run = 0
        self.run = None
        self.owner = None
        self.segment.count = 0
        self.objects = None
        self.even = self.odd = None
        del before

    cdef bint advance(self) except -1:
        """Advance to the next segment, or to the next run if that consists of objects. Returns False at the end."""
        cdef tuple before
        self.objects = None
        while self.run is None or self.next_segment == self.run.used:
            if self.next_run == len(self.runs):
                before = self.runs
                self.run = None
                self.owner = None
                self.runs = ()
                self.next_run = 0
                del before
                return False
            self.run = <RecordRun?> self.runs[self.next_run]
            self.next_run += 1
            self.next_segment = 0
            self.index = 0
            if self.run.objects is not None:
                self.objects = self.run.objects
                return True
        self.segment = self.run.segments[self.next_segment]
        self.owner = self.run.owners[self.next_segment]
        self.has_objects = self.run.keys is not None or self.run.values is not None
        if self.shares != (self.run.delivery_count > 0):
            self.shares = not self.shares
            self.even = self.odd = None
        self.next_segment += 1
        return True

    cdef ConsumerRecord next_record(self):
        """Returns the next record of the current segment, which must have one."""
        cdef ConsumerRecord record
        cdef Record parts
        cdef int64_t offset
        cdef Span rest = self.segment.span
        while True:
            if not read_next(&rest, self.segment.magic, &parts):
                raise changed_error()
            offset = offset_at(self.segment.base_offset, parts.offset_delta)
            if offset >= self.segment.floor:
                break
        self.segment.span = rest
        self.segment.count -= 1
        record = self.take_blank()
        record.offset = offset
        record.timestamp = self.segment.base_timestamp
        if not self.segment.one_timestamp:
            record.timestamp = offset_at(record.timestamp, parts.timestamp_delta)
        record.timestamp_kind = self.segment.timestamp_kind
        record.epoch = self.segment.leader_epoch
        record.serialized_key_size = parts.key_size
        record.serialized_value_size = parts.value_size
        record.key_at = parts.key
        record.value_at = parts.value
        record.headers_at = parts.headers
        if record.owner is not self.owner:
            record.owner = self.owner
            record.topic_partition = self.run.topic_partition
        if self.has_objects:
            self.give_objects(record)
        if self.shares:
            (<ShareRecord> record).delivery_count = self.run.delivery_count
            (<ShareRecord> record).acknowledger = self.run.acknowledger
        self.index += 1
        return record

    cdef inline ConsumerRecord take_blank(self):
        """Returns a ConsumerRecord to fill.

        Reuses the older of the last two records if only this iterator still refers to it. Otherwise creates a record.
        """
        cdef ConsumerRecord record
        cdef PyObject* used
        self.turn = not self.turn
        used = <PyObject*> self.even if self.turn else <PyObject*> self.odd
        # If the iterator's attribute is the only reference, user code has dropped the record, so it can be reused.
        if kc_only_reference(used):
            record = <ConsumerRecord> used
            if record.made:
                forget(record)
            return record
        # The acknowledger of a ShareRecord may refer back to it, so the garbage collector tracks the record.
        record = <ConsumerRecord> ShareRecord.__new__(ShareRecord) if self.shares else blank_record()
        if KC_REUSES and self.turn:
            self.even = record
        elif KC_REUSES:
            self.odd = record
        return record

    cdef int give_objects(self, ConsumerRecord record) except -1:
        """Store the deserialized key and value of the current record, if there are any, in `record`."""
        if self.run.keys is not None:
            record.key_object = self.run.keys[self.index]
            record.made |= MADE_KEY
        if self.run.values is not None:
            record.value_object = self.run.values[self.index]
            record.value_room = 0
            record.made |= MADE_VALUE
        # A deserialized object may refer to the record, so the garbage collector must track the record.
        if not PyObject_GC_IsTracked(<PyObject*> record):
            PyObject_GC_Track(<void*> record)
        return 0


cdef inline object following(RecordIterator self):
    """Returns the next record of an iterator, or None at the end."""
    while self.segment.count == 0:
        if self.objects is not None and self.index < len(self.objects):
            self.index += 1
            return self.objects[self.index - 1]
        if not self.advance():
            self.even = self.odd = None
            return None
    return self.next_record()
