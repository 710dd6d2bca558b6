/* Finds objects that only the caller refers to, and reuses such bytes objects.
 *
 * It reuses bytes objects that have no other reference, instead of freeing them and allocating new ones. In a loop
 * over small values, the allocator took a seventh of the time. CPython changes bytes objects in the same way when it
 * concatenates or resizes them. */
#ifndef KCONSUMER_REFILL_H
#define KCONSUMER_REFILL_H

#include <Python.h>
#include <string.h>

#include "atomics.h"

enum {
    KC_MAX_REFILLED = 4096, /* larger objects are freed as soon as possible */
    KC_MIN_REFILLED = 2,      /* smaller objects are shared by the whole process */
    KC_MAX_WASTE = 64,              /* maximum of unused bytes in a reused object, which the user may keep for long */
#if defined(Py_GIL_DISABLED)
    KC_REUSES = 0                   /* whether `kc_only_reference` ever returns 1 */
#else
    KC_REUSES = 1
#endif
};

/* Returns whether the caller has the only reference to `object`, so that it may be changed.
 *
 * The caller's reference must be counted: one of its attributes, not an argument. From Python 3.14 on, the interpreter's
 * stack may refer to an object without counting that, but only while a local variable refers to the object, too, and
 * that is counted. Without the GIL the result is always 0: another thread may be about to take a reference. */
static inline int kc_only_reference(PyObject *object)
{
#if defined(Py_GIL_DISABLED)
    (void)object;
    return 0;
#elif PY_VERSION_HEX >= 0x030E0000
    return PyUnstable_Object_IsUniquelyReferenced(object);
#else
    return Py_REFCNT(object) == 1;
#endif
}

/* Returns those of the bits `parts` that are set in `made`: which fields of a record have objects. Without the GIL,
 * another thread may set them, after it has stored the object. */
static inline int kc_made(const uint8_t *made, int parts)
{
#if defined(Py_GIL_DISABLED)
    return kc_atomic_load_8(made) & parts;
#else
    return *made & parts;
#endif
}

/* Set bits in `made`, after their objects were stored. Only one thread at a time may call this. */
static inline void kc_set_made(uint8_t *made, int parts)
{
#if defined(Py_GIL_DISABLED)
    kc_atomic_store_8(made, (uint8_t)(*made | parts));
#else
    *made = (uint8_t)(*made | parts);
#endif
}

/* Replace the contents of `bytes`, which was allocated for `room` bytes, by the `size` bytes at `data`. Returns 0,
 * without a change, if `size` is not suitable or if there is a reference to `bytes` other than the caller's. */
static inline int kc_refill(PyObject *bytes, Py_ssize_t room, const char *data, Py_ssize_t size)
{
    if (size < KC_MIN_REFILLED || size > room || size < room - KC_MAX_WASTE || !kc_only_reference(bytes))
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
