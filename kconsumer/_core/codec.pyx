"""Runs the plans of `kconsumer.schema`: bytes to messages, messages to bytes.

Decides how each kind of value lies on the wire, and nothing about which value is where: that is the plan's. A
plan is loaded once into a `Program`, an array of C structs, which the reading and writing functions walk.

Whatever the bytes, decoding ends in a message or in ProtocolError, and a length is compared with what is left
before anything is allocated for it. Encoding a message that does not fit its plan is the caller's mistake:
TypeError for a value of the wrong type, ValueError (OverflowError for integers) for one that has no place on
the wire.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromLong, PyLong_FromLongLong
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_ITEM, PySequence_Fast_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from kconsumer._core.wire cimport (
    Slice, Span, kc_store_be16, kc_store_be32, kc_store_be64, read_i8, read_i16, read_i32, read_i64,
    read_uvarint, remaining, skip, slice_of, take,
)

from kconsumer.errors import ProtocolError


# Message classes keep their fields in slots. Going to the slot by its offset, as the slot's own descriptor
# does, takes a fifth of the time of an attribute lookup by name, and this is most of what decoding does. The
# offset is taken only from a member descriptor of the very class (see `load`), and used only on instances of
# that class.
cdef extern from "slots.h":
    Py_ssize_t kc_slot_offset(object descriptor, PyTypeObject* cls)
    PyObject* kc_get_slot(object message, Py_ssize_t offset)
    void kc_set_slot(object message, Py_ssize_t offset, object value)


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLong(object number) except? -1
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)


# --- programs -----------------------------------------------------------------------------------------------

cdef enum:
    ABSENT, BOOL, INT8, INT16, INT32, INT64, UUID, STRING, BYTES, RECORDS, ARRAY, STRUCT

cdef dict KINDS = {
    "absent": ABSENT, "bool": BOOL, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64,
    "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORDS, "array": ARRAY, "struct": STRUCT,
}

cdef enum:
    UUID_BYTES = 16


cdef struct Op:
    int kind
    int element             # ARRAY: the kind of its elements
    bint nullable
    int tag                 # -1 for an ordinary field
    Py_ssize_t offset       # of the field's slot in a message
    Py_ssize_t least        # ARRAY: the fewest bytes an element takes
    # References borrowed from the plan, which the Program keeps alive; inner from the Program's list.
    PyObject* name
    PyObject* default
    PyObject* fresh         # makes the default, or NULL
    PyObject* inner         # STRUCT, ARRAY of STRUCT: the Program of the struct


cdef class Program:
    """A plan in C: one Op per field, in wire order."""

    cdef tuple plan
    cdef list inners
    cdef type cls
    cdef bint flexible
    cdef Py_ssize_t least   # the fewest bytes a message takes
    cdef int count
    cdef Op* ops            # `count` of them, freed with the Program
    cdef list tagged        # indexes into ops, by ascending tag

    def __dealloc__(self):
        free(self.ops)


cdef dict programs = {}     # by id of the plan; a Program keeps its plan alive, so ids do not come back


cdef Program program_of(object plan):
    """The Program of a plan, loaded on first use."""
    found = programs.get(id(plan))
    if found is None:
        found = programs[id(plan)] = load(plan)
    return <Program> found


cdef Program load(tuple plan):
    """Check a plan and turn it into a Program; TypeError if it is not one that `schema.dsl.plan` made."""
    cdef Program program = Program.__new__(Program)
    cdef Op* op
    cdef list tags = []
    cdef int i
    program.plan = plan
    program.inners = []
    program.cls, program.flexible = plan[0], plan[1]
    program.count = <int> len(plan) - 2
    program.ops = <Op*> calloc(<size_t> max(program.count, 1), sizeof(Op))
    if program.ops == NULL:
        raise MemoryError()
    program.least = 1 if program.flexible else 0
    for i in range(program.count):
        op = &program.ops[i]
        load_row(program, op, plan[i + 2])
        if op.tag >= 0:
            tags.append((op.tag, i))
        elif op.kind != ABSENT:
            program.least += least_bytes(op.kind, op.nullable, program.flexible, op.inner)
    program.tagged = [index for _, index in sorted(tags)]
    return program


cdef int load_row(Program program, Op* op, tuple row) except -1:
    """Fill in one Op from `(name, kind, inner, nullable, tag, default, fresh)`."""
    cdef object inner = row[2]
    cdef Program of
    op.name = <PyObject*> row[0]
    op.kind = KINDS[row[1]]
    op.nullable = row[3]
    op.tag = row[4]
    op.default = <PyObject*> row[5]
    op.fresh = NULL if row[6] is None else <PyObject*> row[6]
    op.offset = kc_slot_offset(program.cls.__dict__.get(row[0]), <PyTypeObject*> program.cls)
    if op.offset < 0:
        raise TypeError(f"{program.cls.__name__}.{row[0]} is not a slot")
    if isinstance(inner, tuple):
        of = program_of(inner)
        program.inners.append(of)
        op.inner = <PyObject*> of
    if op.kind == ARRAY:
        op.element = STRUCT if op.inner != NULL else KINDS[inner]
        op.least = max(1, least_bytes(op.element, False, program.flexible, op.inner))
    elif op.kind == STRUCT and op.inner == NULL:
        raise TypeError(f"{program.cls.__name__}.{row[0]} has no plan")
    return 0


cdef Py_ssize_t least_bytes(int kind, bint nullable, bint flexible, PyObject* inner):
    """The fewest bytes a value of this kind takes."""
    if kind == BOOL or kind == INT8:
        return 1
    if kind == INT16:
        return 2
    if kind == INT32:
        return 4
    if kind == INT64:
        return 8
    if kind == UUID:
        return UUID_BYTES
    if kind == STRUCT:
        return 1 if nullable else (<Program> inner).least
    if flexible:
        return 1
    return 2 if kind == STRING else 4


# --- reading ------------------------------------------------------------------------------------------------

cdef struct Source:
    Span span
    const unsigned char* start
    PyObject* owner         # what keeps the bytes alive; Slices refer to it


cdef malformed(Program program, Op* op, Source* source, str problem):
    """Raise ProtocolError, naming the field and where the trouble is."""
    cdef Py_ssize_t at = source.span.p - source.start
    name = program.cls.__name__
    if op != NULL:
        name = f"{name}.{<object> op.name}"
    raise ProtocolError(f"{name} at byte {at} of {source.span.end - source.start}: {problem}")


cdef object default_of(Op* op):
    """What a message has where the wire says nothing."""
    if op.fresh == NULL:
        return <object> op.default
    if op.fresh == <PyObject*> list:
        return []
    return (<object> op.fresh)()


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
    """One value; `kind` is the field's own, or that of its elements."""
    cdef int8_t i8 = 0
    cdef int16_t i16 = 0
    cdef int32_t i32 = 0
    cdef int64_t i64 = 0
    cdef Span piece
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
        if take(&source.span, UUID_BYTES, &piece):
            return PyBytes_FromStringAndSize(<const char*> piece.p, UUID_BYTES)
    elif kind == ARRAY:
        return read_array(program, op, nullable, source)
    elif kind == STRUCT:
        return read_struct(program, op, nullable, source)
    else:
        return read_sized(program, op, kind, nullable, source)
    malformed(program, op, source, "the bytes end here")


cdef Py_ssize_t read_length(Program program, Op* op, int kind, bint nullable, Source* source) except -2:
    """The length of a string, bytes, records or array; -1 for null."""
    cdef int16_t short_length = 0
    cdef int32_t length = 0
    cdef uint32_t compact = 0
    cdef int64_t result
    if program.flexible:
        if not read_uvarint(&source.span, &compact):
            malformed(program, op, source, "no length fits here")
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
    return <Py_ssize_t> result


cdef object read_sized(Program program, Op* op, int kind, bint nullable, Source* source):
    """A string, bytes or records."""
    cdef Py_ssize_t size = read_length(program, op, kind, nullable, source)
    cdef Span piece = source.span
    if size < 0:
        return None
    if not take(&source.span, size, &piece):
        malformed(program, op, source, f"{size} bytes announced, {remaining(&source.span)} left")
    if kind == STRING:
        try:
            return PyUnicode_DecodeUTF8(<const char*> piece.p, size, NULL)
        except UnicodeDecodeError:
            malformed(program, op, source, "text that is not UTF-8")
    if kind == RECORDS:
        return slice_of(<object> source.owner, piece.p, size)
    return PyBytes_FromStringAndSize(<const char*> piece.p, size)


cdef object read_array(Program program, Op* op, bint nullable, Source* source):
    cdef Py_ssize_t count = read_length(program, op, ARRAY, nullable, source)
    cdef Py_ssize_t i
    cdef list items
    cdef object item
    cdef Program inner
    if count < 0:
        return None
    if count > remaining(&source.span) // op.least:
        malformed(program, op, source, f"{count} elements announced, {remaining(&source.span)} bytes left")
    items = PyList_New(count)
    if op.element == STRUCT:
        inner = <Program> op.inner
        for i in range(count):
            item = read_message(inner, source)
            Py_INCREF(item)             # PyList_SET_ITEM takes a reference over
            PyList_SET_ITEM(items, i, item)
    else:
        for i in range(count):
            item = read_value(program, op, op.element, False, source)
            Py_INCREF(item)
            PyList_SET_ITEM(items, i, item)
    return items


cdef object read_struct(Program program, Op* op, bint nullable, Source* source):
    """A struct; a nullable one is preceded by a byte, negative for null."""
    cdef int8_t present = 0
    if nullable:
        if not read_i8(&source.span, &present):
            malformed(program, op, source, "the bytes end here")
        if present < 0:
            return None
    return read_message(<Program> op.inner, source)


cdef int read_tags(Program program, object message, Source* source) except -1:
    """The tagged fields that end a flexible struct. Unknown ones are skipped; with `message` None, all."""
    cdef uint32_t count = 0, tag = 0, size = 0
    cdef const unsigned char* end
    cdef Op* op
    if not read_uvarint(&source.span, &count):
        malformed(program, NULL, source, "no count of tagged fields fits here")
    while count > 0:
        count -= 1
        if not read_uvarint(&source.span, &tag) or not read_uvarint(&source.span, &size):
            malformed(program, NULL, source, "no tagged field fits here")
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
    """The field with this tag, or NULL."""
    for index in program.tagged:
        if program.ops[<int> index].tag == <int64_t> tag:
            return &program.ops[<int> index]
    return NULL


# --- writing ------------------------------------------------------------------------------------------------

cdef struct Target:
    unsigned char* data     # realloc'd as it grows; freed by whoever made the Target
    Py_ssize_t size
    Py_ssize_t capacity


cdef unsigned char* grow(Target* target, Py_ssize_t size) except NULL:
    """Room for `size` more bytes, counted as written."""
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
    """A Python int within bounds."""
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
    """A field's value; TypeError if it was deleted."""
    cdef PyObject* value = kc_get_slot(message, op.offset)
    if value == NULL:
        raise TypeError(f"{program.cls.__name__}.{<object> op.name} has no value")
    return <object> value


cdef int write_field(Program program, Op* op, object value, Target* target) except -1:
    """One field, with its name on whatever goes wrong."""
    try:
        write_value(program, op, op.kind, op.nullable, value, target)
    except (TypeError, ValueError, OverflowError) as error:
        error.add_note(f"in {program.cls.__name__}.{<object> op.name}")
        raise
    return 0


cdef int write_value(
    Program program, Op* op, int kind, bint nullable, object value, Target* target
) except -1:
    """One value; `kind` is the field's own, or that of its elements."""
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
    """The length of a string, bytes, records or array; -1 for null."""
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
        raise TypeError("None where the protocol has no null")
    return write_length(program, kind, -1, target)


cdef int write_uuid(object value, Target* target) except -1:
    if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != UUID_BYTES:
        raise ValueError(f"a UUID is {UUID_BYTES} bytes, not {value!r}")
    return write_raw(target, PyBytes_AS_STRING(value), UUID_BYTES)


cdef int write_sized(Program program, int kind, bint nullable, object value, Target* target) except -1:
    """A string, bytes or records."""
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
    """The tagged fields that differ from their defaults, by ascending tag."""
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


# --- messages, requests and responses -----------------------------------------------------------------------

cdef int open_source(object buffer, Py_ssize_t offset, Source* source, list owner) except -1:
    """Point `source` into a buffer; what must stay alive meanwhile goes into `owner`."""
    cdef Slice whole = Slice(buffer)
    if not 0 <= offset <= len(whole):
        raise ValueError(f"offset {offset} is outside a buffer of {len(whole)} bytes")
    owner.append(whole.owner)
    source.owner = <PyObject*> whole.owner
    source.start = whole.span.p
    source.span.p = whole.span.p + offset
    source.span.end = whole.span.end
    return 0


cdef int finish(Program program, Source* source) except -1:
    if remaining(&source.span):
        malformed(program, NULL, source, f"{remaining(&source.span)} bytes after the message")
    return 0


def decode(plan, buffer, Py_ssize_t offset=0, *, bint allow_trailing=False):
    """Read one message. ProtocolError if it does not parse or, unless `allow_trailing`, if bytes are left
    after it.

    Record fields are Slices that keep `buffer` alive; everything else is copied out.
    """
    cdef Source source
    cdef Program program = program_of(plan)
    cdef list owner = []
    open_source(buffer, offset, &source, owner)
    message = read_message(program, &source)
    if not allow_trailing:
        finish(program, &source)
    return message


def encode(plan, message):
    """The bytes of one message."""
    cdef Target target
    target.data, target.size, target.capacity = NULL, 0, 0
    try:
        write_message(program_of(plan), message, &target)
        return PyBytes_FromStringAndSize(<const char*> target.data, target.size)
    finally:
        free(target.data)


def encode_request(api, int16_t version, int32_t correlation_id, client_id, message):
    """A whole request for the socket: size, header, message. ValueError if the tables lack the version."""
    cdef Target target
    cdef Program program = program_of(api.request_plan(version))
    target.data, target.size, target.capacity = NULL, 0, 0
    try:
        write_i32(&target, 0)
        write_i16(&target, api.key)
        write_i16(&target, version)
        write_i32(&target, correlation_id)
        write_client_id(client_id, &target)
        if api.request_header_version(version) >= 2:
            write_uvarint(&target, 0)
        write_message(program, message, &target)
        return sized(&target)
    finally:
        free(target.data)


cdef int write_client_id(object client_id, Target* target) except -1:
    """A nullable string with a two-byte length, even in a flexible header."""
    cdef const char* text
    cdef Py_ssize_t size = 0
    if client_id is None:
        return write_i16(target, -1)
    text = PyUnicode_AsUTF8AndSize(client_id, &size)
    if size > (1 << 15) - 1:
        raise ValueError(f"a client id of {size} bytes does not fit on the wire")
    write_i16(target, <int16_t> size)
    return write_raw(target, text, size)


cdef bytes sized(Target* target):
    """The written bytes, with their size in the four that were left free for it."""
    if target.size - 4 > (1 << 31) - 1:
        raise ValueError(f"a message of {target.size - 4} bytes does not fit on the wire")
    kc_store_be32(target.data, <uint32_t> (target.size - 4))
    return PyBytes_FromStringAndSize(<const char*> target.data, target.size)


def decode_response(api, int16_t version, frame):
    """`(correlation_id, message)` of a response without its size; ProtocolError if it does not parse."""
    cdef Source source
    cdef Program program = program_of(api.response_plan(version))
    cdef list owner = []
    cdef int32_t correlation_id = 0
    open_source(frame, 0, &source, owner)
    if not read_i32(&source.span, &correlation_id):
        malformed(program, NULL, &source, "the bytes end within the header")
    if api.response_header_version(version) >= 1:
        read_tags(program, None, &source)
    message = read_message(program, &source)
    finish(program, &source)
    return correlation_id, message


# --- the broker's side, for fake brokers --------------------------------------------------------------------

def decode_request(apis, frame):
    """`(api, version, correlation_id, client_id, message)` of a request frame without its size.

    `apis` maps keys to APIs, like `kconsumer.schema.APIS`. ProtocolError if the frame does not parse or is of
    an API or version that is not there.
    """
    cdef Source source
    cdef Program program
    cdef list owner = []
    cdef int16_t key = 0, version = 0
    cdef int32_t correlation_id = 0
    open_source(frame, 0, &source, owner)
    if not (read_i16(&source.span, &key) and read_i16(&source.span, &version)):
        raise ProtocolError("a request without a header")
    api = apis.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        raise ProtocolError(f"a request of key {key} and version {version}, which is not known here")
    program = program_of(api.request_plan(version))
    if not read_i32(&source.span, &correlation_id):
        malformed(program, NULL, &source, "the bytes end within the header")
    client_id = read_client_id(program, &source)
    if api.request_header_version(version) >= 2:
        read_tags(program, None, &source)
    message = read_message(program, &source)
    finish(program, &source)
    return api, version, correlation_id, client_id, message


cdef object read_client_id(Program program, Source* source):
    cdef int16_t size = 0
    cdef Span piece = source.span
    if not read_i16(&source.span, &size) or size < -1 or size >= 0 and not take(&source.span, size, &piece):
        malformed(program, NULL, source, "no client id fits here")
    if size < 0:
        return None
    try:
        return PyUnicode_DecodeUTF8(<const char*> piece.p, size, NULL)
    except UnicodeDecodeError:
        malformed(program, NULL, source, "a client id that is not UTF-8")


def encode_response(api, int16_t version, int32_t correlation_id, message):
    """A whole response for the socket: size, header, message."""
    cdef Target target
    cdef Program program = program_of(api.response_plan(version))
    target.data, target.size, target.capacity = NULL, 0, 0
    try:
        write_i32(&target, 0)
        write_i32(&target, correlation_id)
        if api.response_header_version(version) >= 1:
            write_uvarint(&target, 0)
        write_message(program, message, &target)
        return sized(&target)
    finally:
        free(target.data)
