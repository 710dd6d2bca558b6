"""A plan of `kconsumer.schema.dsl`, loaded into an array of C structs that reading and writing walk."""

from cpython.object cimport PyObject


cdef enum:
    ABSENT, BOOL, INT8, INT16, INT32, INT64, UUID, STRING, BYTES, RECORDS, ARRAY, STRUCT

cdef enum:
    UUID_BYTES = 16


# Message classes keep their fields in slots. Going to the slot by its offset, as the slot's own descriptor
# does, takes a fifth of the time of an attribute lookup by name, and this is most of what decoding does. The
# offset is taken only from a member descriptor of the very class (see `load`), and used only on instances of
# that class.
cdef extern from "slots.h":
    PyObject* kc_get_slot(object message, Py_ssize_t offset)
    void kc_set_slot(object message, Py_ssize_t offset, object value)


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
    cdef tuple plan
    cdef list inners
    cdef type cls
    cdef bint flexible
    cdef Py_ssize_t least   # the fewest bytes a message takes
    cdef int count
    cdef Op* ops            # `count` of them, freed with the Program
    cdef list tagged        # indexes into ops, by ascending tag


cdef Program program_of(object plan)
cdef object default_of(Op* op)
