/* A thread that decompresses zstd batches in advance, without the GIL and without Python objects.
 *
 * The decompression functions come from shared libraries (see decompressor.pyx). One thread serves the whole process
 * until it exits. Without the GIL, several threads may call these functions at the same time. A forked child process
 * has no such thread and starts its own.
 *
 * A task is one batch to decompress. Tasks are at fixed addresses and are never freed, so they need no lock: a caller
 * takes a free task by changing its state from KC_IDLE to KC_TAKEN. The thread or a caller claims a task by changing
 * its state from KC_WAITING to KC_RUNNING, and then runs it. An entry of the queue may be outdated. If its task is
 * finished or free, it cannot be claimed, and the entry is ignored. If its task is in use for another batch, that batch
 * is decompressed, which does no harm. No caller waits for another one: if the queue is locked, a task is not queued.
 */
#ifndef KCONSUMER_DECOMPRESSOR_H
#define KCONSUMER_DECOMPRESSOR_H

#ifdef _WIN32
#include "windows_stubs.h"
#else

#include <Python.h>

#include "atomics.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#define KC_TASKS 128
#define KC_QUEUE 256 /* a power of two */
#define KC_SPINS 4000 /* some microseconds, about the time to decompress a batch */
#define KC_YIELDS 100
#define KC_TASKS_SKIPPED_WHEN_CROWDED 1000

typedef enum { KC_IDLE, KC_TAKEN, KC_WAITING, KC_RUNNING, KC_DONE } kc_task_state;
typedef enum { KC_LZ4, KC_ZSTD } kc_codec;

struct kc_decompressor;

typedef struct {
    struct kc_decompressor *owner;
    int state; /* a kc_task_state; atomic. It decides who may use the other fields: the submitter or the claimer */
    const unsigned char *packed;
    size_t size;
    unsigned char *memory;
    size_t capacity;
    ptrdiff_t result; /* decompressed bytes; -1: decompression failed */
} kc_task;

typedef int (*kc_lz4_function)(const char *packed, char *memory, int size, int capacity);
typedef size_t (*kc_zstd_function)(void *context, void *memory, size_t capacity, const void *packed, size_t size);

static kc_lz4_function kc_lz4;
static kc_zstd_function kc_zstd;
static unsigned (*kc_zstd_is_error)(size_t);
static void *(*kc_zstd_new_context)(void);
static size_t (*kc_zstd_free_context)(void *);

typedef struct kc_decompressor {
    kc_task tasks[KC_TASKS];
    kc_task *queue[KC_QUEUE]; /* atomic */
    unsigned put;   /* number of entries ever added, by callers that hold `adding`; atomic */
    unsigned taken; /* number of entries ever removed, by the thread; atomic */
    unsigned next;  /* the task at which the search for a free one starts; atomic */
    int crowded;    /* how many more tasks kc_task_new refuses, because the thread had no core of its own; atomic */
    int32_t adding; /* a lock: a caller adds an entry */
    int sleeping;   /* the thread waits for `woken`, or is about to; guarded by `lock`, but also read without it */
    pthread_mutex_t lock;
    pthread_cond_t woken;
} kc_decompressor;

static kc_decompressor *kc_process_decompressor; /* atomic */
static void *kc_spare_context; /* the context that a caller uses next, or NULL; atomic */

/* Load the functions of a codec from a library. Returns 0 if the library or a function is missing. */
static inline int kc_use_library(kc_codec codec, const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *lz4, *zstd, *zstd_is_error, *zstd_new_context, *zstd_free_context;
    if (handle == NULL)
        return 0;
    if (codec == KC_LZ4) {
        lz4 = dlsym(handle, "LZ4_decompress_safe");
        if (lz4 == NULL)
            return 0;
        kc_lz4 = (kc_lz4_function) lz4;
        return 1;
    }
    zstd = dlsym(handle, "ZSTD_decompressDCtx");
    zstd_is_error = dlsym(handle, "ZSTD_isError");
    zstd_new_context = dlsym(handle, "ZSTD_createDCtx");
    zstd_free_context = dlsym(handle, "ZSTD_freeDCtx");
    if (zstd == NULL || zstd_is_error == NULL || zstd_new_context == NULL || zstd_free_context == NULL)
        return 0;
    kc_zstd_is_error = (unsigned (*)(size_t)) zstd_is_error;
    kc_zstd_new_context = (void *(*) (void) ) zstd_new_context;
    kc_zstd_free_context = (size_t (*)(void *)) zstd_free_context;
    kc_zstd = (kc_zstd_function) zstd;
    return 1;
}

static inline int kc_has_codec(kc_codec codec)
{
    return codec == KC_LZ4 ? kc_lz4 != NULL : kc_zstd != NULL;
}

/* Decompress an lz4 block. Returns the decompressed size in bytes, or a negative number if it fails. */
static inline ptrdiff_t kc_decompress_lz4(
    const unsigned char *packed, size_t size, unsigned char *memory, size_t capacity)
{
    return kc_lz4((const char *) packed, (char *) memory, (int) size, (int) capacity);
}

/* Decompress the zstd frame of a task. Returns the decompressed size in bytes, or -1 if it fails. Creates `*context` if
 * it is NULL. */
static inline ptrdiff_t kc_decompress_zstd(const kc_task *task, void **context)
{
    size_t done;
    if (*context == NULL)
        *context = kc_zstd_new_context();
    if (*context == NULL)
        return -1;
    done = kc_zstd(*context, task->memory, task->capacity, task->packed, task->size);
    return kc_zstd_is_error(done) ? -1 : (ptrdiff_t) done;
}

static inline int kc_task_claim(kc_task *task)
{
    int waiting = KC_WAITING;
    return __atomic_compare_exchange_n(&task->state, &waiting, KC_RUNNING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Run a claimed task and set its result. */
static inline void kc_task_run(kc_task *task, void **context)
{
    ptrdiff_t result = kc_decompress_zstd(task, context);
    task->result = result < 0 ? -1 : result;
    __atomic_store_n(&task->state, KC_DONE, __ATOMIC_RELEASE);
}

/* Sleep until the queue has an entry. */
static inline void kc_decompressor_sleep(kc_decompressor *decompressor)
{
    pthread_mutex_lock(&decompressor->lock);
    __atomic_store_n(&decompressor->sleeping, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&decompressor->put, __ATOMIC_SEQ_CST) == decompressor->taken)
        pthread_cond_wait(&decompressor->woken, &decompressor->lock);
    __atomic_store_n(&decompressor->sleeping, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&decompressor->lock);
}

static void *kc_decompress_loop(void *argument)
{
    kc_decompressor *decompressor = argument;
    void *context = NULL;
    kc_task *task;
    for (;;) {
        if (__atomic_load_n(&decompressor->put, __ATOMIC_ACQUIRE) == decompressor->taken)
            kc_decompressor_sleep(decompressor);
        task = __atomic_load_n(&decompressor->queue[decompressor->taken % KC_QUEUE], __ATOMIC_RELAXED);
        __atomic_store_n(&decompressor->taken, decompressor->taken + 1, __ATOMIC_RELEASE);
        if (kc_task_claim(task))
            kc_task_run(task, &context);
    }
    return NULL;
}

static int32_t kc_creating; /* a lock: a caller creates the decompressor of the process */

static void kc_after_fork(void)
{
    kc_process_decompressor = NULL; /* leaked on purpose: its thread does not exist in the child */
    kc_unlock(&kc_creating); /* a thread that does not exist in the child may have held it */
}

/* Create the decompressor of the process and start its thread. Returns NULL if memory or threads are exhausted. */
static inline kc_decompressor *kc_decompressor_new(void)
{
    static int fork_handler_set;
    kc_decompressor *decompressor = calloc(1, sizeof *decompressor);
    pthread_t thread;
    sigset_t all, before;
    int refused;
    if (decompressor == NULL)
        return NULL;
    pthread_mutex_init(&decompressor->lock, NULL);
    pthread_cond_init(&decompressor->woken, NULL);
    sigfillset(&all); /* signals must be delivered to Python's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    refused = pthread_create(&thread, NULL, kc_decompress_loop, decompressor);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (refused) {
        free(decompressor);
        return NULL;
    }
    pthread_detach(thread);
    if (!fork_handler_set)
        fork_handler_set = pthread_atfork(NULL, NULL, kc_after_fork) == 0;
    __atomic_store_n(&kc_process_decompressor, decompressor, __ATOMIC_RELEASE);
    return decompressor;
}

/* Return the decompressor of the process. The first call creates it. Returns NULL if that fails, or if another caller
 * creates it now. */
static inline kc_decompressor *kc_decompressor_get(void)
{
    kc_decompressor *decompressor = __atomic_load_n(&kc_process_decompressor, __ATOMIC_ACQUIRE);
    if (decompressor != NULL || !kc_try_lock(&kc_creating))
        return decompressor;
    decompressor = __atomic_load_n(&kc_process_decompressor, __ATOMIC_ACQUIRE);
    if (decompressor == NULL)
        decompressor = kc_decompressor_new();
    kc_unlock(&kc_creating);
    return decompressor;
}

/* Return a free task for the caller to fill and submit. Returns NULL if all tasks are in use, or while tasks are
 * refused (see `crowded`). */
static inline kc_task *kc_task_new(void)
{
    kc_decompressor *decompressor = kc_decompressor_get();
    kc_task *task;
    int i, idle;
    if (decompressor == NULL)
        return NULL;
    if (__atomic_load_n(&decompressor->crowded, __ATOMIC_RELAXED) > 0) {
        __atomic_fetch_sub(&decompressor->crowded, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    for (i = 0; i < KC_TASKS; i++) {
        task = &decompressor->tasks[__atomic_fetch_add(&decompressor->next, 1, __ATOMIC_RELAXED) % KC_TASKS];
        idle = KC_IDLE;
        if (__atomic_compare_exchange_n(&task->state, &idle, KC_TAKEN, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            task->owner = decompressor;
            return task;
        }
    }
    return NULL;
}

/* Submit a task. If the queue is full or locked, the task is not queued, and kc_task_end will run it on the calling
 * thread. */
static inline void kc_task_submit(kc_task *task)
{
    kc_decompressor *decompressor = task->owner;
    unsigned put;
    __atomic_store_n(&task->state, KC_WAITING, __ATOMIC_RELEASE);
    if (!kc_try_lock(&decompressor->adding))
        return;
    put = __atomic_load_n(&decompressor->put, __ATOMIC_RELAXED);
    if (put - __atomic_load_n(&decompressor->taken, __ATOMIC_ACQUIRE) != KC_QUEUE) {
        __atomic_store_n(&decompressor->queue[put % KC_QUEUE], task, __ATOMIC_RELAXED);
        __atomic_store_n(&decompressor->put, put + 1, __ATOMIC_SEQ_CST);
    }
    kc_unlock(&decompressor->adding);
}

/* Wake the thread if it sleeps. Called once after several submissions. */
static inline void kc_decompressor_wake(kc_decompressor *decompressor)
{
    if (!__atomic_load_n(&decompressor->sleeping, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&decompressor->lock);
    pthread_cond_signal(&decompressor->woken);
    pthread_mutex_unlock(&decompressor->lock);
}

/* Run one waiting task on the calling thread. Returns 0 if there is none. */
static inline int kc_run_waiting_task(kc_decompressor *decompressor, void **context)
{
    unsigned at = __atomic_load_n(&decompressor->taken, __ATOMIC_ACQUIRE);
    unsigned end = __atomic_load_n(&decompressor->put, __ATOMIC_ACQUIRE);
    kc_task *task;
    for (; at != end; at++) {
        task = __atomic_load_n(&decompressor->queue[at % KC_QUEUE], __ATOMIC_RELAXED);
        if (kc_task_claim(task)) {
            kc_task_run(task, context);
            return 1;
        }
    }
    return 0;
}

/* Wait until the thread has finished a task. Returns 1 if this took long, which means that the thread has no core of
 * its own. Under the CPU quota of a container, for example, the thread may not run for a long time. So after a short
 * wait the GIL is released. */
static inline int kc_task_await(kc_task *task)
{
    const struct timespec moment = {0, 50000};
    int tries;
    for (tries = 0; __atomic_load_n(&task->state, __ATOMIC_ACQUIRE) != KC_DONE; tries++) {
        if (tries < KC_SPINS)
            continue;
        if (tries < KC_SPINS + KC_YIELDS)
            sched_yield();
        else {
            Py_BEGIN_ALLOW_THREADS
            nanosleep(&moment, NULL);
            Py_END_ALLOW_THREADS
        }
    }
    return tries > KC_SPINS + KC_YIELDS;
}

/* Wait for a task to finish, return its result and mark the task as free. The result is -1 if decompression failed.
 *
 * If the thread has not claimed the task, the task runs on the calling thread. Otherwise the calling thread runs other
 * waiting tasks until the thread has finished this one. If `wanted` is 0, no task runs on the calling thread, and the
 * result is -1. */
static inline ptrdiff_t kc_task_end(kc_task *task, int wanted)
{
    void *context;
    ptrdiff_t result;
    int claimed;
    if (task->owner != __atomic_load_n(&kc_process_decompressor, __ATOMIC_ACQUIRE)) /* submitted before a fork */
        return -1;
    claimed = kc_task_claim(task);
    if (wanted) {
        context = kc_atomic_exchange(&kc_spare_context, NULL);
        if (claimed)
            kc_task_run(task, &context);
        while (__atomic_load_n(&task->state, __ATOMIC_ACQUIRE) != KC_DONE)
            if (!kc_run_waiting_task(task->owner, &context))
                break;
        context = kc_atomic_exchange(&kc_spare_context, context);
        if (context != NULL) /* of a caller that has used another one meanwhile */
            kc_zstd_free_context(context);
    }
    if (!claimed && kc_task_await(task))
        __atomic_store_n(&task->owner->crowded, KC_TASKS_SKIPPED_WHEN_CROWDED, __ATOMIC_RELAXED);
    result = task->result;
    __atomic_store_n(&task->state, KC_IDLE, __ATOMIC_RELEASE);
    return wanted ? result : -1;
}

#endif
#endif
