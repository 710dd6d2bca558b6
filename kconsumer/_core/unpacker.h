/* A thread that decompresses blocks before they are needed, and touches nothing of Python.
 *
 * The functions that decompress are those of libraries that are there already (see unpacker.pyx). One thread serves the
 * whole process and lives as long. A task belongs to the thread while it is KC_RUNNING, to whoever submitted it before
 * and after; `kc_task_end` gets it back whatever it is. Those who submit hold the GIL. A forked child begins anew: the thread is not there. */
#ifndef KCONSUMER_UNPACKER_H
#define KCONSUMER_UNPACKER_H

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

typedef enum { KC_IDLE, KC_WAITING, KC_RUNNING, KC_DONE } kc_task_state;
typedef enum { KC_LZ4, KC_ZSTD, KC_CODECS } kc_codec;

typedef struct kc_task {
    kc_task_state state;
    kc_codec codec;
    const unsigned char *packed;
    size_t size;
    unsigned char *memory;
    size_t capacity;
    ptrdiff_t result; /* bytes in the memory; -1: it did not work out */
    struct kc_task *next;
} kc_task;

typedef int (*kc_lz4_function)(const char *packed, char *memory, int size, int capacity);
typedef size_t (*kc_zstd_function)(void *context, void *memory, size_t capacity, const void *packed, size_t size);

static kc_lz4_function kc_lz4;
static kc_zstd_function kc_zstd;
static unsigned (*kc_zstd_is_error)(size_t);
static void *(*kc_zstd_new_context)(void);

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t submitted;
    pthread_cond_t ended;
    pid_t pid;
    kc_task *first, *last; /* waiting */
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

static inline ptrdiff_t kc_unpack(const kc_task *task, void **context)
{
    size_t done;
    if (task->codec == KC_LZ4)
        return kc_lz4((const char *) task->packed, (char *) task->memory, (int) task->size, (int) task->capacity);
    if (*context == NULL)
        *context = kc_zstd_new_context();
    if (*context == NULL)
        return -1;
    done = kc_zstd(*context, task->memory, task->capacity, task->packed, task->size);
    return kc_zstd_is_error(done) ? -1 : (ptrdiff_t) done;
}

static void *kc_unpack_all(void *argument)
{
    kc_unpacker *unpacker = argument;
    void *context = NULL;
    kc_task *task;
    ptrdiff_t result;
    pthread_mutex_lock(&unpacker->lock);
    for (;;) {
        while ((task = unpacker->first) == NULL)
            pthread_cond_wait(&unpacker->submitted, &unpacker->lock);
        unpacker->first = task->next;
        task->state = KC_RUNNING;
        pthread_mutex_unlock(&unpacker->lock);
        result = kc_unpack(task, &context);
        pthread_mutex_lock(&unpacker->lock);
        task->result = result < 0 ? -1 : result;
        task->state = KC_DONE;
        pthread_cond_broadcast(&unpacker->ended);
    }
    return NULL;
}

/* The process's thread, started at the first call; NULL if the system refuses. */
static inline kc_unpacker *kc_unpacker_get(void)
{
    kc_unpacker *unpacker = kc_process_unpacker;
    pthread_t thread;
    sigset_t all, before;
    int refused;
    if (unpacker != NULL && unpacker->pid == getpid())
        return unpacker;
    unpacker = calloc(1, sizeof *unpacker); /* after a fork the old one, whose lock may be held for ever, is left */
    if (unpacker == NULL)
        return NULL;
    pthread_mutex_init(&unpacker->lock, NULL);
    pthread_cond_init(&unpacker->submitted, NULL);
    pthread_cond_init(&unpacker->ended, NULL);
    unpacker->pid = getpid();
    sigfillset(&all); /* signals are for Python's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    refused = pthread_create(&thread, NULL, kc_unpack_all, unpacker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (refused) {
        free(unpacker);
        return NULL;
    }
    pthread_detach(thread);
    return kc_process_unpacker = unpacker;
}

/* Hand over tasks, a list by `next`; whether somebody will do them. */
static inline int kc_tasks_submit(kc_task *first, kc_task *last)
{
    kc_unpacker *unpacker = kc_unpacker_get();
    kc_task *task;
    if (unpacker == NULL)
        return 0;
    last->next = NULL;
    for (task = first; task != NULL; task = task->next)
        task->state = KC_WAITING;
    pthread_mutex_lock(&unpacker->lock);
    if (unpacker->first == NULL)
        unpacker->first = first;
    else
        unpacker->last->next = first;
    unpacker->last = last;
    pthread_cond_signal(&unpacker->submitted);
    pthread_mutex_unlock(&unpacker->lock);
    return 1;
}

/* Take a waiting task out of the queue. The lock is held. */
static inline void kc_task_dequeue(kc_unpacker *unpacker, kc_task *task)
{
    kc_task *before = NULL, *at;
    for (at = unpacker->first; at != task; at = at->next)
        before = at;
    if (before == NULL)
        unpacker->first = task->next;
    else
        before->next = task->next;
    if (unpacker->last == task)
        unpacker->last = before;
}

/* Do a waiting task here and now. The lock is held, but not meanwhile. */
static inline void kc_task_do(kc_unpacker *unpacker, kc_task *task)
{
    static void *context; /* callers hold the GIL */
    ptrdiff_t result;
    kc_task_dequeue(unpacker, task);
    task->state = KC_RUNNING;
    pthread_mutex_unlock(&unpacker->lock);
    result = kc_unpack(task, &context);
    pthread_mutex_lock(&unpacker->lock);
    task->result = result < 0 ? -1 : result;
    task->state = KC_DONE;
}

/* Get a task back. With `wanted` its result, -1 if it did not work out: the caller does it if the thread has not begun,
 * and other tasks while the thread is at it. Otherwise -1, and nothing is begun. */
static inline ptrdiff_t kc_task_end(kc_task *task, int wanted)
{
    kc_unpacker *unpacker = kc_process_unpacker;
    if (task->state == KC_IDLE)
        return -1;
    if (unpacker == NULL || unpacker->pid != getpid()) { /* submitted before a fork: nobody does it here */
        task->state = KC_IDLE;
        return -1;
    }
    pthread_mutex_lock(&unpacker->lock);
    if (task->state == KC_WAITING) {
        if (wanted)
            kc_task_do(unpacker, task);
        else
            kc_task_dequeue(unpacker, task);
    }
    while (task->state == KC_RUNNING) {
        if (wanted && unpacker->first != NULL)
            kc_task_do(unpacker, unpacker->first);
        else
            pthread_cond_wait(&unpacker->ended, &unpacker->lock);
    }
    wanted = wanted && task->state == KC_DONE;
    task->state = KC_IDLE;
    pthread_mutex_unlock(&unpacker->lock);
    return wanted ? task->result : -1;
}

#endif
