"""Compiles plans to C structs that the decoder and the encoder read.

A plan is a tuple that describes the fields of one message class in one version (see `kconsumer.schema.dsl.plan`). In
the compiled form (compiled_schema.pxd), each field name becomes the offset in bytes of the field's slot, and each type
name becomes a value of an enum. A plan that is not valid raises an exception here, so the decoder and the encoder need
not check it.
"""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdlib cimport calloc, free


cdef dict KINDS = {
    "absent": ABSENT, "bool": BOOL, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64,
    "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORDS, "array": ARRAY, "struct": STRUCT,
}


cdef class Program:
    """A compiled plan. Its `ops` describe the fields of the message, in the order in which they are encoded."""

    def __dealloc__(self):
        free(self.ops)


cdef dict programs = {}     # id() of a plan -> its Program, which keeps the plan alive, so that the id is not reused


cdef Program program_of(object plan):
    """Returns the Program of a plan. Compiles it at the first call."""
    found = programs.get(id(plan))
    if found is None:
        found = programs[id(plan)] = load(plan)
    return <Program> found


cdef Program load(tuple plan):
    """Compile a plan to a Program. Raises TypeError for a tuple that `schema.dsl.plan` did not create."""
    cdef Program program = Program.__new__(Program)
    cdef Op* op
    cdef list tags = []
    cdef int i
    program.plan = plan
    program.inners = []
    program.cls, program.flexible = plan[0], plan[1]
    if not isinstance(program.cls, type):
        raise TypeError(f"{program.cls!r} is not a class")
    program.count = <int> len(plan) - 2
    program.ops = <Op*> calloc(<size_t> max(program.count, 1), sizeof(Op))
    if program.ops == NULL:
        raise MemoryError()
    program.min_size = 1 if program.flexible else 0
    for i in range(program.count):
        op = &program.ops[i]
        load_row(program, op, plan[i + 2])
        if op.tag >= 0:
            tags.append((op.tag, i))
        elif op.kind != ABSENT:
            program.min_size += min_size_of(op.kind, op.nullable, program.flexible, op.inner)
    program.tagged = [index for _, index in sorted(tags)]
    return program


cdef int load_row(Program program, Op* op, tuple row) except -1:
    """Set `op` from `row`, the row of a field in a plan: `(name, kind, inner, nullable, tag, default, fresh)`.

    `kconsumer.schema.dsl.plan` describes these values. Raises TypeError if the message class has no slot for the field,
    or if a struct has no plan.
    """
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
        op.min_size = max(1, min_size_of(op.element, False, program.flexible, op.inner))
    elif op.kind == STRUCT and op.inner == NULL:
        raise TypeError(f"{program.cls.__name__}.{row[0]} has no plan")
    return 0


cdef Py_ssize_t min_size_of(int kind, bint nullable, bint flexible, PyObject* inner):
    """Returns the smallest encoded size in bytes of a value of the kind `kind`. `inner` is the Program of a struct."""
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
        return 1 if nullable else (<Program> inner).min_size
    if flexible:
        return 1
    return 2 if kind == STRING else 4


cdef object default_of(Op* op):
    """Returns the default value of a field. A field that is not in the encoded message gets this value."""
    if op.fresh == NULL:
        return <object> op.default
    if op.fresh == <PyObject*> list:
        return []
    return (<object> op.fresh)()
