/* The structs of the Arrow C data and stream interfaces, the types of kconsumer's columns, and an atomic reference
 * count. https://arrow.apache.org/docs/format/CDataInterface.html
 */
#ifndef KCONSUMER_ARROW_ABI_H
#define KCONSUMER_ARROW_ABI_H

#include <stdint.h>

#include "atomics.h"

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

enum { KC_NULLABLE = 2 };       /* ArrowSchema.flags */

/* The columns, in the order of the schema; then the children of `headers`; then the root. */
enum {
    KC_KEY, KC_VALUE, KC_TOPIC, KC_PARTITION, KC_OFFSET, KC_TIMESTAMP, KC_TIMESTAMP_TYPE, KC_HEADERS, KC_LEADER_EPOCH,
    KC_COLUMNS,
    KC_HEADER = KC_COLUMNS, KC_HEADER_KEY, KC_HEADER_VALUE,
    KC_ROOT
};

typedef struct {
    const char *name, *format;
    int n_children;
    int children[2];
} kc_type;

static const kc_type KC_TYPES[] = {
    {"key", "z", 0, {0}},
    {"value", "z", 0, {0}},
    {"topic", "u", 0, {0}},
    {"partition", "i", 0, {0}},
    {"offset", "l", 0, {0}},
    {"timestamp", "tsm:UTC", 0, {0}},
    {"timestamp_type", "c", 0, {0}},
    {"headers", "+l", 1, {KC_HEADER}},
    {"leader_epoch", "i", 0, {0}},
    {"item", "+s", 2, {KC_HEADER_KEY, KC_HEADER_VALUE}},
    {"key", "u", 0, {0}},
    {"value", "z", 0, {0}},
};

static inline void kc_count_up(int32_t *count)
{
    kc_atomic_add(count, 1);
}

/* Decrement the count and return the new value. */
static inline int32_t kc_count_down(int32_t *count)
{
    return kc_atomic_add(count, -1);
}

#endif
