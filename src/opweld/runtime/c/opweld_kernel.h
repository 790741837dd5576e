/* Functions of generated kernels besides vectors and mathematics: indices, positions of extremes, single elements. */
#ifndef OPWELD_KERNEL_H
#define OPWELD_KERNEL_H

#include <math.h>
#include <stdint.h>

#include "opweld_abi.h"
#include "opweld_bind.h"
#include "opweld_dot.h"
#include "opweld_formats.h"
#include "opweld_math.h"
#include "opweld_matrix.h"
#include "opweld_vector.h"

#define OPW_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define OPW_UNROLL(n) OPW_PRAGMA(clang loop unroll_count(n))
#else
#define OPW_UNROLL(n) OPW_PRAGMA(GCC unroll n)
#endif

/* Prefetches the line at p into L2; p may be any address. */
#define opw_prefetch(p) __builtin_prefetch((p), 0, 2)

/* Loads before it are not kept in registers for use after it: if they are too many, reloading is cheaper than spilling. */
#define opw_separate() __asm__ volatile("" ::: "memory")

/* The memory that a load reads if its guards fail: each type has zeros of its own, so that none is read as
 * another one. */
#define OPW_ZEROS(element) element element##s[16384 / sizeof(element)]
static const union {
    OPW_ZEROS(float);
    OPW_ZEROS(double);
    OPW_ZEROS(uint8_t);
    OPW_ZEROS(int8_t);
    OPW_ZEROS(uint16_t);
    OPW_ZEROS(int16_t);
    OPW_ZEROS(uint32_t);
    OPW_ZEROS(int32_t);
    OPW_ZEROS(uint64_t);
    OPW_ZEROS(int64_t);
} opw_zeros __attribute__((aligned(64), unused));

/* -------------------------------------------------------------------------------------------------------- indices */

OPW_INLINE vi64 opw_index_floordiv(vi64 a, vi64 b) { return a / b + (vi64)(a % b < 0); }
OPW_INLINE vi64 opw_index_mod(vi64 a, vi64 b) {
    vi64 r = a % b;
    return r + ((vi64)(r < 0) & b);
}
OPW_INLINE vi64 opw_index_min(vi64 a, vi64 b) { return opw_min_i64(a, b); }
OPW_INLINE vi64 opw_index_max(vi64 a, vi64 b) { return opw_max_i64(a, b); }
/* The lanes whose index is not in [0, extent). */
OPW_INLINE vi32 opw_outside(vi64 index, int64_t extent) {
    return opw_lt_i64(index, (vi64){0}) | opw_ge_i64(index, opw_splat_i64(extent));
}
/* The lanes whose guard is not negative. */
OPW_INLINE vi32 opw_inside(vi64 guard) { return opw_ge_i64(guard, (vi64){0}); }

/* ---------------------------------------------------------------------------------------------- functions of a byte */

typedef struct {
    uint8_t bytes[256];
} __attribute__((aligned(64))) opw_table;

/* The value of a function at each byte. */
OPW_INLINE vu8 opw_lookup_u8(const opw_table *table, vu8 x) {
#if defined(OPW_AVX512) && defined(__AVX512VBMI__)
    const __m512i *part = (const __m512i *)table->bytes;
    __m512i index = _mm512_castsi128_si512((__m128i)x);
    __m512i low = _mm512_permutex2var_epi8(part[0], index, part[1]);
    __m512i high = _mm512_permutex2var_epi8(part[2], index, part[3]);
    return (vu8)_mm512_castsi512_si128(_mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high));
#else
    vu8 found = x;
    for (int i = 0; i < OPW_LANES; i++) found[i] = table->bytes[x[i]];
    return found;
#endif
}

/* ------------------------------------------------------------------------------------------ memory of masked lanes */

#if defined(OPW_AVX512)
OPW_INLINE int opw_any(vi32 mask) { return opw_lanes_of(mask) != 0; }
#elif defined(OPW_AVX2)
OPW_INLINE int opw_any(vi32 mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#else
OPW_INLINE int opw_any(vi32 mask) { return opw_reduce_or_b8(mask); }
#endif

/* Lanes whose mask is not set load as zero; their memory is never touched. */
#define OPW_DEFINE_MASKED_MEMORY(T, V, raw, element, integer, bytes, from, to)                                         \
    OPW_INLINE V opw_load_masked_##T(const element *p, vi32 mask) {                                                    \
        return from(opw_load_lanes_##bytes(p, opw_lanes_of(mask)));                                                    \
    }                                                                                                                  \
    OPW_INLINE void opw_store_masked_##T(element *p, V v, vi32 mask) {                                                 \
        opw_store_lanes_##bytes(p, (integer)to(v), opw_lanes_of(mask));                                                \
    }                                                                                                                  \
    OPW_INLINE V opw_gather_masked_##T(const element *p, vi64 index, vi32 mask) {                                      \
        return from(opw_gather_lanes_##bytes(p, index, opw_lanes_of(mask)));                                           \
    }                                                                                                                  \
    OPW_INLINE void opw_scatter_masked_##T(element *p, V v, vi64 index, vi32 mask) {                                   \
        opw_scatter_lanes_##bytes(p, (integer)to(v), index, opw_lanes_of(mask));                                       \
    }                                                                                                                  \
    OPW_INLINE V opw_load_strided_masked_##T(const element *p, int64_t stride, vi32 mask) {                            \
        return from(opw_load_strided_lanes_##raw(p, stride, opw_lanes_of(mask)));                                      \
    }                                                                                                                  \
    OPW_INLINE void opw_store_strided_masked_##T(element *p, V v, int64_t stride, vi32 mask) {                         \
        opw_store_apart_lanes_##bytes(p, (integer)to(v), stride, opw_lanes_of(mask));                                  \
    }
#define OPW_DEFINE_MASKED_PLAIN(T, element, integer, bytes)                                                            \
    OPW_DEFINE_MASKED_MEMORY(T, v##T, T, element, integer, bytes, (v##T), (integer))
OPW_DTYPES(OPW_DEFINE_MASKED_PLAIN)
#define OPW_BITS_B8(v) opw_from_bits_b8((vu8)(v))
#define OPW_BITS_F16(v) opw_from_bits_f16((vu16)(v))
#define OPW_BITS_BF16(v) opw_from_bits_bf16((vu16)(v))
OPW_DEFINE_MASKED_MEMORY(b8, vi32, u8, uint8_t, vi8, 1, OPW_BITS_B8, opw_to_bits_b8)
OPW_DEFINE_MASKED_MEMORY(f16, vf32, u16, uint16_t, vi16, 2, OPW_BITS_F16, opw_to_bits_f16)
OPW_DEFINE_MASKED_MEMORY(bf16, vf32, u16, uint16_t, vi16, 2, OPW_BITS_BF16, opw_to_bits_bf16)

#define OPW_DEFINE_SCATTER(T, V, element, raw, to)                                                                     \
    OPW_INLINE void opw_scatter_##T(element *p, V v, vi64 index) { opw_scatter_##raw(p, to(v), index); }               \
    OPW_INLINE void opw_scatter_partial_##T(element *p, V v, vi64 index, int64_t n) {                                  \
        opw_scatter_partial_##raw(p, to(v), index, n);                                                                 \
    }
OPW_DEFINE_SCATTER(b8, vi32, uint8_t, u8, opw_to_bits_b8)
OPW_DEFINE_SCATTER(f16, vf32, uint16_t, u16, opw_to_bits_f16)
OPW_DEFINE_SCATTER(bf16, vf32, uint16_t, u16, opw_to_bits_bf16)

/* ----------------------------------------------------------------------------------------------- half precision */

OPW_INLINE vf32 opw_splat_f16(uint16_t bits) { return opw_from_bits_f16(opw_splat_u16(bits)); }
OPW_INLINE vf32 opw_splat_bf16(uint16_t bits) { return opw_from_bits_bf16(opw_splat_u16(bits)); }
/* The value after storing and loading. */
OPW_INLINE vf32 opw_round_f16(vf32 v) { return opw_from_bits_f16(opw_to_bits_f16(v)); }
OPW_INLINE vf32 opw_round_bf16(vf32 v) { return opw_from_bits_bf16(opw_to_bits_bf16(v)); }

/* ------------------------------------------------------------------------------------------------ single elements */

/* A store outside of lane tiles writes the element of lane 0. */
#define OPW_DEFINE_ELEMENT(T, element, integer, bytes)                                                                 \
    OPW_INLINE element opw_element_##T(v##T v) { return v[0]; }
OPW_DTYPES(OPW_DEFINE_ELEMENT)
OPW_INLINE uint8_t opw_element_b8(vi32 mask) { return (uint8_t)(mask[0] & 1); }
OPW_INLINE uint16_t opw_element_f16(vf32 v) { return opw_to_bits_f16(v)[0]; }
OPW_INLINE uint16_t opw_element_bf16(vf32 v) { return opw_to_bits_bf16(v)[0]; }

/* ------------------------------------------------------------------------------------------- positions of extremes */

/* Keeps, lane by lane, the more extreme of two elements with its position; of equal ones the first (or last). NaN is more
 * extreme than any number. `collapse` does the same for the lanes of one vector and leaves the result in all of them. */
#define OPW_DEFINE_POSITIONS(T, element, integer, bytes)                                                               \
    OPW_INLINE int opw_precedes_##T(element a, int64_t i, element b, int64_t j, int greatest, int last) {              \
        int nan_a = a != a, nan_b = b != b;                                                                            \
        if (nan_a != nan_b) return nan_a;                                                                              \
        if (!nan_a && a != b) return greatest ? a > b : a < b;                                                         \
        return last ? i > j : i < j;                                                                                   \
    }                                                                                                                  \
    OPW_INLINE void opw_merge_positions_##T(v##T *best, vi64 *position, v##T other, vi64 place, int greatest,          \
                                            int last) {                                                                \
        for (int i = 0; i < OPW_LANES; i++)                                                                            \
            if (opw_precedes_##T(other[i], place[i], (*best)[i], (*position)[i], greatest, last)) {                    \
                (*best)[i] = other[i];                                                                                 \
                (*position)[i] = place[i];                                                                             \
            }                                                                                                          \
    }                                                                                                                  \
    OPW_INLINE void opw_collapse_positions_##T(v##T *best, vi64 *position, int greatest, int last) {                   \
        int chosen = 0;                                                                                                \
        for (int i = 1; i < OPW_LANES; i++)                                                                            \
            if (opw_precedes_##T((*best)[i], (*position)[i], (*best)[chosen], (*position)[chosen], greatest, last))    \
                chosen = i;                                                                                            \
        *best = opw_splat_##T((*best)[chosen]);                                                                        \
        *position = opw_splat_i64((*position)[chosen]);                                                                \
    }
OPW_DTYPES(OPW_DEFINE_POSITIONS)

#endif
