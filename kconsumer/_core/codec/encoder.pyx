"""Encodes messages. Decides the wire format of each type of value.

Raises TypeError for a value of the wrong type, and ValueError or OverflowError for a value that cannot be encoded. A
note of the exception (PEP 678) names the field.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kconsumer._core.wire cimport kc_store_be16, kc_store_be32, kc_store_be64


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLong(object number) except? -1


cdef unsigned char* grow(Target* target, Py_ssize_t size) except NULL:
    """Append `size` uninitialized bytes to `target`. Returns a pointer to them. Raises MemoryError."""
    cdef Py_ssize_t wanted = target.size + size
    cdef unsigned char* data
    if wanted > target.capacity:
        target.capacity = max(wanted, 2 * target.capacity, 256)
        data = <unsigned char*> realloc(target.data, <size_t> target.capacity)
        if data == NULL:
            raise MemoryError()
        target.data = data
    data = target.data + target.size
    target.size = wanted
    return data


cdef int write_raw(Target* target, const void* data, Py_ssize_t size) except -1:
    memcpy(grow(target, size), data, <size_t> size)
    return 0


cdef int write_i8(Target* target, int8_t value) except -1:
    grow(target, 1)[0] = <unsigned char> value
    return 0


cdef int write_i16(Target* target, int16_t value) except -1:
    kc_store_be16(grow(target, 2), <uint16_t> value)
    return 0


cdef int write_i32(Target* target, int32_t value) except -1:
    kc_store_be32(grow(target, 4), <uint32_t> value)
    return 0


cdef int write_uvarint(Target* target, uint32_t value) except -1:
    while value >= 0x80:
        grow(target, 1)[0] = <unsigned char> (value & 0x7F | 0x80)
        value >>= 7
    grow(target, 1)[0] = <unsigned char> value
    return 0


cdef int64_t integer(object value, int64_t low, int64_t high) except? -1:
    """Returns a Python int as a C integer. Raises OverflowError if it is below `low` or above `high`."""
    cdef int64_t number = PyLong_AsLongLong(value)
    if not low <= number <= high:
        raise OverflowError(f"{number} is not within {low} and {high}")
    return number


cdef int write_message(Program program, object message, Target* target) except -1:
    cdef Op* op
    cdef int i
    if type(message) is not program.cls:
        raise TypeError(f"a {program.cls.__name__} is expected, not {type(message).__name__}")
    for i in range(program.count):
        op = &program.ops[i]
        if op.kind == ABSENT or op.tag >= 0:
            continue
        write_field(program, op, slot_value(program, op, message), target)
    if program.flexible:
        write_tags(program, message, target)
    return 0


cdef object slot_value(Program program, Op* op, object message):
    """Returns the value of a field. Raises TypeError if the attribute was deleted."""
    cdef PyObject* value = kc_get_slot(message, op.offset)
    if value == NULL:
        raise TypeError(f"{program.cls.__name__}.{<object> op.name} has no value")
    return <object> value


cdef int write_field(Program program, Op* op, object value, Target* target) except -1:
    """Write one field. If an error is raised, add the name of the field to it as a note."""
    try:
        write_value(program, op, op.kind, op.nullable, value, target)
    except (TypeError, ValueError, OverflowError) as error:
        error.add_note(f"in {program.cls.__name__}.{<object> op.name}")
        raise
    return 0


cdef int write_value(
    Program program, Op* op, int kind, bint nullable, object value, Target* target
) except -1:
    """Write the value of a field, or one element of its array. `kind` is the kind of the value."""
    if kind == INT32:
        write_i32(target, <int32_t> integer(value, -(1 << 31), (1 << 31) - 1))
    elif kind == INT64:
        kc_store_be64(grow(target, 8), <uint64_t> PyLong_AsLongLong(value))
    elif kind == INT16:
        write_i16(target, <int16_t> integer(value, -(1 << 15), (1 << 15) - 1))
    elif kind == INT8:
        write_i8(target, <int8_t> integer(value, -(1 << 7), (1 << 7) - 1))
    elif kind == BOOL:
        write_i8(target, 1 if value else 0)
    elif kind == UUID:
        write_uuid(value, target)
    elif kind == ARRAY:
        write_array(program, op, nullable, value, target)
    elif kind == STRUCT:
        write_struct(program, op, nullable, value, target)
    else:
        write_sized(program, kind, nullable, value, target)
    return 0


cdef int write_length(Program program, int kind, Py_ssize_t length, Target* target) except -1:
    """Write the length of a string, bytes, records or array. A `length` of -1 means null."""
    if length > ((1 << 15) - 1 if kind == STRING else (1 << 31) - 1):
        raise ValueError(f"a length of {length} does not fit on the wire")
    if program.flexible:
        write_uvarint(target, <uint32_t> (length + 1))
    elif kind == STRING:
        write_i16(target, <int16_t> length)
    else:
        write_i32(target, <int32_t> length)
    return 0


cdef int write_null(Program program, int kind, bint nullable, Target* target) except -1:
    if not nullable:
        raise TypeError("the field is not nullable, but its value is None")
    return write_length(program, kind, -1, target)


cdef int write_uuid(object value, Target* target) except -1:
    if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != UUID_BYTES:
        raise ValueError(f"a UUID is {UUID_BYTES} bytes, not {value!r}")
    return write_raw(target, PyBytes_AS_STRING(value), UUID_BYTES)


cdef int write_sized(Program program, int kind, bint nullable, object value, Target* target) except -1:
    """Write a string, bytes or records."""
    cdef const char* text
    cdef Py_ssize_t size = 0
    cdef Py_buffer view
    if value is None:
        return write_null(program, kind, nullable, target)
    if kind == STRING:
        text = PyUnicode_AsUTF8AndSize(value, &size)
        write_length(program, kind, size, target)
        return write_raw(target, text, size)
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        write_length(program, kind, view.len, target)
        write_raw(target, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int write_array(Program program, Op* op, bint nullable, object value, Target* target) except -1:
    cdef Py_ssize_t i, count
    cdef object items
    if value is None:
        return write_null(program, ARRAY, nullable, target)
    if isinstance(value, (str, bytes)):
        raise TypeError(f"a sequence is expected, not {type(value).__name__}")
    items = PySequence_Fast(value, "a sequence is expected")
    count = PySequence_Fast_GET_SIZE(items)
    write_length(program, ARRAY, count, target)
    for i in range(count):
        if PySequence_Fast_GET_SIZE(items) != count:
            raise ValueError("the sequence changed while it was encoded")
        if op.element == STRUCT:
            write_message(<Program> op.inner, <object> PySequence_Fast_GET_ITEM(items, i), target)
        else:
            write_value(program, op, op.element, False, <object> PySequence_Fast_GET_ITEM(items, i), target)
    return 0


cdef int write_struct(Program program, Op* op, bint nullable, object value, Target* target) except -1:
    if nullable:
        write_i8(target, -1 if value is None else 1)
        if value is None:
            return 0
    return write_message(<Program> op.inner, value, target)


cdef int write_tags(Program program, object message, Target* target) except -1:
    """Write the tagged fields that differ from their defaults, by ascending tag."""
    cdef list present = []
    cdef Target content
    cdef Op* op
    for index in program.tagged:
        op = &program.ops[<int> index]
        value = slot_value(program, op, message)
        if value != default_of(op):
            present.append((index, value))
    write_uvarint(target, <uint32_t> len(present))
    for index, value in present:
        op = &program.ops[<int> index]
        content.data, content.size, content.capacity = NULL, 0, 0
        try:
            write_field(program, op, value, &content)
            write_uvarint(target, <uint32_t> op.tag)
            write_uvarint(target, <uint32_t> content.size)
            write_raw(target, content.data, content.size)
        finally:
            free(content.data)
    return 0
