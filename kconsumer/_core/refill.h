/* Reuses bytes objects that have no other reference, instead of freeing them and allocating new ones. In a loop over
 * small values, the allocator took a seventh of the time. CPython changes bytes objects in the same way when it
 * concatenates or resizes them. */
#ifndef KCONSUMER_REFILL_H
#define KCONSUMER_REFILL_H

#include <Python.h>
#include <string.h>

enum {
    KC_MAX_REFILLED = 4096, /* larger objects are freed as soon as possible */
    KC_MIN_REFILLED = 2,      /* smaller objects are shared by the whole process */
    KC_MAX_WASTE = 64               /* maximum of unused bytes in a reused object, which the user may keep for long */
};

/* Replace the contents of `bytes`, which was allocated for `room` bytes, by the `size` bytes at `data`. Returns 0,
 * without a change, if `size` is not suitable or if there is a reference to `bytes` other than the caller's. */
static inline int kc_refill(PyObject *bytes, Py_ssize_t room, const char *data, Py_ssize_t size)
{
    if (size < KC_MIN_REFILLED || size > room || size < room - KC_MAX_WASTE || Py_REFCNT(bytes) != 1)
        return 0;
    Py_SET_SIZE((PyVarObject *)bytes, size);
    memcpy(PyBytes_AS_STRING(bytes), data, (size_t)size);
    PyBytes_AS_STRING(bytes)[size] = '\0';
    _Py_COMP_DIAG_PUSH
    _Py_COMP_DIAG_IGNORE_DEPR_DECLS /* there is no other way to clear the cached hash */
    ((PyBytesObject *)bytes)->ob_shash = -1;
    _Py_COMP_DIAG_POP
    return 1;
}

#endif
