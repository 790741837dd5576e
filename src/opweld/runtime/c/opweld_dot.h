/* Dot products of bytes: four products of integers of 8 bits, added to an integer of 32.
 *
 *   dot4_add(sum, x, y)   sum + x0 * y0 + x1 * y1 + x2 * y2 + x3 * y3 in each lane, where x0 ... x3 are the bytes of a
 *                         lane of x, unsigned, and y0 ... y3 those of y, signed. Sums wrap; nothing saturates.
 *   dot4(x, y)            the same of a sum of zero
 *
 * One instruction with VNNI. Without, even and odd bytes are widened to 16 bits, multiplied and added in pairs: vpmaddubsw
 * would multiply bytes as they are, and saturates. Compilers widen what several products share once.
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

OPW_INLINE vi32 opw_dot4_i32(vi32 x, vi32 y) { return opw_dot4_add_i32((vi32){0}, x, y); }

#endif
