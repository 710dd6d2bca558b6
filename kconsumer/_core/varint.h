/* Varints of three bytes and more. They are rare in records, and kept out of line so that the code around the common
 * ones stays small and in registers. `left` bytes may be read from `p`. */
#ifndef KCONSUMER_VARINT_H
#define KCONSUMER_VARINT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KC_OUT_OF_LINE static __attribute__((noinline, unused))
#else
#define KC_OUT_OF_LINE static
#endif

/* Seven bits a byte, lowest first, at most `most` bytes; bits beyond 64 are dropped. How many bytes it takes; 0 if it
 * does not end in time. */
KC_OUT_OF_LINE int kc_long_varint(const unsigned char *p, ptrdiff_t left, int most, uint64_t *out)
{
    uint64_t value = 0;
    int i;
    for (i = 0; i < most && i < left; i++) {
        value |= (uint64_t) (p[i] & 0x7F) << (7 * i);
        if (p[i] < 0x80) {
            *out = value;
            return i + 1;
        }
    }
    return 0;
}

#endif
