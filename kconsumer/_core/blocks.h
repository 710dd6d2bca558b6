/* Memory for columns: malloc with a small pool of large blocks.
 *
 * The columns of one batch are usually freed when those of the next batch exist. If these megabytes were returned to
 * the system each time, and came back as zeroed pages, that would cost more than filling them. Any thread may call
 * these functions without the GIL, because entries of the pool are exchanged atomically. */
#ifndef KCONSUMER_BLOCKS_H
#define KCONSUMER_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "atomics.h"

#define KC_MIN_POOLED_BYTES ((size_t) 1 << 16)
#define KC_MAX_POOLED_BYTES ((size_t) 1 << 24) /* total capacity of the blocks in the pool */
#ifdef __SANITIZE_ADDRESS__
#define KC_SLOTS 0 /* no pool: the sanitizer must see that memory was freed */
#else
#define KC_SLOTS 16
#endif

/* The head of a block. It is directly before the returned memory, which has the alignment that Arrow recommends. */
typedef struct {
    size_t capacity; /* usable bytes after the head */
    void *start;     /* the result of malloc */
} kc_block_head;

#define KC_ALIGNMENT ((size_t) 64)

static void *kc_slots[KC_SLOTS + 1]; /* heads of blocks, or NULL; atomic */
static int64_t kc_pooled_bytes;       /* atomic */

static inline kc_block_head *kc_block_head_of(void *data)
{
    return (kc_block_head *) data - 1;
}

/* Allocate at least `size` bytes. Returns NULL if memory is exhausted. */
static inline void *kc_block_new(size_t size)
{
    kc_block_head *head;
    unsigned char *start;
    int i;
    for (i = 0; i < KC_SLOTS && size >= KC_MIN_POOLED_BYTES; i++) {
        if (kc_atomic_load(&kc_slots[i]) == NULL)
            continue;
        head = kc_atomic_exchange(&kc_slots[i], NULL);
        if (head == NULL)
            continue;
        if (head->capacity >= size && head->capacity / 2 <= size) {
            kc_atomic_add_64(&kc_pooled_bytes, -(int64_t) head->capacity);
            return head + 1;
        }
        head = kc_atomic_exchange(&kc_slots[i], head);
        if (head != NULL) { /* meanwhile another thread has used the entry */
            kc_atomic_add_64(&kc_pooled_bytes, -(int64_t) head->capacity);
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

/* Store `head` in the next entry of the pool, in turn, and free the block that was there. If `head` is NULL, only clear
 * the entry. In this way blocks of sizes that are no longer used leave the pool. */
static inline void kc_block_replace(kc_block_head *head)
{
    static int32_t turn;
    unsigned slot = (unsigned) kc_atomic_add(&turn, 1) % (KC_SLOTS + !KC_SLOTS);
    if (head != NULL)
        kc_atomic_add_64(&kc_pooled_bytes, (int64_t) head->capacity);
    head = kc_atomic_exchange(&kc_slots[slot], head);
    if (head != NULL) {
        kc_atomic_add_64(&kc_pooled_bytes, -(int64_t) head->capacity);
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
    if (!KC_SLOTS || capacity < KC_MIN_POOLED_BYTES || capacity > KC_MAX_POOLED_BYTES / 2) {
        free(kc_block_head_of(data)->start);
        return;
    }
    kc_block_replace(kc_block_head_of(data));
    for (i = 0; i < KC_SLOTS && kc_atomic_load_64(&kc_pooled_bytes) > (int64_t) KC_MAX_POOLED_BYTES; i++)
        kc_block_replace(NULL);
}

/* Return a block of at least `size` bytes that begins with the first `used` bytes of `data`: `data` itself if it is
 * large enough, otherwise a new block, and then `data` is freed. If memory is exhausted, returns NULL and keeps
 * `data`. */
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
