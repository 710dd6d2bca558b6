"""Decodes messages. Decides the wire format of each type of value.

Malformed bytes raise ProtocolError and no other error. Before memory is allocated for a length, the length is compared
with the number of remaining bytes.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromLong, PyLong_FromLongLong
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t, uint64_t

from kconsumer._core.wire cimport (
    Slice, Span, read_i8, read_i16, read_i32, read_i64, read_uvarint, remaining, skip, slice_of, take,
)

from kconsumer.errors import ProtocolError


cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)


cdef int open_source(Slice whole, Py_ssize_t offset, Source* source) except -1:
    """Set `source` so that it reads the bytes of `whole` from the index `offset` on.

    The caller must keep a reference to `whole` while it uses `source`.

    Raises ValueError if `offset` is outside `whole`.
    """
    if not 0 <= offset <= len(whole):
        raise ValueError(f"offset {offset} is outside a buffer of {len(whole)} bytes")
    source.owner = <PyObject*> whole.owner
    source.start = whole.span.p
    source.span.p = whole.span.p + offset
    source.span.end = whole.span.end
    return 0


cdef int finish(Program program, Source* source) except -1:
    """Raise ProtocolError if there are bytes after the message."""
    if remaining(&source.span):
        malformed(program, NULL, source, f"{remaining(&source.span)} bytes after the message")
    return 0


cdef malformed(Program program, Op* op, Source* source, str problem):
    """Raise a ProtocolError with the text `problem`, the position, and the name of the field.

    If `op` is NULL, the name of the message class is used instead of that of a field.
    """
    cdef Py_ssize_t at = source.span.p - source.start
    name = program.cls.__name__
    if op != NULL:
        name = f"{name}.{<object> op.name}"
    raise ProtocolError(f"{name} at byte {at} of {source.span.end - source.start}: {problem}")


cdef object read_message(Program program, Source* source):
    cdef object message = PyType_GenericAlloc(<PyTypeObject*> program.cls, 0)
    cdef object value
    cdef Op* op
    cdef int i
    for i in range(program.count):
        op = &program.ops[i]
        if op.kind == ABSENT or op.tag >= 0:
            value = default_of(op)
        else:
            value = read_value(program, op, op.kind, op.nullable, source)
        kc_set_slot(message, op.offset, value)
    if program.flexible:
        read_tags(program, message, source)
    return message


cdef object read_value(Program program, Op* op, int kind, bint nullable, Source* source):
    """Read one value of the kind `kind`. Returns it.

    `op` is the field to which the value belongs. If the field is an array, its elements are read by this function, too.
    """
    cdef int8_t i8 = 0
    cdef int16_t i16 = 0
    cdef int32_t i32 = 0
    cdef int64_t i64 = 0
    cdef Span part
    if kind == INT32:
        if read_i32(&source.span, &i32):
            return PyLong_FromLong(i32)
    elif kind == INT64:
        if read_i64(&source.span, &i64):
            return PyLong_FromLongLong(i64)
    elif kind == INT16:
        if read_i16(&source.span, &i16):
            return PyLong_FromLong(i16)
    elif kind == INT8:
        if read_i8(&source.span, &i8):
            return PyLong_FromLong(i8)
    elif kind == BOOL:
        if read_i8(&source.span, &i8):
            return i8 != 0
    elif kind == UUID:
        if take(&source.span, UUID_BYTES, &part):
            return PyBytes_FromStringAndSize(<const char*> part.p, UUID_BYTES)
    elif kind == ARRAY:
        return read_array(program, op, nullable, source)
    elif kind == STRUCT:
        return read_struct(program, op, nullable, source)
    else:
        return read_sized(program, op, kind, nullable, source)
    malformed(program, op, source, "the bytes end here")


cdef int64_t read_length(Program program, Op* op, int kind, bint nullable, Source* source) except -2:
    """Read the length of a string, bytes, records or array. Returns the length, or -1 for null.

    The length may exceed a Py_ssize_t of 32 bits. Raises ProtocolError for another negative length, and for null if the
    field is not nullable.
    """
    cdef int16_t short_length = 0
    cdef int32_t length = 0
    cdef uint32_t compact = 0
    cdef int64_t result
    if program.flexible:
        if not read_uvarint(&source.span, &compact):
            malformed(program, op, source, "the bytes end within a length")
        result = <int64_t> compact - 1
    elif kind == STRING:
        if not read_i16(&source.span, &short_length):
            malformed(program, op, source, "the bytes end here")
        result = short_length
    else:
        if not read_i32(&source.span, &length):
            malformed(program, op, source, "the bytes end here")
        result = length
    if result < -1:
        malformed(program, op, source, f"a length of {result}")
    if result == -1 and not nullable:
        malformed(program, op, source, "null where it is not allowed")
    return result


cdef object read_sized(Program program, Op* op, int kind, bint nullable, Source* source):
    """Read a string, bytes or records. Returns the value, or None for null."""
    cdef int64_t length = read_length(program, op, kind, nullable, source)
    cdef Py_ssize_t size
    cdef Span part = source.span
    if length < 0:
        return None
    if length > remaining(&source.span):
        malformed(program, op, source, f"{length} bytes announced, {remaining(&source.span)} left")
    size = <Py_ssize_t> length
    take(&source.span, size, &part)
    if kind == STRING:
        try:
            return PyUnicode_DecodeUTF8(<const char*> part.p, size, NULL)
        except UnicodeDecodeError:
            malformed(program, op, source, "text that is not UTF-8")
    if kind == RECORDS:
        return slice_of(<object> source.owner, part.p, size)
    return PyBytes_FromStringAndSize(<const char*> part.p, size)


cdef object read_array(Program program, Op* op, bint nullable, Source* source):
    cdef int64_t length = read_length(program, op, ARRAY, nullable, source)
    cdef Py_ssize_t count, i
    cdef list items
    cdef object item
    cdef Program inner
    if length < 0:
        return None
    if length > remaining(&source.span) // op.min_size:
        malformed(program, op, source, f"{length} elements announced, {remaining(&source.span)} bytes left")
    count = <Py_ssize_t> length
    items = PyList_New(count)
    if op.element == STRUCT:
        inner = <Program> op.inner
        for i in range(count):
            item = read_message(inner, source)
            Py_INCREF(item)             # PyList_SET_ITEM steals a reference
            PyList_SET_ITEM(items, i, item)
    else:
        for i in range(count):
            item = read_value(program, op, op.element, False, source)
            Py_INCREF(item)
            PyList_SET_ITEM(items, i, item)
    return items


cdef object read_struct(Program program, Op* op, bint nullable, Source* source):
    """Read a struct. Returns the message, or None for null.

    Before a nullable struct there is one byte, which is negative for null.
    """
    cdef int8_t present = 0
    if nullable:
        if not read_i8(&source.span, &present):
            malformed(program, op, source, "the bytes end here")
        if present < 0:
            return None
    return read_message(<Program> op.inner, source)


cdef int read_tags(Program program, object message, Source* source) except -1:
    """Read the tagged fields at the end of a flexible struct into `message`, and skip unknown ones.

    If `message` is None, skips all of them.
    """
    cdef uint32_t count = 0, tag = 0, size = 0
    cdef const unsigned char* end
    cdef Op* op
    if not read_uvarint(&source.span, &count):
        malformed(program, NULL, source, "the bytes end within the number of tagged fields")
    while count > 0:
        count -= 1
        if not read_uvarint(&source.span, &tag) or not read_uvarint(&source.span, &size):
            malformed(program, NULL, source, "the bytes end within a tagged field")
        if size > <uint64_t> remaining(&source.span):
            malformed(program, NULL, source, f"tag {tag} of {size} bytes, {remaining(&source.span)} left")
        op = find_tag(program, tag) if message is not None else NULL
        if op == NULL:
            skip(&source.span, size)
            continue
        end = source.span.end
        source.span.end = source.span.p + size
        kc_set_slot(message, op.offset, read_value(program, op, op.kind, op.nullable, source))
        if source.span.p != source.span.end:
            malformed(program, op, source, f"{remaining(&source.span)} bytes too many in tag {tag}")
        source.span.end = end
    return 0


cdef Op* find_tag(Program program, uint32_t tag):
    """Returns the field with this tag, or NULL."""
    for index in program.tagged:
        if program.ops[<int> index].tag == <int64_t> tag:
            return &program.ops[<int> index]
    return NULL
