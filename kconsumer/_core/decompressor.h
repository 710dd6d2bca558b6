/* A thread that decompresses blocks before they are needed, and touches nothing of Python. Its callers hold the GIL.
 *
 * The functions that decompress are those of libraries that are there already (see decompressor.pyx). One thread serves the
 * whole process and lives as long. Its tasks stay where they are for ever, so that nobody needs a lock: whoever turns
 * KC_WAITING into KC_RUNNING does the task, the thread or a caller; an entry of the queue whose task is not waiting any
 * more, or is waiting for something else by now, is as good as any other. Callers hold the GIL, so there is one at a
 * time. A forked child begins anew: the thread is not there. */
#ifndef KCONSUMER_UNPACKER_H
#define KCONSUMER_UNPACKER_H

#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#define KC_TASKS 128
#define KC_QUEUE 256 /* a power of two */
#define KC_SPINS 4000 /* some microseconds, as a batch takes */
#define KC_YIELDS 100
#define KC_CROWDED 1000

typedef enum { KC_IDLE, KC_WAITING, KC_RUNNING, KC_DONE } kc_task_state;
typedef enum { KC_LZ4, KC_ZSTD } kc_codec;

struct kc_unpacker;

typedef struct {
    struct kc_unpacker *owner;
    int state; /* a kc_task_state; atomic, all else belongs to who does the task or has submitted it */
    const unsigned char *packed;
    size_t size;
    unsigned char *memory;
    size_t capacity;
    ptrdiff_t result; /* bytes in the memory; -1: it did not work out */
} kc_task;

typedef int (*kc_lz4_function)(const char *packed, char *memory, int size, int capacity);
typedef size_t (*kc_zstd_function)(void *context, void *memory, size_t capacity, const void *packed, size_t size);

static kc_lz4_function kc_lz4;
static kc_zstd_function kc_zstd;
static unsigned (*kc_zstd_is_error)(size_t);
static void *(*kc_zstd_new_context)(void);

typedef struct kc_unpacker {
    kc_task tasks[KC_TASKS];
    kc_task *queue[KC_QUEUE];
    unsigned put;   /* entries ever put, by callers; atomic */
    unsigned taken; /* entries ever taken, by the thread; atomic */
    unsigned next;  /* the task to look at first for the next place */
    int crowded;    /* so many tasks are not begun because the thread was waited for */
    int sleeping;   /* the thread is about to wait for `woken`; guarded by `lock`, but looked at without it */
    pthread_mutex_t lock;
    pthread_cond_t woken;
} kc_unpacker;

static kc_unpacker *kc_process_unpacker;

/* Find the functions of a codec in a library; whether they are there. */
static inline int kc_unpacker_use(kc_codec codec, const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *lz4, *zstd, *zstd_is_error, *zstd_new_context;
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
    if (zstd == NULL || zstd_is_error == NULL || zstd_new_context == NULL)
        return 0;
    kc_zstd_is_error = (unsigned (*)(size_t)) zstd_is_error;
    kc_zstd_new_context = (void *(*) (void) ) zstd_new_context;
    kc_zstd = (kc_zstd_function) zstd;
    return 1;
}

static inline int kc_unpacker_knows(kc_codec codec)
{
    return codec == KC_LZ4 ? kc_lz4 != NULL : kc_zstd != NULL;
}

/* What a block of lz4 comes to; negative: it did not work out. */
static inline ptrdiff_t kc_unpack_lz4(const unsigned char *packed, size_t size, unsigned char *memory, size_t capacity)
{
    return kc_lz4((const char *) packed, (char *) memory, (int) size, (int) capacity);
}

/* The same of a zstd frame. */
static inline ptrdiff_t kc_unpack(const kc_task *task, void **context)
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

/* Do a claimed task. */
static inline void kc_task_do(kc_task *task, void **context)
{
    ptrdiff_t result = kc_unpack(task, context);
    task->result = result < 0 ? -1 : result;
    __atomic_store_n(&task->state, KC_DONE, __ATOMIC_RELEASE);
}

/* Sleep until there is something in the queue. */
static inline void kc_unpacker_sleep(kc_unpacker *unpacker)
{
    pthread_mutex_lock(&unpacker->lock);
    __atomic_store_n(&unpacker->sleeping, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&unpacker->put, __ATOMIC_SEQ_CST) == unpacker->taken)
        pthread_cond_wait(&unpacker->woken, &unpacker->lock);
    __atomic_store_n(&unpacker->sleeping, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&unpacker->lock);
}

static void *kc_unpack_all(void *argument)
{
    kc_unpacker *unpacker = argument;
    void *context = NULL;
    kc_task *task;
    for (;;) {
        if (__atomic_load_n(&unpacker->put, __ATOMIC_ACQUIRE) == unpacker->taken)
            kc_unpacker_sleep(unpacker);
        task = unpacker->queue[unpacker->taken % KC_QUEUE];
        __atomic_store_n(&unpacker->taken, unpacker->taken + 1, __ATOMIC_RELEASE);
        if (kc_task_claim(task))
            kc_task_do(task, &context);
    }
    return NULL;
}

static void kc_unpacker_forked(void)
{
    kc_process_unpacker = NULL; /* what it was stays as it is: nobody works on it here */
}

/* The process's unpacker, with its thread started; NULL if the system refuses. */
static inline kc_unpacker *kc_unpacker_get(void)
{
    static int told_of_forks;
    kc_unpacker *unpacker = kc_process_unpacker;
    pthread_t thread;
    sigset_t all, before;
    int refused;
    if (unpacker != NULL)
        return unpacker;
    unpacker = calloc(1, sizeof *unpacker);
    if (unpacker == NULL)
        return NULL;
    pthread_mutex_init(&unpacker->lock, NULL);
    pthread_cond_init(&unpacker->woken, NULL);
    sigfillset(&all); /* signals are for Python's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    refused = pthread_create(&thread, NULL, kc_unpack_all, unpacker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (refused) {
        free(unpacker);
        return NULL;
    }
    pthread_detach(thread);
    if (!told_of_forks)
        told_of_forks = pthread_atfork(NULL, NULL, kc_unpacker_forked) == 0;
    return kc_process_unpacker = unpacker;
}

/* A task to be filled in and submitted; NULL if all are in use, or if it is better not to begin one. */
static inline kc_task *kc_task_new(void)
{
    kc_unpacker *unpacker = kc_unpacker_get();
    kc_task *task;
    int i;
    if (unpacker == NULL)
        return NULL;
    if (unpacker->crowded > 0) {
        unpacker->crowded--;
        return NULL;
    }
    for (i = 0; i < KC_TASKS; i++) {
        task = &unpacker->tasks[unpacker->next++ % KC_TASKS];
        if (__atomic_load_n(&task->state, __ATOMIC_ACQUIRE) == KC_IDLE) {
            task->owner = unpacker;
            return task;
        }
    }
    return NULL;
}

/* Have a task done. If the queue is full it waits for whoever needs it. */
static inline void kc_task_submit(kc_task *task)
{
    kc_unpacker *unpacker = task->owner;
    __atomic_store_n(&task->state, KC_WAITING, __ATOMIC_RELEASE);
    if (unpacker->put - __atomic_load_n(&unpacker->taken, __ATOMIC_ACQUIRE) == KC_QUEUE)
        return;
    unpacker->queue[unpacker->put % KC_QUEUE] = task;
    __atomic_store_n(&unpacker->put, unpacker->put + 1, __ATOMIC_SEQ_CST);
}

/* Wake the thread if it sleeps: after the last of some tasks. */
static inline void kc_unpacker_wake(kc_unpacker *unpacker)
{
    if (!__atomic_load_n(&unpacker->sleeping, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&unpacker->lock);
    pthread_cond_signal(&unpacker->woken);
    pthread_mutex_unlock(&unpacker->lock);
}

/* Do one of the waiting tasks; whether there was one. */
static inline int kc_unpacker_help(kc_unpacker *unpacker, void **context)
{
    unsigned at = __atomic_load_n(&unpacker->taken, __ATOMIC_ACQUIRE);
    for (; at != unpacker->put; at++) {
        if (kc_task_claim(unpacker->queue[at % KC_QUEUE])) {
            kc_task_do(unpacker->queue[at % KC_QUEUE], context);
            return 1;
        }
    }
    return 0;
}

/* Wait until the thread is done with a task. Returns whether that took long: the thread has no core to itself. It may
 * then be without one for a long time (under a quota of its container, for example), so the GIL is released. */
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

/* Get a task back. With `wanted` its result, -1 if it did not work out: the caller does it if the thread has not begun,
 * and other tasks while the thread is at it. Otherwise -1, and nothing is begun. */
static inline ptrdiff_t kc_task_end(kc_task *task, int wanted)
{
    static void *context;
    if (task->owner != kc_process_unpacker) /* submitted before a fork */
        return -1;
    if (kc_task_claim(task)) {
        if (wanted)
            kc_task_do(task, &context);
    } else {
        while (wanted && __atomic_load_n(&task->state, __ATOMIC_ACQUIRE) != KC_DONE)
            if (!kc_unpacker_help(task->owner, &context))
                break;
        if (kc_task_await(task))
            task->owner->crowded = KC_CROWDED;
    }
    __atomic_store_n(&task->state, KC_IDLE, __ATOMIC_RELEASE);
    return wanted ? task->result : -1;
}

#endif
