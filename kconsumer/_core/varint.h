/* Reads varints of three bytes and more, which are rare in records. The function is not inlined, so that the inlined
 * code for shorter varints stays small and keeps its values in registers. */
#ifndef KCONSUMER_VARINT_H
#define KCONSUMER_VARINT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KC_OUT_OF_LINE static __attribute__((noinline, unused))
#else
#define KC_OUT_OF_LINE static
#endif

/* Read an unsigned varint at `p`: seven bits per byte, lowest first. Bits beyond 64 are dropped. Returns the number
 * of bytes that were read, or 0 if the varint does not end within `max_size` bytes or within the `left` available
 * bytes. */
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
