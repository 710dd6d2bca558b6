"""A plan of `kconsumer.schema.dsl`, compiled to an array of C structs for the decoder and the encoder."""

from cpython.object cimport PyObject


cdef enum:
    ABSENT, BOOL, INT8, INT16, INT32, INT64, UUID, STRING, BYTES, RECORDS, ARRAY, STRUCT

cdef enum:
    UUID_BYTES = 16


# Message classes have slots. Access by a slot's offset, as its descriptor does it, takes a fifth of the time of an
# attribute lookup by name, and decoding does little else. The offset comes from a member descriptor of the class itself
# (see `load`) and is used for instances of that class only.
cdef extern from "slots.h":
    PyObject* kc_get_slot(object message, Py_ssize_t offset)
    void kc_set_slot(object message, Py_ssize_t offset, object value)


cdef struct Op:
    int kind
    int element             # ARRAY: the kind of its elements
    bint nullable
    int tag                 # -1 for an ordinary field
    Py_ssize_t offset       # of the field's slot in a message
    Py_ssize_t min_size     # ARRAY: the smallest encoded size of an element
    # Borrowed references: to parts of the plan, which the Program keeps alive; `inner` to the Program's list.
    PyObject* name
    PyObject* default
    PyObject* fresh         # called to create the default; NULL: use `default`
    PyObject* inner         # STRUCT, ARRAY of STRUCT: the Program of the struct


cdef class Program:
    cdef tuple plan
    cdef list inners
    cdef type cls
    cdef bint flexible
    cdef Py_ssize_t min_size   # the smallest encoded size of a message
    cdef int count
    cdef Op* ops            # `count` items, freed with the Program
    cdef list tagged        # indexes into ops, by ascending tag


cdef Program program_of(object plan)
cdef object default_of(Op* op)
