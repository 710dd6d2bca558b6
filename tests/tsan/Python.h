/* What the headers of kconsumer/_core use of Python.h, for programs without an interpreter: the GIL is a mutex, or
 * there is none. */
#ifndef KCONSUMER_TSAN_PYTHON_H
#define KCONSUMER_TSAN_PYTHON_H

#include <pthread.h>

#ifdef Py_GIL_DISABLED
#define Py_BEGIN_ALLOW_THREADS
#define Py_END_ALLOW_THREADS
#else
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;
#define Py_BEGIN_ALLOW_THREADS pthread_mutex_unlock(&gil);
#define Py_END_ALLOW_THREADS pthread_mutex_lock(&gil);
#endif

#endif
