/* Eight threads allocate, fill, pass on, grow and free blocks of columns, without a GIL. */
#include <pthread.h>
#include <stdio.h>

#include "blocks.h"

#define THREADS 8
#define ROUNDS 20000

static void *passed_on; /* a block that one thread has filled, and another one checks and frees; atomic */

static void check(const unsigned char *block, size_t size)
{
    if (block[0] != (unsigned char) size || block[size - 1] != (unsigned char) size) {
        fprintf(stderr, "a block is shared by two owners\n");
        abort();
    }
}

static void *run(void *argument)
{
    unsigned seed = *(unsigned *) argument;
    int round;
    for (round = 0; round < ROUNDS; round++) {
        size_t size, first = KC_MIN_POOLED_BYTES + (size_t) (rand_r(&seed) % 8) * 16384;
        unsigned char *block = kc_block_new(first), *other;
        memset(block, 0, 64);
        size = first + (size_t) (rand_r(&seed) % 2) * 65536;
        block = kc_block_grow(block, 64, size);
        memcpy(block + 1, &size, sizeof size);
        block[0] = block[size - 1] = (unsigned char) size;
        other = kc_atomic_exchange(&passed_on, block);
        if (other != NULL) {
            memcpy(&size, other + 1, sizeof size);
            check(other, size);
            kc_block_free(other);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    unsigned i;
    for (i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        if (pthread_create(&threads[i], NULL, run, &seeds[i]))
            return 1;
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
