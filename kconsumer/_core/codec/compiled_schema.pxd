# Compiled plans: C structs that the decoder and the encoder read.
#
# A plan is a tuple that describes the fields of one message class in one version (see `kconsumer.schema.dsl.plan`).

from cpython.object cimport PyObject, PyTypeObject


cdef enum:
    ABSENT, BOOL, INT8, INT16, INT32, INT64, UUID, STRING, BYTES, RECORDS, ARRAY, STRUCT

cdef enum:
    UUID_BYTES = 16


# Message classes have slots. Setting attributes takes most of the time of decoding. Access by the offset of a slot, as
# its member descriptor does it, takes a fifth of the time of an attribute lookup by name. The offset comes from a
# member descriptor of the class itself (see `load_row`), and is used for instances of that class only.
cdef extern from "slots.h":
    Py_ssize_t kc_slot_offset(object descriptor, PyTypeObject* cls)
    PyObject* kc_get_slot(object message, Py_ssize_t offset)
    void kc_set_slot(object message, Py_ssize_t offset, object value)


cdef struct Op:
    # One field of a message.
    int kind
    int element             # for ARRAY: the kind of its elements
    bint nullable
    int tag                 # -1: not a tagged field
    Py_ssize_t offset       # offset in bytes of the field's slot in a message object
    Py_ssize_t min_size     # for ARRAY: the smallest encoded size of an element in bytes
    # Borrowed references. `Program.plan` keeps the first three objects alive, and `Program.inners` keeps `inner` alive.
    PyObject* name
    PyObject* default
    PyObject* fresh         # a callable that creates the default value; NULL: use `default`
    PyObject* inner         # for STRUCT, and for ARRAY of STRUCT: the Program of the struct; otherwise NULL


cdef class Program:
    cdef tuple plan
    cdef list inners        # the Programs of structs inside the message
    cdef object cls         # the message class
    cdef bint flexible      # the version has compact lengths and tagged fields (KIP-482)
    cdef Py_ssize_t min_size   # the smallest encoded size of a message in bytes
    cdef int count
    cdef Op* ops            # `count` items, freed with the Program
    cdef list tagged        # the indexes in `ops` of the tagged fields, by ascending tag


cdef Program program_of(object plan)
cdef object default_of(Op* op)
