/* Dot products of words of 32 bits: of four bytes, added to an integer; of two bfloat16, added to a float.
 *
 *   dot4_add(sum, x, y)   sum + x0 * y0 + x1 * y1 + x2 * y2 + x3 * y3 in each lane, where x0 ... x3 are the bytes of a
 *                         lane of x, unsigned, and y0 ... y3 those of y, signed. Sums wrap; nothing saturates.
 *   dot4s_add(sum, x, y)  the same where x0 * y0 + x1 * y1, and so the other two, are known to be integers of 16 bits
 *   dot2_add(sum, x, y)   (sum + x1 * y1) + x0 * y0 in each lane, where x0 is the bfloat16 in the low half of a lane of
 *                         x, x1 that in the high half, and so for y; each of the two steps is rounded to nearest even
 *   dot2i_add(sum, x, y)  sum + x0 * y0 + x1 * y1 in each lane, where x0 and x1 are the integers of 16 bits of a lane of
 *                         x, and y0 and y1 those of y, all signed. Sums wrap.
 *   dot4(x, y), dot2(x, y), dot2i(x, y)   the same of a sum of zero
 *
 * dot4 and dot2i are one instruction with VNNI. Without, even and odd bytes are widened to 16 bits, multiplied and added
 * in pairs: vpmaddubsw multiplies bytes as they are, and its sums of two saturate, so that it is for dot4s alone.
 * Compilers widen what several products share once.
 *
 * dot2 is one instruction with AVX512-BF16, which takes denormal operands for zero and makes zero of denormal results,
 * whatever the control word says. Without, both halves are widened to float, multiplied and added.
 */
#ifndef OPWELD_DOT_H
#define OPWELD_DOT_H

#include "opweld_vector.h"

#if defined(OPW_AVX512) && defined(__AVX512VNNI__)
OPW_INLINE vi32 opw_dot4_add_i32(vi32 sum, vi32 x, vi32 y) {
    return (vi32)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)y);
}
#elif defined(OPW_AVX512)
OPW_INLINE vi32 opw_dot4_add_i32(vi32 sum, vi32 x, vi32 y) {
    __m512i low = _mm512_set1_epi16(255), words = (__m512i)x, bytes = (__m512i)y;
    __m512i even = _mm512_madd_epi16(_mm512_and_si512(words, low), _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
    __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(words, 8), _mm512_srai_epi16(bytes, 8));
    return sum + ((vi32)even + (vi32)odd);
}
#elif defined(OPW_AVX2) && defined(__AVXVNNI__)
OPW_INLINE vi32 opw_dot4_add_i32(vi32 sum, vi32 x, vi32 y) {
    return (vi32)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)y);
}
#elif defined(OPW_AVX2)
OPW_INLINE vi32 opw_dot4_add_i32(vi32 sum, vi32 x, vi32 y) {
    __m256i low = _mm256_set1_epi16(255), words = (__m256i)x, bytes = (__m256i)y;
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(words, low), _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(words, 8), _mm256_srai_epi16(bytes, 8));
    return sum + ((vi32)even + (vi32)odd);
}
#else
OPW_INLINE vi32 opw_dot4_add_i32(vi32 sum, vi32 x, vi32 y) {
    vu32 bytes = (vu32)x;
    sum += (vi32)(bytes & 255) * (y << 24 >> 24) + (vi32)(bytes >> 8 & 255) * (y << 16 >> 24);
    return sum + ((vi32)(bytes >> 16 & 255) * (y << 8 >> 24) + (vi32)(bytes >> 24) * (y >> 24));
}
#endif

#if defined(OPW_AVX512) && !defined(__AVX512VNNI__)
OPW_INLINE vi32 opw_dot4s_add_i32(vi32 sum, vi32 x, vi32 y) {
    return sum + (vi32)_mm512_madd_epi16(_mm512_maddubs_epi16((__m512i)x, (__m512i)y), _mm512_set1_epi16(1));
}
#elif defined(OPW_AVX2) && !defined(OPW_AVX512) && !defined(__AVXVNNI__)
OPW_INLINE vi32 opw_dot4s_add_i32(vi32 sum, vi32 x, vi32 y) {
    return sum + (vi32)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)x, (__m256i)y), _mm256_set1_epi16(1));
}
#else
OPW_INLINE vi32 opw_dot4s_add_i32(vi32 sum, vi32 x, vi32 y) { return opw_dot4_add_i32(sum, x, y); }
#endif

/* sum + x * y in the lower half of the lanes, anything in the upper one: where a processor computes two instructions of
 * 256 bits in the time of one of 512. By name, as compilers would else have the sum in another register than the product
 * (clang 21), and run short of them. A factor that registers of either length multiply is held in one: else all lanes of
 * a load of one element are made twice. */
#if defined(OPW_AVX512)
#define OPW_LOWER(v) _mm512_castsi512_si256((__m512i)(v))
OPW_INLINE vf32 opw_multiply_add_half_f32(vf32 sum, vf32 x, vf32 y) {
    __m256i low = OPW_LOWER(sum);
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(low) : "v"(OPW_LOWER(x)), "v"(OPW_LOWER(y)));
    return (vf32)_mm512_castsi256_si512(low);
}
OPW_INLINE vi32 opw_held_i32(vi32 x) { __asm__("" : "+v"(x)); return x; }
OPW_INLINE vf32 opw_held_f32(vf32 x) { __asm__("" : "+v"(x)); return x; }
#else
OPW_INLINE vf32 opw_multiply_add_half_f32(vf32 sum, vf32 x, vf32 y) { return sum + x * y; }
OPW_INLINE vi32 opw_held_i32(vi32 x) { return x; }
OPW_INLINE vf32 opw_held_f32(vf32 x) { return x; }
#endif

/* dot4_add_half and the like: the same in the lower half of the lanes, anything in the upper one, which no one reads.
 * See opw_multiply_add_half_f32. */
#if defined(OPW_AVX512) && defined(__AVX512VNNI__)
#define OPW_DEFINE_HALF(op, instruction) \
    OPW_INLINE vi32 opw_##op##_add_half_i32(vi32 sum, vi32 x, vi32 y) { \
        __m256i low = OPW_LOWER(sum); \
        __asm__(instruction " %2, %1, %0" : "+v"(low) : "v"(OPW_LOWER(x)), "v"(OPW_LOWER(y))); \
        return (vi32)_mm512_castsi256_si512(low); \
    }
OPW_DEFINE_HALF(dot4, "vpdpbusd")
OPW_DEFINE_HALF(dot4s, "vpdpbusd")
OPW_DEFINE_HALF(dot2i, "vpdpwssd")
#else
#define opw_dot4_add_half_i32 opw_dot4_add_i32
#define opw_dot4s_add_half_i32 opw_dot4s_add_i32
#define opw_dot2i_add_half_i32 opw_dot2i_add_i32
#endif
#define opw_dot2_add_half_i32 opw_dot2_add_i32

OPW_INLINE vi32 opw_dot4s_i32(vi32 x, vi32 y) { return opw_dot4s_add_i32((vi32){0}, x, y); }

#if defined(OPW_AVX512) && defined(__AVX512VNNI__)
OPW_INLINE vi32 opw_dot2i_add_i32(vi32 sum, vi32 x, vi32 y) {
    return (vi32)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)x, (__m512i)y);
}
#elif defined(OPW_AVX512)
OPW_INLINE vi32 opw_dot2i_add_i32(vi32 sum, vi32 x, vi32 y) {
    return sum + (vi32)_mm512_madd_epi16((__m512i)x, (__m512i)y);
}
#elif defined(OPW_AVX2) && defined(__AVXVNNI__)
OPW_INLINE vi32 opw_dot2i_add_i32(vi32 sum, vi32 x, vi32 y) {
    return (vi32)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)y);
}
#elif defined(OPW_AVX2)
OPW_INLINE vi32 opw_dot2i_add_i32(vi32 sum, vi32 x, vi32 y) {
    return sum + (vi32)_mm256_madd_epi16((__m256i)x, (__m256i)y);
}
#else
OPW_INLINE vi32 opw_dot2i_add_i32(vi32 sum, vi32 x, vi32 y) {
    return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16) + sum;
}
#endif

OPW_INLINE vi32 opw_dot2i_i32(vi32 x, vi32 y) { return opw_dot2i_add_i32((vi32){0}, x, y); }

OPW_INLINE vi32 opw_dot4_i32(vi32 x, vi32 y) { return opw_dot4_add_i32((vi32){0}, x, y); }

#if defined(OPW_AVX512) && defined(__AVX512BF16__)
OPW_INLINE vf32 opw_dot2_add_i32(vf32 sum, vi32 x, vi32 y) {
    return (vf32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
}
#else
OPW_INLINE vf32 opw_dot2_add_i32(vf32 sum, vi32 x, vi32 y) {
    vu32 high = (vu32){0} + 0xffff0000u, first = (vu32)x, second = (vu32)y;
    sum = (vf32)(first & high) * (vf32)(second & high) + sum;
    return (vf32)(first << 16) * (vf32)(second << 16) + sum;
}
#endif

OPW_INLINE vf32 opw_dot2_i32(vi32 x, vi32 y) { return opw_dot2_add_i32((vf32){0}, x, y); }

#endif
