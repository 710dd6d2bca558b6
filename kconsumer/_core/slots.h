/* Access to the slots of message classes by offset, as their member descriptors do it. */
#ifndef KCONSUMER_SLOTS_H
#define KCONSUMER_SLOTS_H

#include <Python.h>
#include <structmember.h>

/* Return the offset of this slot in instances of `cls`; -1 if `descriptor` is not a slot that `cls` itself defines. */
static inline Py_ssize_t kc_slot_offset(PyObject *descriptor, PyTypeObject *cls)
{
    PyMemberDef *member;
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type) || PyDescr_TYPE(descriptor) != cls)
        return -1;
    member = ((PyMemberDescrObject *) descriptor)->d_member;
    return member->type == T_OBJECT_EX ? member->offset : -1;
}

/* Return a borrowed reference to the value of the slot, or NULL if the slot is not set. */
static inline PyObject *kc_get_slot(PyObject *object, Py_ssize_t offset)
{
    return *(PyObject **) ((char *) object + offset);
}

static inline void kc_set_slot(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    PyObject **slot = (PyObject **) ((char *) object + offset);
    PyObject *old = *slot;
    Py_INCREF(value);
    *slot = value;
    Py_XDECREF(old);
}

#endif
