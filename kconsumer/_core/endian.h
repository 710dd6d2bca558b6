/* Big-endian loads and stores on unaligned memory. The compiler turns each into one move and one byte swap. */
#ifndef KCONSUMER_ENDIAN_H
#define KCONSUMER_ENDIAN_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define KC_BE16(x) (x)
#define KC_BE32(x) (x)
#define KC_BE64(x) (x)
#elif defined(_MSC_VER) && !defined(__clang__)
#include <stdlib.h>
#define KC_BE16(x) _byteswap_ushort(x)
#define KC_BE32(x) _byteswap_ulong(x)
#define KC_BE64(x) _byteswap_uint64(x)
#else
#define KC_BE16(x) __builtin_bswap16(x)
#define KC_BE32(x) __builtin_bswap32(x)
#define KC_BE64(x) __builtin_bswap64(x)
#endif

static inline uint16_t kc_load_be16(const unsigned char *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return KC_BE16(v);
}

static inline uint32_t kc_load_be32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return KC_BE32(v);
}

static inline uint64_t kc_load_be64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return KC_BE64(v);
}

static inline void kc_store_be16(unsigned char *p, uint16_t v)
{
    v = KC_BE16(v);
    memcpy(p, &v, sizeof v);
}

static inline void kc_store_be32(unsigned char *p, uint32_t v)
{
    v = KC_BE32(v);
    memcpy(p, &v, sizeof v);
}

static inline void kc_store_be64(unsigned char *p, uint64_t v)
{
    v = KC_BE64(v);
    memcpy(p, &v, sizeof v);
}

#endif
