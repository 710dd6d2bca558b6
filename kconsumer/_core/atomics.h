/* Atomic operations for memory that threads share, with the built-in functions of GCC and Clang, or those of MSVC.
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

static inline int kc_atomic_load_8(const uint8_t *at)
{
    return (uint8_t) _InterlockedOr8((volatile char *) at, 0);
}

static inline void kc_atomic_store_8(uint8_t *at, uint8_t number)
{
    _InterlockedExchange8((volatile char *) at, (char) number);
}

/* Acquire a lock if no thread holds it: a number that is 0 while it is free. Returns 0 if a thread holds it. */
static inline int kc_try_lock(int32_t *lock)
{
    return _InterlockedExchange((volatile long *) lock, 1) == 0;
}

static inline void kc_unlock(int32_t *lock)
{
    _InterlockedExchange((volatile long *) lock, 0);
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

static inline int kc_atomic_load_8(const uint8_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static inline void kc_atomic_store_8(uint8_t *at, uint8_t number)
{
    __atomic_store_n(at, number, __ATOMIC_RELEASE);
}

/* Acquire a lock if no thread holds it: a number that is 0 while it is free. Returns 0 if a thread holds it. */
static inline int kc_try_lock(int32_t *lock)
{
    return __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) == 0;
}

static inline void kc_unlock(int32_t *lock)
{
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

#endif
#endif
