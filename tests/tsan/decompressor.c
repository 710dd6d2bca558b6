/* Four threads submit tasks to the decompression thread, and end them: one at a time with the GIL, all at once without
 * (Py_GIL_DISABLED). */
#include "decompressor.h"

#include <stdio.h>
#include <string.h>

#define THREADS 4
#define ROUNDS 400
#define TASKS 12
#define SIZE 4096

static void *new_context(void)
{
    return calloc(1, sizeof(int));
}

static size_t free_context(void *context)
{
    free(context);
    return 0;
}

static unsigned is_error(size_t result)
{
    return result == 0;
}

/* "Decompress": write the first byte of the input to the whole output. Changes the context, as zstd does. */
static size_t fill(void *context, void *memory, size_t capacity, const void *packed, size_t size)
{
    (void) size;
    ++*(int *) context;
    memset(memory, *(const unsigned char *) packed, capacity);
    return capacity;
}

static void round_of(unsigned char number)
{
    static const struct timespec moment = {0, 1000};
    unsigned char packed[TASKS], memory[TASKS][SIZE];
    kc_task *tasks[TASKS];
    int i, wanted;
    for (i = 0; i < TASKS; i++) {
        tasks[i] = kc_task_new();
        if (tasks[i] == NULL)
            continue;
        packed[i] = (unsigned char) (number + i);
        tasks[i]->packed = &packed[i];
        tasks[i]->size = 1;
        tasks[i]->memory = memory[i];
        tasks[i]->capacity = SIZE;
        kc_task_submit(tasks[i]);
    }
    if (kc_decompressor_get() != NULL) /* else another thread creates it */
        kc_decompressor_wake(kc_decompressor_get());
    Py_BEGIN_ALLOW_THREADS
    nanosleep(&moment, NULL);
    Py_END_ALLOW_THREADS
    for (i = 0; i < TASKS; i++) {
        if (tasks[i] == NULL)
            continue;
        wanted = (number + i) % 5 != 0;
        if (kc_task_end(tasks[i], wanted) != (wanted ? SIZE : -1)
            || (wanted && (memory[i][0] != packed[i] || memory[i][SIZE - 1] != packed[i]))) {
            fprintf(stderr, "a task has the result of another one\n");
            abort();
        }
    }
    if (kc_decompressor_get() != NULL) /* so that every round has tasks */
        __atomic_store_n(&kc_decompressor_get()->crowded, 0, __ATOMIC_RELAXED);
}

static void *run(void *argument)
{
    int round;
    for (round = 0; round < ROUNDS; round++) {
        Py_END_ALLOW_THREADS
        round_of((unsigned char) (*(int *) argument + round));
        Py_BEGIN_ALLOW_THREADS
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], i;
    kc_zstd = fill;
    kc_zstd_is_error = is_error;
    kc_zstd_new_context = new_context;
    kc_zstd_free_context = free_context;
    for (i = 0; i < THREADS; i++) {
        numbers[i] = 50 * i;
        if (pthread_create(&threads[i], NULL, run, &numbers[i]))
            return 1;
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
