/* Atomic operations of blocks.h and arrow_abi.h, with the built-in functions of GCC and Clang, or those of MSVC.
 *
 * The functions of MSVC order all memory accesses, as the others do by their last argument or more strictly. */
#ifndef KCONSUMER_ATOMICS_H
#define KCONSUMER_ATOMICS_H

#include <stddef.h>
#include <stdint.h>

#if defined(_MSC_VER) && !defined(__clang__)
#define KC_INTERLOCKED 1
#endif

#ifdef KC_INTERLOCKED
#include <intrin.h>

/* Add to a number and return the new value. */
static inline int32_t kc_atomic_add(int32_t *at, int32_t number)
{
    return (int32_t) _InterlockedExchangeAdd((volatile long *) at, number) + number;
}

static inline int64_t kc_atomic_add_64(int64_t *at, int64_t number)
{
    return (int64_t) _InterlockedExchangeAdd64((volatile __int64 *) at, number) + number;
}

static inline int64_t kc_atomic_load_64(int64_t *at)
{
    return kc_atomic_add_64(at, 0);
}

/* Store a pointer and return the one that was there. */
static inline void *kc_atomic_exchange(void **at, void *pointer)
{
    return _InterlockedExchangePointer((void *volatile *) at, pointer);
}

static inline void *kc_atomic_load(void **at)
{
    return _InterlockedCompareExchangePointer((void *volatile *) at, NULL, NULL);
}

#else

/* Add to a number and return the new value. */
static inline int32_t kc_atomic_add(int32_t *at, int32_t number)
{
    return __atomic_add_fetch(at, number, __ATOMIC_ACQ_REL);
}

static inline int64_t kc_atomic_add_64(int64_t *at, int64_t number)
{
    return __atomic_add_fetch(at, number, __ATOMIC_RELAXED);
}

static inline int64_t kc_atomic_load_64(int64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* Store a pointer and return the one that was there. */
static inline void *kc_atomic_exchange(void **at, void *pointer)
{
    return __atomic_exchange_n(at, pointer, __ATOMIC_ACQ_REL);
}

static inline void *kc_atomic_load(void **at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

#endif
#endif
