/* Varints of three bytes and more. They are rare in records. The function is kept out of line, so that the inlined code
 * for shorter varints stays small and in registers. */
#ifndef KCONSUMER_VARINT_H
#define KCONSUMER_VARINT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KC_OUT_OF_LINE static __attribute__((noinline, unused))
#else
#define KC_OUT_OF_LINE static
#endif

/* Read a varint: seven bits per byte, lowest first, at most `max_size` bytes; bits beyond 64 are dropped. `left` bytes
 * may be read from `p`. Returns the number of bytes it takes, or 0 if it does not end within these bounds. */
KC_OUT_OF_LINE int kc_long_varint(const unsigned char *p, ptrdiff_t left, int max_size, uint64_t *out)
{
    uint64_t value = 0;
    int i;
    for (i = 0; i < max_size && i < left; i++) {
        value |= (uint64_t) (p[i] & 0x7F) << (7 * i);
        if (p[i] < 0x80) {
            *out = value;
            return i + 1;
        }
    }
    return 0;
}

#endif
