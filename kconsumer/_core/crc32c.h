/* CRC-32C on x86, at up to 32 bytes a cycle.
 *
 * Most bytes are folded by carry-less multiplication, in 512-bit registers if the CPU has them (Gopal et al., "Fast
 * CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009). The CRC32 instruction computes the result
 * from what remains.
 *
 * The state is four adjacent blocks. Each step multiplies a block by x^D and adds it to a later block, where D is
 * the distance in bits between the two blocks. A constant KC_FOLD_D is the pair x^(D+32) and x^(D-32), modulo the
 * polynomial and with bits reversed. */
#ifndef KCONSUMER_CRC32C_H
#define KCONSUMER_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#ifdef __clang__ /* for GCC, sse4.2 includes the CRC32 instruction */
#define KC_SSE __attribute__((target("sse4.2,crc32,pclmul")))
#define KC_AVX512 __attribute__((target("sse4.2,crc32,pclmul,avx512f,vpclmulqdq")))
#else
#define KC_SSE __attribute__((target("sse4.2,pclmul")))
#define KC_AVX512 __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))
#endif

#define KC_FOLD_128 0x14cd00bd6, 0x0f20c0dfe
#define KC_FOLD_512 0x09e4addf8, 0x0740eef02
#define KC_FOLD_2048 0x0b9e02b86, 0x0dcb17aa4

/* Return the fastest method on this CPU. 0: none, so a library must be used; 1: 128-bit registers; 2: 512-bit
 * registers. */
static inline int kc_crc32c_kind(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
        return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") ? 2 : 1;
}

KC_SSE static inline __m128i kc_fold(__m128i x, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

KC_AVX512 static inline __m512i kc_fold_wide(__m512i x, __m512i by, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00), high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

KC_SSE static inline __m128i kc_load(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *) p);
}

/* Add the `size` bytes at `p` to a state of four blocks of 16 bytes, and return the CRC without the final inversion. */
KC_SSE static inline uint32_t kc_crc32c_from(__m128i x[4], const unsigned char *p, size_t size)
{
    __m128i by = _mm_set_epi64x(KC_FOLD_512), one;
    uint64_t crc, word;
    int i;
    for (; size >= 64; p += 64, size -= 64)
        for (i = 0; i < 4; i++)
            x[i] = kc_fold(x[i], by, kc_load(p + 16 * i));
    by = _mm_set_epi64x(KC_FOLD_128);
    one = kc_fold(kc_fold(kc_fold(x[0], by, x[1]), by, x[2]), by, x[3]);
    for (; size >= 16; p += 16, size -= 16)
        one = kc_fold(one, by, kc_load(p));
    crc = _mm_crc32_u64(0, (uint64_t) _mm_extract_epi64(one, 0));
    crc = _mm_crc32_u64(crc, (uint64_t) _mm_extract_epi64(one, 1));
    if (size >= 8) {
        memcpy(&word, p, 8);
        crc = _mm_crc32_u64(crc, word);
        p += 8;
        size -= 8;
    }
    for (; size; p++, size--)
        crc = _mm_crc32_u8((uint32_t) crc, *p);
    return (uint32_t) crc;
}

KC_SSE static inline uint32_t kc_crc32c_small(const unsigned char *p, size_t size)
{
    uint64_t crc = 0xFFFFFFFF, word;
    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&word, p, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; size; p++, size--)
        crc = _mm_crc32_u8((uint32_t) crc, *p);
    return (uint32_t) crc;
}

KC_SSE static inline uint32_t kc_crc32c_sse(const unsigned char *p, size_t size)
{
    __m128i x[4];
    int i;
    if (size < 64)
        return kc_crc32c_small(p, size);
    for (i = 0; i < 4; i++)
        x[i] = kc_load(p + 16 * i);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(-1));
    return kc_crc32c_from(x, p + 64, size - 64);
}

KC_AVX512 static inline uint32_t kc_crc32c_avx512(const unsigned char *p, size_t size)
{
    __m512i x[4], by = _mm512_broadcast_i32x4(_mm_set_epi64x(KC_FOLD_2048));
    __m128i narrow[4];
    int i;
    if (size < 256)
        return kc_crc32c_sse(p, size);
    for (i = 0; i < 4; i++)
        x[i] = _mm512_loadu_si512(p + 64 * i);
    x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
    for (p += 256, size -= 256; size >= 256; p += 256, size -= 256)
        for (i = 0; i < 4; i++)
            x[i] = kc_fold_wide(x[i], by, _mm512_loadu_si512(p + 64 * i));
    by = _mm512_broadcast_i32x4(_mm_set_epi64x(KC_FOLD_512));
    x[0] = kc_fold_wide(kc_fold_wide(kc_fold_wide(x[0], by, x[1]), by, x[2]), by, x[3]);
    _mm512_storeu_si512(narrow, x[0]);
    return kc_crc32c_from(narrow, p, size);
}

/* Return the CRC-32C of `size` bytes. `kind` is from 1 to kc_crc32c_kind(). */
static inline uint32_t kc_crc32c(int kind, const unsigned char *p, size_t size)
{
    return ~(kind == 2 ? kc_crc32c_avx512(p, size) : kc_crc32c_sse(p, size));
}

#else

static inline int kc_crc32c_kind(void)
{
    return 0;
}

static inline uint32_t kc_crc32c(int kind, const unsigned char *p, size_t size)
{
    (void) kind, (void) p, (void) size;
    return 0;
}

#endif
#endif
