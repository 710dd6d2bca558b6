"""ConsumerRecord. Its key, value and headers become Python objects when they are first read.

Decides how a record behaves in Python: attributes, equality, pickling, repr. This module parses only the headers.
record_run.pyx parses the other parts of a record and sets the pointers to them.
"""

from operator import index
from sys import intern
from types import GenericAlias

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8

from kconsumer._core.wire cimport read_varint, remaining, take
from kconsumer.errors import CorruptRecordError
from kconsumer.types import TimestampType, TopicPartition, _utc_datetime


cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* op)
    object PyObject_GenericGetAttr(object op, object name)


cdef extern from "refill.h":
    enum:
        KC_MIN_REFILLED
        KC_MAX_REFILLED

    bint kc_refill(PyObject* data, Py_ssize_t room, const char* source, Py_ssize_t size) noexcept
    int kc_made(const uint8_t* made, int parts) noexcept
    void kc_set_made(uint8_t* made, int parts) noexcept


cdef tuple TIMESTAMP_TYPES = tuple(TimestampType(kind) for kind in (-1, 0, 1))
# Interned, because `__getattribute__` compares identities. Attribute names in code are interned, too. An equal string
# that is not interned is found by the slower generic lookup.
cdef str VALUE = intern("value")
cdef str KEY = intern("key")
cdef str OFFSET = intern("offset")

cdef enum:
    SHOWN_BYTES = 64      # maximum number of bytes of a key or value in repr()
    SHOWN_TEXT = 400      # maximum number of characters of an object, or of all headers


@cython.freelist(512)
cdef class ConsumerRecord:
    """One record of a partition (Java `ConsumerRecord`). Immutable.

    `timestamp`: milliseconds since the Unix epoch; -1: none.
    `timestamp_type`: whether the producer or the broker set the timestamp.
    `key` and `value`: bytes, or the result of the deserializer; None for null.
    `headers`: a tuple of (str, bytes | None).
    `leader_epoch`: the leader epoch of the record's batch; None if the batch has none.
    `serialized_key_size` and `serialized_value_size`: in bytes; -1 for null.
    """

    def __init__(
        self,
        str topic not None,
        int partition,
        offset,
        timestamp=-1,
        timestamp_type=TimestampType.NO_TIMESTAMP,
        key=None,
        value=None,
        headers=(),
        leader_epoch=None,
        serialized_key_size=None,
        serialized_value_size=None,
    ):
        if self.topic_partition is not None:
            raise TypeError("a ConsumerRecord is immutable")
        self.topic_partition = TopicPartition(topic, partition)
        self.offset = index(offset)
        self.timestamp = index(timestamp)
        self.timestamp_kind = TimestampType(timestamp_type)
        self.key_object = key
        self.value_object = value
        self.headers_object = tuple(headers)
        self.made = MADE_KEY | MADE_VALUE | MADE_HEADERS
        self.epoch = -1 if leader_epoch is None else leader_epoch
        self.serialized_key_size = size_of(key, serialized_key_size)
        self.serialized_value_size = size_of(value, serialized_value_size)

    @classmethod
    def __class_getitem__(cls, types):
        return GenericAlias(cls, types)

    def __getattribute__(self, name):
        # Loops mostly read these three attributes. The generic lookup would cost more than creating the bytes object
        # of the value.
        if name is VALUE:
            return value_of(self)
        if name is KEY:
            return key_of(self)
        if name is OFFSET:
            return self.offset
        return PyObject_GenericGetAttr(self, name)

    def __getattr__(self, name):
        hint = "; poll() raises errors, and records have none" if name == "error" else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def topic(self):
        return part(self.topic_partition, 0)

    @property
    def partition(self):
        return part(self.topic_partition, 1)

    @property
    def timestamp_type(self):
        return TIMESTAMP_TYPES[self.timestamp_kind + 1]

    @property
    def datetime(self):
        """The timestamp as a datetime in UTC; None if the record has none. OverflowError: it is after the year 9999."""
        return None if self.timestamp == -1 else _utc_datetime(self.timestamp)

    def header(self, name, default=None):
        """Returns the value of the last header with this name (Java `lastHeader`), or `default` if there is none."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is a str, not {name!r}")
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return default

    @property
    def leader_epoch(self):
        return None if self.epoch < 0 else self.epoch

    @property
    def key(self):
        return key_of(self)

    @property
    def value(self):
        return value_of(self)

    @property
    def headers(self):
        if not kc_made(&self.made, MADE_HEADERS):
            make_headers(self)
        return self.headers_object

    def __eq__(self, other):
        cdef ConsumerRecord record
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        record = <ConsumerRecord> other
        return self.offset == record.offset and fields(self) == fields(record)

    def __hash__(self):
        return hash(fields(self))

    def __reduce__(self):
        return ConsumerRecord, fields(self)

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, timestamp_type={self.timestamp_type.name}, key={shown(self.key)}, "
            f"value={shown(self.value)}, headers={shown(self.headers)}, leader_epoch={self.leader_epoch})"
        )


cdef inline object part(object pair, Py_ssize_t at):
    """Returns `pair[at]`, four times as fast as Python's subscript if `pair` is a tuple."""
    if isinstance(pair, tuple) and at < PyTuple_GET_SIZE(pair):
        return <object> PyTuple_GET_ITEM(pair, at)
    return pair[at]


cdef inline object key_of(ConsumerRecord self):
    """Returns the key; creates its bytes object at the first call."""
    if not kc_made(&self.made, MADE_KEY):
        make_key(self)
    return self.key_object


cdef inline object value_of(ConsumerRecord self):
    """Returns the value; creates its bytes object at the first call."""
    if not kc_made(&self.made, MADE_VALUE):
        make_value(self)
    return self.value_object


# Without the GIL, several threads may be in one of the next three functions. The first one stores its object, which
# does not change afterwards. Each thread returns that one.

cdef inline int make_key(ConsumerRecord self) except -1:
    """Create the bytes object of the key."""
    cdef Py_ssize_t size = self.serialized_key_size
    key = PyBytes_FromStringAndSize(<const char*> self.key_at, size) if size >= 0 else None
    with cython.critical_section(self):
        if not self.made & MADE_KEY:
            self.key_object = key
            kc_set_made(&self.made, MADE_KEY)
    return 0


cdef int make_headers(ConsumerRecord self) except -1:
    """Create the tuple of the headers."""
    headers = read_headers(self.headers_at)
    with cython.critical_section(self):
        if not self.made & MADE_HEADERS:
            self.headers_object = headers
            kc_set_made(&self.made, MADE_HEADERS)
    return 0


cdef inline int make_value(ConsumerRecord self) except -1:
    """Create the bytes object of the value.

    The same record object may be filled with one record after another. Then the bytes object of the previous value is
    reused, if nothing else refers to it.
    """
    cdef Py_ssize_t size = self.serialized_value_size
    cdef const char* source = <const char*> self.value_at
    if self.value_room and kc_refill(<PyObject*> self.value_object, self.value_room, source, size):
        self.made |= MADE_VALUE
        return 0
    value = PyBytes_FromStringAndSize(source, size) if size >= 0 else None
    with cython.critical_section(self):
        if not self.made & MADE_VALUE:
            self.value_object = value
            self.value_room = size if KC_MIN_REFILLED <= size <= KC_MAX_REFILLED else 0
            kc_set_made(&self.made, MADE_VALUE)
    return 0


cdef ConsumerRecord blank_record():
    """Returns an empty record for the caller to fill.

    The garbage collector does not track the record, because bytes and headers cannot refer back to it, and because
    traversing a million records that a user keeps would cost more than reading them. A caller that stores another kind
    of object in the record must make the garbage collector track it again.
    """
    cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
    PyObject_GC_UnTrack(<void*> record)
    return record


cdef tuple read_headers(Span span):
    """Parse the headers in `span`, which begins with their count. Returns a tuple of (str, bytes | None).

    The bytes were already checked when the record was taken. Raises `changed_error()` if they are invalid nevertheless.
    """
    cdef int32_t count, i, size
    cdef Span key
    cdef const unsigned char* value
    if remaining(&span) <= 1:
        return ()        # a count of 0, as in most records, or an empty record
    if not read_varint(&span, &count) or not 0 <= count <= remaining(&span):
        raise changed_error()
    headers = PyTuple_New(count)
    for i in range(count):
        if not (read_varint(&span, &size) and take(&span, size, &key) and read_nullable(&span, &value, &size)):
            raise changed_error()
        name = PyUnicode_DecodeUTF8(<const char*> key.p, remaining(&key), "replace")
        header = (name, PyBytes_FromStringAndSize(<const char*> value, size) if size >= 0 else None)
        Py_INCREF(header)
        PyTuple_SET_ITEM(headers, i, header)
    return headers


cdef object changed_error():
    """Returns the error for records that passed the check, but whose bytes have changed since."""
    return CorruptRecordError("the bytes of the records were changed while they were being read")


cdef tuple fields(ConsumerRecord self):
    """Returns the arguments with which the constructor creates an equal record. `__eq__` compares these tuples."""
    return (
        self.topic,
        self.partition,
        self.offset,
        self.timestamp,
        self.timestamp_type,
        self.key,
        self.value,
        self.headers,
        self.leader_epoch,
        self.serialized_key_size,
        self.serialized_value_size,
    )


cdef object size_of(data, given):
    """Returns the serialized size: `given` if it is not None, else the size of `data` if it is bytes, else -1."""
    if given is not None:
        return given
    return len(data) if isinstance(data, (bytes, bytearray, memoryview)) else -1


cdef str shown(data):
    """Returns the repr of a key, a value or headers, shortened if it is long."""
    if isinstance(data, bytes) and len(data) > SHOWN_BYTES:
        return f"{data[:SHOWN_BYTES]!r}… ({len(data)} bytes)"
    text = repr(data)
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}… ({len(text)} characters)"
