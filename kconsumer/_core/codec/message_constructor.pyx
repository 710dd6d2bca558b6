"""The constructor of message classes.

A message class has one slot for each field (see `kconsumer.schema.dsl.Message`). The constructor stores values by the
offsets of the slots, like the decoder. It is the vectorcall function of the class (PEP 590), so a call creates neither
a dict of its arguments nor a frame.
"""

from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdlib cimport calloc, free


cdef extern from "Python.h":
    ctypedef object (*vectorcallfunc)(object callable, PyObject* const* args, size_t nargsf, PyObject* kwnames)
    ctypedef struct PyTypeWithVectorcall "PyTypeObject":
        vectorcallfunc tp_vectorcall
        unsigned long tp_flags
    unsigned long Py_TPFLAGS_HAVE_VECTORCALL
    Py_ssize_t PyVectorcall_NARGS(size_t nargsf)
    PyObject* PyTuple_GET_ITEM(PyObject* items, Py_ssize_t index)   # a borrowed reference
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)


cdef struct FieldSlot:
    # One field of a message class. The references are borrowed: `Layout.fields` keeps the objects alive.
    PyObject* name
    PyObject* default
    PyObject* fresh         # a callable that creates the default value; NULL: use `default`
    Py_ssize_t offset       # offset in bytes of the field's slot in a message object


cdef class Layout:
    """The fields of one message class."""

    cdef tuple fields       # (name, default, fresh) of each field
    cdef Py_ssize_t count
    cdef FieldSlot* slots   # `count` items, freed with the Layout

    def __dealloc__(self):
        free(self.slots)


cdef dict layouts = {}      # message class -> its Layout, from its first call on


def install_constructor(cls):
    """Give a class whose attribute FIELDS describes its slots a constructor, which takes fields as keyword arguments.

    Fields that are not given get their defaults. Raises TypeError for what is not a class.
    """
    cdef object message_type = type(cls)
    cdef PyTypeWithVectorcall* metaclass = <PyTypeWithVectorcall*> <PyObject*> message_type
    if not isinstance(cls, type):
        raise TypeError(f"{cls!r} is not a class")
    (<PyTypeWithVectorcall*> <PyObject*> cls).tp_vectorcall = construct
    # Without this flag of the metaclass, calls of the class do not use `tp_vectorcall`. Metaclasses inherit the flag
    # from `type` since Python 3.12.
    if not metaclass.tp_flags & Py_TPFLAGS_HAVE_VECTORCALL:
        metaclass.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL


cdef Layout new_layout(object cls):
    """Returns the Layout of a message class. Raises TypeError if the class has no slot for a field."""
    cdef Layout layout = Layout.__new__(Layout)
    cdef FieldSlot* slot
    cdef tuple row
    cdef Py_ssize_t i
    layout.fields = tuple([(field.name, field.default, field.fresh) for field in cls.FIELDS])
    layout.count = len(layout.fields)
    layout.slots = <FieldSlot*> calloc(<size_t> max(layout.count, 1), sizeof(FieldSlot))
    if layout.slots == NULL:
        raise MemoryError()
    for i in range(layout.count):
        slot, row = &layout.slots[i], layout.fields[i]
        slot.name = <PyObject*> row[0]
        slot.default = <PyObject*> row[1]
        slot.fresh = NULL if row[2] is None else <PyObject*> row[2]
        slot.offset = slot_offset(cls, row[0])
    return layout


cdef Py_ssize_t slot_offset(object cls, str name) except -1:
    """Returns the offset of the slot of a field. `cls` or one of its base classes defines the slot."""
    cdef Py_ssize_t offset
    for base in cls.__mro__:
        offset = kc_slot_offset(base.__dict__.get(name), <PyTypeObject*> base)
        if offset >= 0:
            return offset
    raise TypeError(f"{cls.__name__}.{name} is not a slot")


cdef object construct(object cls, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    """Returns a new message. Raises TypeError for positional arguments and for names that are no fields."""
    cdef Layout layout = <Layout> layouts.get(cls)
    cdef Py_ssize_t count = 0 if kwnames == NULL else PyTuple_GET_SIZE(<object> kwnames)
    cdef Py_ssize_t i, given = 0
    cdef FieldSlot* slot
    cdef object message
    if PyVectorcall_NARGS(nargsf):
        raise TypeError(f"{cls.__name__} takes keyword arguments only")
    if layout is None:
        layout = layouts[cls] = new_layout(cls)
    message = PyType_GenericAlloc(<PyTypeObject*> cls, 0)
    for i in range(layout.count):
        slot = &layout.slots[i]
        # Callers name most fields in their order, and the names are interned.
        if given < count and PyTuple_GET_ITEM(kwnames, given) == slot.name:
            kc_set_slot(message, slot.offset, <object> args[given])
            given += 1
        elif slot.fresh == NULL:
            kc_set_slot(message, slot.offset, <object> slot.default)
        elif slot.fresh == <PyObject*> list:
            kc_set_slot(message, slot.offset, [])
        else:
            kc_set_slot(message, slot.offset, (<object> slot.fresh)())
    for i in range(given, count):
        slot = slot_named(layout, <object> PyTuple_GET_ITEM(kwnames, i))
        if slot == NULL:
            unknown = sorted(set(<object> kwnames) - {row[0] for row in layout.fields})
            raise TypeError(f"{cls.__name__} has no field {', '.join(unknown)}")
        kc_set_slot(message, slot.offset, <object> args[i])
    return message


cdef FieldSlot* slot_named(Layout layout, str name):
    """Returns the slot of the field with this name, or NULL."""
    cdef Py_ssize_t i
    for i in range(layout.count):
        if name == <object> layout.slots[i].name:
            return &layout.slots[i]
    return NULL
