/* Memory for columns: malloc, with a few large blocks kept for the next time.
 *
 * The columns of one batch are let go of when those of the next one are there. To have the system take megabytes away
 * and give them back as zeroed pages each time costs more than filling them. Any thread may come, without the GIL:
 * a place is taken and filled by one atomic exchange. */
#ifndef KCONSUMER_BLOCKS_H
#define KCONSUMER_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KC_POOLED_LEAST ((size_t) 1 << 16)
#define KC_POOLED_BYTES ((size_t) 1 << 24) /* of all blocks that are kept */
#ifdef __SANITIZE_ADDRESS__
#define KC_PLACES 0 /* what was let go of must not look alive */
#else
#define KC_PLACES 16
#endif

/* Before the memory that is handed out, which is aligned as Arrow likes it. */
typedef struct {
    size_t capacity;
    void *start; /* what malloc returned */
} kc_block_head;

#define KC_ALIGNMENT ((size_t) 64)

static kc_block_head *kc_places[KC_PLACES + 1];
static size_t kc_pooled_bytes;

static inline kc_block_head *kc_block_head_of(void *data)
{
    return (kc_block_head *) data - 1;
}

/* Memory of at least `size` bytes; NULL if there is none. */
static inline void *kc_block_new(size_t size)
{
    kc_block_head *head;
    unsigned char *start;
    int i;
    for (i = 0; i < KC_PLACES && size >= KC_POOLED_LEAST; i++) {
        if (__atomic_load_n(&kc_places[i], __ATOMIC_RELAXED) == NULL)
            continue;
        head = __atomic_exchange_n(&kc_places[i], NULL, __ATOMIC_ACQ_REL);
        if (head == NULL)
            continue;
        if (head->capacity >= size && head->capacity / 2 <= size) {
            __atomic_sub_fetch(&kc_pooled_bytes, head->capacity, __ATOMIC_RELAXED);
            return head + 1;
        }
        head = __atomic_exchange_n(&kc_places[i], head, __ATOMIC_ACQ_REL);
        if (head != NULL) { /* another thread has used the place meanwhile */
            __atomic_sub_fetch(&kc_pooled_bytes, head->capacity, __ATOMIC_RELAXED);
            free(head->start);
        }
    }
    if (size > SIZE_MAX - 2 * KC_ALIGNMENT)
        return NULL;
    start = malloc(size + 2 * KC_ALIGNMENT);
    if (start == NULL)
        return NULL;
    head = (kc_block_head *) (((uintptr_t) start + 2 * KC_ALIGNMENT) & ~(uintptr_t) (KC_ALIGNMENT - 1)) - 1;
    head->capacity = size;
    head->start = start;
    return head + 1;
}

/* Empty a place, or put `head` there. The one that was put there longest ago comes first: sizes that are not asked for
 * any more do not stay. */
static inline void kc_block_replace(kc_block_head *head)
{
    static unsigned turn;
    unsigned place = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % (KC_PLACES + !KC_PLACES);
    if (head != NULL)
        __atomic_add_fetch(&kc_pooled_bytes, head->capacity, __ATOMIC_RELAXED);
    head = __atomic_exchange_n(&kc_places[place], head, __ATOMIC_ACQ_REL);
    if (head != NULL) {
        __atomic_sub_fetch(&kc_pooled_bytes, head->capacity, __ATOMIC_RELAXED);
        free(head->start);
    }
}

static inline void kc_block_free(void *data)
{
    size_t capacity;
    int i;
    if (data == NULL)
        return;
    capacity = kc_block_head_of(data)->capacity;
    if (!KC_PLACES || capacity < KC_POOLED_LEAST || capacity > KC_POOLED_BYTES / 2) {
        free(kc_block_head_of(data)->start);
        return;
    }
    kc_block_replace(kc_block_head_of(data));
    for (i = 0; i < KC_PLACES && __atomic_load_n(&kc_pooled_bytes, __ATOMIC_RELAXED) > KC_POOLED_BYTES; i++)
        kc_block_replace(NULL);
}

/* More memory with the first `used` bytes of `data` in it, which is freed; NULL, and `data` as it was, if there is
 * none. */
static inline void *kc_block_grow(void *data, size_t used, size_t size)
{
    void *grown;
    if (data != NULL && kc_block_head_of(data)->capacity >= size)
        return data;
    grown = kc_block_new(size);
    if (grown != NULL && data != NULL) {
        memcpy(grown, data, used);
        kc_block_free(data);
    }
    return grown;
}

#endif
