/* Bytes objects that nobody else has any more, filled again in place of being freed and made anew: of a loop over small
 * values, the allocator took a seventh. CPython does the same where it concatenates or resizes bytes. */
#ifndef KCONSUMER_REFILL_H
#define KCONSUMER_REFILL_H

#include <Python.h>
#include <string.h>

enum {
    KC_LONGEST_REFILLED = 4096, /* what is larger is freed as soon as it can be */
    KC_LEAST_REFILLED = 2,      /* what is smaller is shared by the whole process */
    KC_WASTE = 64               /* how much longer the object may be than its new contents, which may be kept for long */
};

/* Whether `bytes`, made for `room` bytes by us, holds `size` bytes of `data` now. It does not if it is seen by anybody
 * but the caller's one reference. */
static inline int kc_refill(PyObject *bytes, Py_ssize_t room, const char *data, Py_ssize_t size)
{
    if (size < KC_LEAST_REFILLED || size > room || size < room - KC_WASTE || Py_REFCNT(bytes) != 1)
        return 0;
    Py_SET_SIZE((PyVarObject *)bytes, size);
    memcpy(PyBytes_AS_STRING(bytes), data, (size_t)size);
    PyBytes_AS_STRING(bytes)[size] = '\0';
    _Py_COMP_DIAG_PUSH
    _Py_COMP_DIAG_IGNORE_DEPR_DECLS /* there is no other way to say that the hash is not known */
    ((PyBytesObject *)bytes)->ob_shash = -1;
    _Py_COMP_DIAG_POP
    return 1;
}

#endif
