/* What generated kernels need beside vectors and mathematics: index arithmetic, masked memory, rounding to half. */
#ifndef OPWELD_KERNEL_H
#define OPWELD_KERNEL_H

#include <math.h>
#include <stdint.h>

#include "opweld_abi.h"
#include "opweld_math.h"
#include "opweld_vector.h"

#define OPW_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define OPW_UNROLL(n) OPW_PRAGMA(clang loop unroll_count(n))
#else
#define OPW_UNROLL(n) OPW_PRAGMA(GCC unroll n)
#endif

/* What a load reads instead of memory that its guards exclude. */
static const char opw_zeros[16384] __attribute__((aligned(64), unused));

/* ------------------------------------------------------------------------------------------------------- integers */

OPW_INLINE int64_t opw_min(int64_t a, int64_t b) { return a < b ? a : b; }
OPW_INLINE int64_t opw_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* Division rounded towards minus infinity, b > 0. */
OPW_INLINE int64_t opw_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }
/* The remainder in [0, b), b > 0. */
OPW_INLINE int64_t opw_mod(int64_t a, int64_t b) {
    int64_t r = a % b;
    return r < 0 ? r + b : r;
}
OPW_INLINE vi64 opw_index_floordiv(vi64 a, vi64 b) { return a / b + (vi64)(a % b < 0); }
OPW_INLINE vi64 opw_index_mod(vi64 a, vi64 b) {
    vi64 r = a % b;
    return r + ((vi64)(r < 0) & b);
}
OPW_INLINE vi64 opw_index_min(vi64 a, vi64 b) { return opw_min_i64(a, b); }
OPW_INLINE vi64 opw_index_max(vi64 a, vi64 b) { return opw_max_i64(a, b); }

/* ---------------------------------------------------------------------------------------------------------- masks */

#if defined(OPW_AVX512)
OPW_INLINE int opw_any(vi32 m) { return _mm512_movepi32_mask((__m512i)m) != 0; }
#elif defined(OPW_AVX2)
OPW_INLINE int opw_any(vi32 m) { return _mm256_movemask_ps((__m256)m) != 0; }
#else
OPW_INLINE int opw_any(vi32 m) { return opw_reduce_or_b8(m); }
#endif
/* The lanes whose index is not in [0, extent). */
OPW_INLINE vi32 opw_outside(vi64 index, int64_t extent) {
    return opw_lt_i64(index, (vi64){0}) | opw_ge_i64(index, opw_splat_i64(extent));
}

/* ------------------------------------------------------------------------------------------------- masked memory */

/* Lanes whose mask is not set are zero, and their memory is not touched. */
#define OPW_DEFINE_MASKED(T, element, mask, bytes)                                                                     \
    OPW_INLINE v##T opw_gather_masked_##T(const element *p, vi64 index, vi32 m) {                                      \
        v##T v = {0};                                                                                                  \
        for (int64_t i = 0; i < OPW_LANES; i++)                                                                        \
            if (m[i]) v[i] = p[index[i]];                                                                              \
        return v;                                                                                                      \
    }                                                                                                                  \
    OPW_INLINE void opw_scatter_masked_##T(element *p, v##T v, vi64 index, vi32 m) {                                   \
        for (int64_t i = 0; i < OPW_LANES; i++)                                                                        \
            if (m[i]) p[index[i]] = v[i];                                                                              \
    }
OPW_DTYPES(OPW_DEFINE_MASKED)

#define OPW_DEFINE_MASKED_RUN(T, element, mask, bytes)                                                                 \
    OPW_INLINE v##T opw_load_masked_##T(const element *p, vi32 m) {                                                    \
        return opw_gather_masked_##T(p, opw_lane_i64(), m);                                                            \
    }                                                                                                                  \
    OPW_INLINE void opw_store_masked_##T(element *p, v##T v, vi32 m) {                                                 \
        opw_scatter_masked_##T(p, v, opw_lane_i64(), m);                                                               \
    }
#if defined(OPW_AVX512)
#define OPW_DEFINE_MASKED_WORD(T, element, mask, bytes)                                                                \
    OPW_INLINE v##T opw_load_masked_##T(const element *p, vi32 m) {                                                    \
        return (v##T)_mm512_maskz_loadu_epi32(_mm512_movepi32_mask((__m512i)m), p);                                    \
    }                                                                                                                  \
    OPW_INLINE void opw_store_masked_##T(element *p, v##T v, vi32 m) {                                                 \
        _mm512_mask_storeu_epi32(p, _mm512_movepi32_mask((__m512i)m), (__m512i)v);                                     \
    }
OPW_DEFINE_MASKED_WORD(f32, float, vi32, 4)
OPW_DEFINE_MASKED_WORD(i32, int32_t, vi32, 4)
OPW_DEFINE_MASKED_WORD(u32, uint32_t, vi32, 4)
#else
OPW_DEFINE_MASKED_RUN(f32, float, vi32, 4)
OPW_DEFINE_MASKED_RUN(i32, int32_t, vi32, 4)
OPW_DEFINE_MASKED_RUN(u32, uint32_t, vi32, 4)
#endif
OPW_DEFINE_MASKED_RUN(f64, double, vi64, 8)
OPW_DEFINE_MASKED_RUN(i64, int64_t, vi64, 8)
OPW_DEFINE_MASKED_RUN(u64, uint64_t, vi64, 8)
OPW_DEFINE_MASKED_RUN(i16, int16_t, vi16, 2)
OPW_DEFINE_MASKED_RUN(u16, uint16_t, vi16, 2)
OPW_DEFINE_MASKED_RUN(i8, int8_t, vi8, 1)
OPW_DEFINE_MASKED_RUN(u8, uint8_t, vi8, 1)

/* Types whose memory form is another type: `from` and `to` convert a vector. */
#define OPW_DEFINE_STORED_AS(T, V, element, raw, from, to)                                                             \
    OPW_INLINE V opw_load_masked_##T(const element *p, vi32 m) { return from(opw_load_masked_##raw(p, m)); }           \
    OPW_INLINE V opw_gather_masked_##T(const element *p, vi64 index, vi32 m) {                                         \
        return from(opw_gather_masked_##raw(p, index, m));                                                             \
    }                                                                                                                  \
    OPW_INLINE void opw_store_masked_##T(element *p, V v, vi32 m) { opw_store_masked_##raw(p, to(v), m); }             \
    OPW_INLINE void opw_scatter_##T(element *p, V v, vi64 index) { opw_scatter_##raw(p, to(v), index); }               \
    OPW_INLINE void opw_scatter_partial_##T(element *p, V v, vi64 index, int64_t n) {                                  \
        opw_scatter_partial_##raw(p, to(v), index, n);                                                                 \
    }                                                                                                                  \
    OPW_INLINE void opw_scatter_masked_##T(element *p, V v, vi64 index, vi32 m) {                                      \
        opw_scatter_masked_##raw(p, to(v), index, m);                                                                  \
    }
OPW_DEFINE_STORED_AS(b8, vi32, uint8_t, u8, opw_from_bytes_b8, opw_to_bytes_b8)
OPW_DEFINE_STORED_AS(f16, vf32, uint16_t, u16, opw_from_bits_f16, opw_to_bits_f16)
OPW_DEFINE_STORED_AS(bf16, vf32, uint16_t, u16, opw_from_bits_bf16, opw_to_bits_bf16)

/* The element that a scalar store writes: that of lane 0. */
#define OPW_DEFINE_ELEMENT(T, element, mask, bytes)                                                                    \
    OPW_INLINE element opw_element_##T(v##T v) { return v[0]; }
OPW_DTYPES(OPW_DEFINE_ELEMENT)
OPW_INLINE uint8_t opw_element_b8(vi32 m) { return (uint8_t)(m[0] & 1); }
OPW_INLINE uint16_t opw_element_f16(vf32 v) { return opw_to_bits_f16(v)[0]; }
OPW_INLINE uint16_t opw_element_bf16(vf32 v) { return opw_to_bits_bf16(v)[0]; }

/* ----------------------------------------------------------------------------------------------- half precision */

OPW_INLINE vf32 opw_splat_f16(uint16_t bits) { return opw_from_bits_f16(opw_splat_u16(bits)); }
OPW_INLINE vf32 opw_splat_bf16(uint16_t bits) { return opw_from_bits_bf16(opw_splat_u16(bits)); }
OPW_INLINE vf32 opw_round_f16(vf32 v) { return opw_from_bits_f16(opw_to_bits_f16(v)); }
OPW_INLINE vf32 opw_round_bf16(vf32 v) { return opw_from_bits_bf16(opw_to_bits_bf16(v)); }

#endif
