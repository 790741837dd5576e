/* The vector vocabulary of generated kernels: types, memory, selection, casts, order, reductions.
 *
 * Every type holds the same number of lanes, OPW_LANES (16 for AVX-512, 8 for AVX2, 4 elsewhere), so that one lane is
 * one element whatever its width: vi64 takes two registers where vf32 takes one. A bool is a byte 0 or 1 in memory (b8)
 * and a vi32 mask of 0 or -1 in registers. float16 and bfloat16 exist in memory only; loading one gives vf32.
 *
 * Names are opw_OP_DTYPE, DTYPE one of f32 f64 i8 i16 i32 i64 u8 u16 u32 u64, and for memory also b8 f16 bf16.
 *   splat(s)                              every lane is s
 *   load(p)             store(p, v)       OPW_LANES consecutive elements, any alignment
 *   load_strided(p, s)  store_strided(p, v, s)   lane i is p[i * s], s in elements; a few apart, as the compiler must
 *                                                know, by shuffles of vectors
 *   gather(p, index)    scatter(p, v, index)     lane i is p[index[i]]; later lanes win
 *   each with _partial(..., n): the first n lanes, 0 <= n <= OPW_LANES. The others load as zero; their memory is never
 *   touched. The functions by bytes of an element (load_lanes_4, ...) take any set of lanes.
 *   select(mask, a, b)                    a where the mask is set
 *   eq ne lt le gt ge (a, b)              masks; for floats also isnan isinf
 *   min max (a, b)                        a NaN in either operand wins; a constant first costs one instruction less
 *   abs sign copysign
 *   reduce_add reduce_mul reduce_min reduce_max (v)   scalars, always in the order of a balanced tree
 *   convert_FROM_TO(v)                    as NumPy casts: floats truncate, integers wrap; b8 too
 * Arithmetic, shifts and bits are the C operators; checked and rarer ones are in opweld_math.h.
 */
#ifndef OPWELD_VECTOR_H
#define OPWELD_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define OPW_WIDEST 16
#elif defined(__AVX2__) && defined(__FMA__)
#define OPW_WIDEST 8
#else
#define OPW_WIDEST 4
#endif

#ifndef OPW_LANES
#define OPW_LANES OPW_WIDEST
#endif

#if OPW_LANES == 16 && OPW_WIDEST == 16
#define OPW_AVX512 1
#elif OPW_LANES == 8 && OPW_WIDEST >= 8
#define OPW_AVX2 1
#endif
#if defined(OPW_AVX512) || defined(OPW_AVX2)
#include <immintrin.h>
#endif

#define OPW_INLINE static inline __attribute__((always_inline, unused))

/* Vectors never pass through a real call, so their calling convention does not matter; and what is written once for all
 * integer types compares unsigned ones with zero. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC diagnostic ignored "-Wtype-limits"
#endif

/* OPW_LIST(F, x, y) is F(0, x, y), F(1, x, y), ..., one for each lane: for initialisers and shuffle indices. */
#define OPW_LIST_4(F, i, x, y) F((i), x, y), F((i) + 1, x, y), F((i) + 2, x, y), F((i) + 3, x, y)
#if OPW_LANES == 16
#define OPW_LIST(F, x, y) \
    OPW_LIST_4(F, 0, x, y), OPW_LIST_4(F, 4, x, y), OPW_LIST_4(F, 8, x, y), OPW_LIST_4(F, 12, x, y)
#elif OPW_LANES == 8
#define OPW_LIST(F, x, y) OPW_LIST_4(F, 0, x, y), OPW_LIST_4(F, 4, x, y)
#elif OPW_LANES == 4
#define OPW_LIST(F, x, y) OPW_LIST_4(F, 0, x, y)
#else
#error "OPW_LANES must be 4, 8 or 16"
#endif
#define OPW_LANE_NUMBER(i, x, y) i
#define OPW_LANE_STRIDED(i, p, stride) (p)[(i) * (stride)]
#define OPW_LANE_INDEXED(i, p, index) (p)[(index)[i]]
#define OPW_LANE_ROTATED(i, by, y) ((i) + (by)) % OPW_LANES
#define OPW_SHUFFLED(a, b, lane, x, y) __builtin_shufflevector(a, b, OPW_LIST(lane, x, y))
#define OPW_ROTATE(v, by) OPW_SHUFFLED(v, v, OPW_LANE_ROTATED, by, 0)

/* X(dtype, C element type, integer vector of the same element width, bytes of an element) */
#define OPW_FLOAT_DTYPES(X) X(f32, float, vi32, 4) X(f64, double, vi64, 8)
#define OPW_SIGNED_DTYPES(X) \
    X(i8, int8_t, vi8, 1) X(i16, int16_t, vi16, 2) X(i32, int32_t, vi32, 4) X(i64, int64_t, vi64, 8)
#define OPW_UNSIGNED_DTYPES(X) \
    X(u8, uint8_t, vi8, 1) X(u16, uint16_t, vi16, 2) X(u32, uint32_t, vi32, 4) X(u64, uint64_t, vi64, 8)
#define OPW_INTEGER_DTYPES(X) OPW_SIGNED_DTYPES(X) OPW_UNSIGNED_DTYPES(X)
#define OPW_DTYPES(X) OPW_FLOAT_DTYPES(X) OPW_INTEGER_DTYPES(X)

/* vT is the register type; opw_memory_T is the same without any promise about alignment or aliasing. */
#define OPW_DEFINE_TYPE(T, element, integer, bytes) \
    typedef element v##T __attribute__((vector_size(OPW_LANES * bytes))); \
    typedef element opw_memory_##T __attribute__((vector_size(OPW_LANES * bytes), aligned(1), may_alias));
OPW_DTYPES(OPW_DEFINE_TYPE)

/* ------------------------------------------------------------------------------------------------------------ masks */

/* The mask of a comparison of any two vectors. */
#if defined(__aarch64__) && defined(__clang__)
/* clang 22 widens the mask of four bytes with zeros, unless it does not see that it is one. */
OPW_INLINE vi32 opw_mask_8(vi8 mask) {
    vi16 wide = __builtin_convertvector(mask, vi16);
    __asm__("" : "+w"(wide));
    return __builtin_convertvector(wide, vi32);
}
#define OPW_MASK(comparison) \
    (sizeof(comparison) == OPW_LANES ? opw_mask_8(__builtin_convertvector(comparison, vi8)) \
                                     : __builtin_convertvector(comparison, vi32))
#else
#define OPW_MASK(comparison) __builtin_convertvector(comparison, vi32)
#endif

OPW_INLINE vi64 opw_lane_i64(void) { return (vi64){OPW_LIST(OPW_LANE_NUMBER, 0, 0)}; }
OPW_INLINE vi32 opw_lane_i32(void) { return (vi32){OPW_LIST(OPW_LANE_NUMBER, 0, 0)}; }
OPW_INLINE vf32 opw_lane_f32(void) { return (vf32){OPW_LIST(OPW_LANE_NUMBER, 0, 0)}; }
/* The mask of the first n lanes. clang must not see that n is a constant where there is AVX-512: it takes a selection of
 * the first lanes, or else zero, for an expansion (vpexpandd), which cores of AMD execute as several operations. */
OPW_INLINE vi32 opw_first_lanes(int64_t n) {
    int32_t count = (int32_t)n;
#if defined(OPW_AVX512)
    __asm__("" : "+r"(count));
#endif
    return opw_lane_i32() < (count - (vi32){0});
}

/* A selection of lanes in the form that memory instructions want: a mask register where there is one. */
#if defined(OPW_AVX512)
typedef __mmask16 opw_lanes;
OPW_INLINE opw_lanes opw_lanes_of(vi32 mask) { return _mm512_movepi32_mask((__m512i)mask); }
OPW_INLINE opw_lanes opw_lanes_first(int64_t n) { return (opw_lanes)_bzhi_u32(0xffffu, (uint32_t)n); }
#define OPW_HAS_LANE(lanes, i) ((lanes) >> (i) & 1)
#else
typedef vi32 opw_lanes;
OPW_INLINE opw_lanes opw_lanes_of(vi32 mask) { return mask; }
OPW_INLINE opw_lanes opw_lanes_first(int64_t n) { return opw_first_lanes(n); }
#define OPW_HAS_LANE(lanes, i) (lanes)[i]
#endif

/* ----------------------------------------------------------------------------------- memory, by bytes of an element */

#define OPW_EACH(lanes, statement) \
    for (int64_t i = 0; i < OPW_LANES; i++) { \
        if (OPW_HAS_LANE(lanes, i)) statement; \
    }
#define OPW_DEFINE_LANES(bytes, V, element) \
    OPW_INLINE V opw_load_lanes_##bytes(const void *p, opw_lanes lanes) { \
        V v = {0}; \
        OPW_EACH(lanes, v[i] = ((const element *)p)[i]) \
        return v; \
    } \
    OPW_INLINE void opw_store_lanes_##bytes(void *p, V v, opw_lanes lanes) { OPW_EACH(lanes, ((element *)p)[i] = v[i]) }
#define OPW_DEFINE_INDEXED(bytes, V, element) \
    OPW_INLINE V opw_gather_##bytes(const void *p, vi64 index) { \
        return (V){OPW_LIST(OPW_LANE_INDEXED, (const element *)p, index)}; \
    } \
    OPW_INLINE V opw_strided_##bytes(const void *p, int64_t stride) { \
        return (V){OPW_LIST(OPW_LANE_STRIDED, (const element *)p, stride)}; \
    } \
    OPW_INLINE V opw_gather_lanes_##bytes(const void *p, vi64 index, opw_lanes lanes) { \
        V v = {0}; \
        OPW_EACH(lanes, v[i] = ((const element *)p)[index[i]]) \
        return v; \
    } \
    OPW_INLINE void opw_scatter_##bytes(void *p, V v, vi64 index) { \
        for (int64_t i = 0; i < OPW_LANES; i++) ((element *)p)[index[i]] = v[i]; \
    } \
    OPW_INLINE void opw_scatter_lanes_##bytes(void *p, V v, vi64 index, opw_lanes lanes) { \
        OPW_EACH(lanes, ((element *)p)[index[i]] = v[i]) \
    }
typedef int8_t opw_any_i8 __attribute__((may_alias));
typedef int16_t opw_any_i16 __attribute__((may_alias));
typedef int32_t opw_any_i32 __attribute__((may_alias));
typedef int64_t opw_any_i64 __attribute__((may_alias));
OPW_DEFINE_INDEXED(1, vi8, opw_any_i8)
OPW_DEFINE_INDEXED(2, vi16, opw_any_i16)

#if defined(OPW_AVX512)
typedef int32_t opw_half_i32 __attribute__((vector_size(32)));
typedef int64_t opw_half_i64 __attribute__((vector_size(64)));
#define OPW_JOIN(low, high) __builtin_shufflevector(low, high, OPW_LIST(OPW_LANE_NUMBER, 0, 0))
#define OPW_LOW(v) __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7)
#define OPW_HIGH(v) __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)
OPW_INLINE vi8 opw_load_lanes_1(const void *p, opw_lanes k) { return (vi8)_mm_maskz_loadu_epi8(k, p); }
OPW_INLINE vi16 opw_load_lanes_2(const void *p, opw_lanes k) { return (vi16)_mm256_maskz_loadu_epi16(k, p); }
OPW_INLINE vi32 opw_load_lanes_4(const void *p, opw_lanes k) { return (vi32)_mm512_maskz_loadu_epi32(k, p); }
OPW_INLINE vi64 opw_load_lanes_8(const void *p, opw_lanes k) {
    opw_half_i64 low = (opw_half_i64)_mm512_maskz_loadu_epi64((__mmask8)k, p);
    opw_half_i64 high = (opw_half_i64)_mm512_maskz_loadu_epi64((__mmask8)(k >> 8), (const char *)p + 64);
    return OPW_JOIN(low, high);
}
/* clang 22 must not see that k is a single lane: of elements that were narrowed it stores 4 bytes, the wide one. */
OPW_INLINE opw_lanes opw_unseen(opw_lanes k) {
    uint32_t lanes = k;
    __asm__("" : "+r"(lanes));
    return (opw_lanes)lanes;
}
OPW_INLINE void opw_store_lanes_1(void *p, vi8 v, opw_lanes k) { _mm_mask_storeu_epi8(p, opw_unseen(k), (__m128i)v); }
OPW_INLINE void opw_store_lanes_2(void *p, vi16 v, opw_lanes k) {
    _mm256_mask_storeu_epi16(p, opw_unseen(k), (__m256i)v);
}
OPW_INLINE void opw_store_lanes_4(void *p, vi32 v, opw_lanes k) { _mm512_mask_storeu_epi32(p, k, (__m512i)v); }
OPW_INLINE void opw_store_lanes_8(void *p, vi64 v, opw_lanes k) {
    _mm512_mask_storeu_epi64(p, (__mmask8)k, (__m512i)OPW_LOW(v));
    _mm512_mask_storeu_epi64((char *)p + 64, (__mmask8)(k >> 8), (__m512i)OPW_HIGH(v));
}
OPW_INLINE vi32 opw_gather_lanes_4(const void *p, vi64 index, opw_lanes k) {
    __m256i zero = _mm256_setzero_si256();
    __m256i low = _mm512_mask_i64gather_epi32(zero, (__mmask8)k, (__m512i)OPW_LOW(index), p, 4);
    __m256i high = _mm512_mask_i64gather_epi32(zero, (__mmask8)(k >> 8), (__m512i)OPW_HIGH(index), p, 4);
    return OPW_JOIN((opw_half_i32)low, (opw_half_i32)high);
}
OPW_INLINE vi64 opw_gather_lanes_8(const void *p, vi64 index, opw_lanes k) {
    __m512i zero = _mm512_setzero_si512();
    __m512i low = _mm512_mask_i64gather_epi64(zero, (__mmask8)k, (__m512i)OPW_LOW(index), p, 8);
    __m512i high = _mm512_mask_i64gather_epi64(zero, (__mmask8)(k >> 8), (__m512i)OPW_HIGH(index), p, 8);
    return OPW_JOIN((opw_half_i64)low, (opw_half_i64)high);
}
OPW_INLINE vi32 opw_gather_4(const void *p, vi64 index) { return opw_gather_lanes_4(p, index, 0xffff); }
OPW_INLINE vi64 opw_gather_8(const void *p, vi64 index) { return opw_gather_lanes_8(p, index, 0xffff); }
OPW_INLINE vi32 opw_strided_4(const void *p, int64_t stride) { return opw_gather_4(p, opw_lane_i64() * stride); }
OPW_INLINE vi64 opw_strided_8(const void *p, int64_t stride) { return opw_gather_8(p, opw_lane_i64() * stride); }
OPW_INLINE void opw_scatter_lanes_4(void *p, vi32 v, vi64 index, opw_lanes k) {
    _mm512_mask_i64scatter_epi32(p, (__mmask8)k, (__m512i)OPW_LOW(index), (__m256i)OPW_LOW(v), 4);
    _mm512_mask_i64scatter_epi32(p, (__mmask8)(k >> 8), (__m512i)OPW_HIGH(index), (__m256i)OPW_HIGH(v), 4);
}
OPW_INLINE void opw_scatter_lanes_8(void *p, vi64 v, vi64 index, opw_lanes k) {
    _mm512_mask_i64scatter_epi64(p, (__mmask8)k, (__m512i)OPW_LOW(index), (__m512i)OPW_LOW(v), 8);
    _mm512_mask_i64scatter_epi64(p, (__mmask8)(k >> 8), (__m512i)OPW_HIGH(index), (__m512i)OPW_HIGH(v), 8);
}
OPW_INLINE void opw_scatter_4(void *p, vi32 v, vi64 index) { opw_scatter_lanes_4(p, v, index, 0xffff); }
OPW_INLINE void opw_scatter_8(void *p, vi64 v, vi64 index) { opw_scatter_lanes_8(p, v, index, 0xffff); }
#else
OPW_DEFINE_LANES(1, vi8, opw_any_i8)
OPW_DEFINE_LANES(2, vi16, opw_any_i16)
OPW_DEFINE_INDEXED(4, vi32, opw_any_i32)
OPW_DEFINE_INDEXED(8, vi64, opw_any_i64)
#if defined(OPW_AVX2)
#define OPW_LOW(mask) _mm256_cvtepi32_epi64(_mm256_castsi256_si128((__m256i)mask))
#define OPW_HIGH(mask) _mm256_cvtepi32_epi64(_mm256_extracti128_si256((__m256i)mask, 1))
typedef long long opw_any_long __attribute__((may_alias));
OPW_INLINE vi32 opw_load_lanes_4(const void *p, opw_lanes m) { return (vi32)_mm256_maskload_epi32(p, (__m256i)m); }
OPW_INLINE void opw_store_lanes_4(void *p, vi32 v, opw_lanes m) { _mm256_maskstore_epi32(p, (__m256i)m, (__m256i)v); }
OPW_INLINE vi64 opw_load_lanes_8(const void *p, opw_lanes m) {
    typedef int64_t half __attribute__((vector_size(32)));
    half low = (half)_mm256_maskload_epi64((const opw_any_long *)p, OPW_LOW(m));
    half high = (half)_mm256_maskload_epi64((const opw_any_long *)p + 4, OPW_HIGH(m));
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}
OPW_INLINE void opw_store_lanes_8(void *p, vi64 v, opw_lanes m) {
    _mm256_maskstore_epi64((opw_any_long *)p, OPW_LOW(m), (__m256i)__builtin_shufflevector(v, v, 0, 1, 2, 3));
    _mm256_maskstore_epi64((opw_any_long *)p + 4, OPW_HIGH(m), (__m256i)__builtin_shufflevector(v, v, 4, 5, 6, 7));
}
#else
OPW_DEFINE_LANES(4, vi32, opw_any_i32)
OPW_DEFINE_LANES(8, vi64, opw_any_i64)
#endif
#endif

/* Elements that are a few apart, or in reverse: vectors of all elements between the first and the last are loaded, and
 * shuffled. */
#define OPW_IS_NEAR(stride) (__builtin_constant_p(stride) && ((stride) == -1 || ((stride) >= 2 && (stride) <= 4)))
#if defined(OPW_AVX512)
#define OPW_HAS_MASKS(bytes) 1
#else
#define OPW_HAS_MASKS(bytes) (OPW_WIDEST >= 8 && bytes >= 4)
#endif

/* The last of several vectors ends with the last element, and so begins so many lanes before the end of the one before
 * it. */
#define OPW_LANE_REVERSED(i, x, y) OPW_LANES - 1 - (i)
#define OPW_LANE_SECOND(i, by, y) \
    (2 * (i) < OPW_LANES ? 2 * (i) : 2 * (i) + (by) < 2 * OPW_LANES ? 2 * (i) + (by) : 2 * OPW_LANES - 1)
#define OPW_LANE_THIRD_LOW(i, x, y) (3 * (i) < 2 * OPW_LANES ? 3 * (i) : 0)
#define OPW_LANE_THIRD(i, by, y) (3 * (i) < 2 * OPW_LANES ? (i) : 3 * (i) - OPW_LANES + (by))
#define OPW_REVERSED(v) OPW_SHUFFLED(v, v, OPW_LANE_REVERSED, 0, 0)
#define OPW_SECOND(a, b, by) OPW_SHUFFLED(a, b, OPW_LANE_SECOND, by, 0)
#define OPW_THIRD(a, b, c, by) \
    OPW_SHUFFLED(OPW_SHUFFLED(a, b, OPW_LANE_THIRD_LOW, 0, 0), c, OPW_LANE_THIRD, by, 0)

/* The lanes of vector number `part` that hold every stride-th element, of the lanes that are wanted. */
#if defined(OPW_AVX512)
OPW_INLINE opw_lanes opw_spread(opw_lanes k, int64_t stride, int64_t part) {
    uint64_t every = stride == 2 ? 0x55555555 : stride == 3 ? 0x249249249249 : 0x1111111111111111;
    return (opw_lanes)(_pdep_u64(k, every) >> (OPW_LANES * part));
}
OPW_INLINE opw_lanes opw_reversed(opw_lanes k) {
    return opw_lanes_of(OPW_REVERSED((vi32)_mm512_movm_epi32(k)));
}
#else
OPW_INLINE opw_lanes opw_spread(opw_lanes k, int64_t stride, int64_t part) {
    opw_lanes found = {0};
    for (int64_t i = 0; i < OPW_LANES; i++) {
        int64_t n = OPW_LANES * part + i;
        if (n % stride == 0) found[i] = k[n / stride];
    }
    return found;
}
OPW_INLINE opw_lanes opw_reversed(opw_lanes k) { return OPW_REVERSED(k); }
#endif

#define OPW_DEFINE_NEAR(bytes, T) \
    OPW_INLINE v##T opw_near_##bytes(const void *start, int64_t stride) { \
        const opw_any_##T *p = (const opw_any_##T *)start; \
        const opw_any_##T *last = p + (stride - 1) * (OPW_LANES - 1); \
        if (stride == -1) return OPW_REVERSED(*(const opw_memory_##T *)(p - (OPW_LANES - 1))); \
        v##T a = *(const opw_memory_##T *)p, z = *(const opw_memory_##T *)last; \
        if (stride == 2) return OPW_SECOND(a, z, 1); \
        v##T b = *(const opw_memory_##T *)(p + OPW_LANES); \
        if (stride == 3) return OPW_THIRD(a, b, z, 2); \
        v##T c = *(const opw_memory_##T *)(p + 2 * OPW_LANES); \
        return OPW_SECOND(OPW_SECOND(a, b, 0), OPW_SECOND(c, z, 3), 0); \
    } \
    OPW_INLINE v##T opw_near_lanes_##bytes(const void *start, int64_t stride, opw_lanes k) { \
        const opw_any_##T *p = (const opw_any_##T *)start; \
        if (stride == -1) return OPW_REVERSED(opw_load_lanes_##bytes(p - (OPW_LANES - 1), opw_reversed(k))); \
        v##T a = opw_load_lanes_##bytes(p, opw_spread(k, stride, 0)); \
        v##T b = opw_load_lanes_##bytes(p + OPW_LANES, opw_spread(k, stride, 1)); \
        if (stride == 2) return OPW_SECOND(a, b, 0); \
        v##T c = opw_load_lanes_##bytes(p + 2 * OPW_LANES, opw_spread(k, stride, 2)); \
        if (stride == 3) return OPW_THIRD(a, b, c, 0); \
        v##T d = opw_load_lanes_##bytes(p + 3 * OPW_LANES, opw_spread(k, stride, 3)); \
        return OPW_SECOND(OPW_SECOND(a, b, 0), OPW_SECOND(c, d, 0), 0); \
    }
OPW_DEFINE_NEAR(1, i8)
OPW_DEFINE_NEAR(2, i16)
OPW_DEFINE_NEAR(4, i32)
OPW_DEFINE_NEAR(8, i64)

/* Stores a few apart are of vectors too, under masks that leave the elements in between as they are. Not of bytes: to
 * store some of those, Zen 4 takes dozens of cycles. */
#define OPW_DEFINE_APART(bytes, V) \
    OPW_INLINE void opw_store_apart_##bytes(void *p, V v, int64_t stride) { \
        opw_scatter_##bytes(p, v, opw_lane_i64() * stride); \
    } \
    OPW_INLINE void opw_store_apart_lanes_##bytes(void *p, V v, int64_t stride, opw_lanes lanes) { \
        opw_scatter_lanes_##bytes(p, v, opw_lane_i64() * stride, lanes); \
    }
OPW_DEFINE_APART(1, vi8)
OPW_DEFINE_APART(2, vi16)
OPW_DEFINE_APART(8, vi64)
#if defined(OPW_AVX512)
#define OPW_LANE_SPREAD(i, stride, part) (OPW_LANES * (part) + (i)) / (stride)
#define OPW_STORE_PART(stride, part) \
    opw_store_lanes_4( \
        (opw_any_i32 *)p + OPW_LANES * (part), \
        OPW_SHUFFLED(v, v, OPW_LANE_SPREAD, stride, part), \
        opw_spread(lanes, stride, part) \
    )
OPW_INLINE void opw_store_apart_lanes_4(void *p, vi32 v, int64_t stride, opw_lanes lanes) {
    if (!OPW_IS_NEAR(stride) || stride == -1) {
        opw_scatter_lanes_4(p, v, opw_lane_i64() * stride, lanes);
    } else if (stride == 2) {
        OPW_STORE_PART(2, 0), OPW_STORE_PART(2, 1);
    } else if (stride == 3) {
        OPW_STORE_PART(3, 0), OPW_STORE_PART(3, 1), OPW_STORE_PART(3, 2);
    } else {
        OPW_STORE_PART(4, 0), OPW_STORE_PART(4, 1), OPW_STORE_PART(4, 2), OPW_STORE_PART(4, 3);
    }
}
OPW_INLINE void opw_store_apart_4(void *p, vi32 v, int64_t stride) { opw_store_apart_lanes_4(p, v, stride, 0xffff); }
#else
OPW_DEFINE_APART(4, vi32)
#endif

/* ----------------------------------------------------------------------------------------------- memory, by dtype */

/* Of a power of two that the compiler knows, lanes are moved as a shorter register: what is stored under a mask is not
 * forwarded to loads that follow, be it to lanes beyond, and Zen 4 takes dozens of cycles to store bytes so. */
#define OPW_COPY_PART(to, from, element, n, result) \
    if (__builtin_constant_p(n) && n > 0 && n < OPW_LANES && (n & (n - 1)) == 0) { \
        __builtin_memcpy(to, from, (size_t)n * sizeof(element)); \
        return result; \
    }
/* splat subtracts zero, because s - 0 is s for every s; 0 + s is not for s = -0, and would cost a real addition. */
#define OPW_DEFINE_MEMORY(T, element, integer, bytes) \
    OPW_INLINE v##T opw_splat_##T(element s) { return s - (v##T){0}; } \
    OPW_INLINE v##T opw_load_##T(const element *p) { return *(const opw_memory_##T *)p; } \
    OPW_INLINE void opw_store_##T(element *p, v##T v) { *(opw_memory_##T *)p = v; } \
    OPW_INLINE v##T opw_load_strided_##T(const element *p, int64_t stride) { \
        if (OPW_IS_NEAR(stride)) return (v##T)opw_near_##bytes(p, stride); \
        return (v##T)opw_strided_##bytes(p, stride); \
    } \
    OPW_INLINE v##T opw_load_strided_lanes_##T(const element *p, int64_t stride, opw_lanes lanes) { \
        if (OPW_IS_NEAR(stride) && OPW_HAS_MASKS(bytes)) return (v##T)opw_near_lanes_##bytes(p, stride, lanes); \
        return (v##T)opw_gather_lanes_##bytes(p, opw_lane_i64() * stride, lanes); \
    } \
    OPW_INLINE void opw_store_strided_##T(element *p, v##T v, int64_t stride) { \
        opw_store_apart_##bytes(p, (integer)v, stride); \
    } \
    OPW_INLINE v##T opw_gather_##T(const element *p, vi64 index) { return (v##T)opw_gather_##bytes(p, index); } \
    OPW_INLINE void opw_scatter_##T(element *p, v##T v, vi64 index) { opw_scatter_##bytes(p, (integer)v, index); } \
    OPW_INLINE v##T opw_load_partial_##T(const element *p, int64_t n) { \
        v##T v = {0}; \
        OPW_COPY_PART(&v, p, element, n, v) \
        return (v##T)opw_load_lanes_##bytes(p, opw_lanes_first(n)); \
    } \
    OPW_INLINE void opw_store_partial_##T(element *p, v##T v, int64_t n) { \
        OPW_COPY_PART(p, &v, element, n, ) \
        opw_store_lanes_##bytes(p, (integer)v, opw_lanes_first(n)); \
    } \
    OPW_INLINE v##T opw_load_strided_partial_##T(const element *p, int64_t stride, int64_t n) { \
        return opw_load_strided_lanes_##T(p, stride, opw_lanes_first(n)); \
    } \
    OPW_INLINE void opw_store_strided_partial_##T(element *p, v##T v, int64_t stride, int64_t n) { \
        opw_store_apart_lanes_##bytes(p, (integer)v, stride, opw_lanes_first(n)); \
    } \
    OPW_INLINE v##T opw_gather_partial_##T(const element *p, vi64 index, int64_t n) { \
        return (v##T)opw_gather_lanes_##bytes(p, index, opw_lanes_first(n)); \
    } \
    OPW_INLINE void opw_scatter_partial_##T(element *p, v##T v, vi64 index, int64_t n) { \
        opw_scatter_lanes_##bytes(p, (integer)v, index, opw_lanes_first(n)); \
    }
OPW_DTYPES(OPW_DEFINE_MEMORY)

/* A square of elements: lane i of row[j] is p[i * stride + j]. As many vectors are loaded as one has lanes, and
 * transposed: 4 x 4 elements in each 16 bytes, then these. */
#define OPW_LANE_LOW_PAIRS(i, x, y) ((i) % 2 ? OPW_LANES : 0) + (i) / 4 * 4 + (i) % 4 / 2
#define OPW_LANE_HIGH_PAIRS(i, x, y) OPW_LANE_LOW_PAIRS(i, x, y) + 2
#define OPW_LANE_LOW_HALVES(i, x, y) ((i) % 4 < 2 ? (i) : OPW_LANES + (i) - 2)
#define OPW_LANE_HIGH_HALVES(i, x, y) ((i) % 4 < 2 ? (i) + 2 : OPW_LANES + (i))
#define OPW_LANE_BLOCKS(i, odd, y) ((i) / 4 * 2 + (odd)) * 4 + (i) % 4
#define OPW_DEFINE_SQUARE(T) \
    typedef struct { \
        v##T row[OPW_LANES]; \
    } opw_square_##T; \
    OPW_INLINE opw_square_##T opw_transposed_##T(opw_square_##T s) { \
        opw_square_##T t; \
        for (int i = 0; i < OPW_LANES; i += 4) { \
            v##T a = OPW_SHUFFLED(s.row[i], s.row[i + 1], OPW_LANE_LOW_PAIRS, 0, 0); \
            v##T b = OPW_SHUFFLED(s.row[i], s.row[i + 1], OPW_LANE_HIGH_PAIRS, 0, 0); \
            v##T c = OPW_SHUFFLED(s.row[i + 2], s.row[i + 3], OPW_LANE_LOW_PAIRS, 0, 0); \
            v##T d = OPW_SHUFFLED(s.row[i + 2], s.row[i + 3], OPW_LANE_HIGH_PAIRS, 0, 0); \
            t.row[i] = OPW_SHUFFLED(a, c, OPW_LANE_LOW_HALVES, 0, 0); \
            t.row[i + 1] = OPW_SHUFFLED(a, c, OPW_LANE_HIGH_HALVES, 0, 0); \
            t.row[i + 2] = OPW_SHUFFLED(b, d, OPW_LANE_LOW_HALVES, 0, 0); \
            t.row[i + 3] = OPW_SHUFFLED(b, d, OPW_LANE_HIGH_HALVES, 0, 0); \
        } \
        /* Row 4 * m + k of the result is the block m of row k of each of the groups of four, one after the other. */ \
        for (int blocks = OPW_LANES / 4; blocks > 1; blocks /= 2) { \
            for (int i = 0; i < OPW_LANES / 2; i++) { \
                int from = i / 4 * 8 + i % 4, to = OPW_LANES / 2; \
                s.row[i] = OPW_SHUFFLED(t.row[from], t.row[from + 4], OPW_LANE_BLOCKS, 0, 0); \
                s.row[to + i] = OPW_SHUFFLED(t.row[from], t.row[from + 4], OPW_LANE_BLOCKS, 1, 0); \
            } \
            t = s; \
        } \
        return t; \
    }
#define OPW_DEFINE_LOAD_SQUARE(T, R, element) \
    OPW_INLINE opw_square_##R opw_load_square_##T(const element *p, int64_t stride) { \
        opw_square_##R s; \
        for (int i = 0; i < OPW_LANES; i++) s.row[i] = opw_load_##T(p + i * stride); \
        return opw_transposed_##R(s); \
    }
OPW_DEFINE_SQUARE(f32)
OPW_DEFINE_SQUARE(i32)
OPW_DEFINE_SQUARE(u32)
OPW_DEFINE_LOAD_SQUARE(f32, f32, float)
OPW_DEFINE_LOAD_SQUARE(i32, i32, int32_t)
OPW_DEFINE_LOAD_SQUARE(u32, u32, uint32_t)

/* ----------------------------------------------------------------------------------------------- values, by dtype */

#define OPW_BLEND(T, integer, m, a, b) ((v##T)(((integer)(m) & (integer)(a)) | (~(integer)(m) & (integer)(b))))
#define OPW_DEFINE_SELECT(T, element, integer, bytes) \
    OPW_INLINE v##T opw_select_##T(vi32 mask, v##T a, v##T b) { \
        integer m = __builtin_convertvector(mask, integer); \
        return OPW_BLEND(T, integer, m, a, b); \
    } \
    OPW_INLINE vi32 opw_eq_##T(v##T a, v##T b) { return OPW_MASK(a == b); } \
    OPW_INLINE vi32 opw_ne_##T(v##T a, v##T b) { return OPW_MASK(a != b); } \
    OPW_INLINE vi32 opw_lt_##T(v##T a, v##T b) { return OPW_MASK(a < b); } \
    OPW_INLINE vi32 opw_le_##T(v##T a, v##T b) { return OPW_MASK(a <= b); } \
    OPW_INLINE vi32 opw_gt_##T(v##T a, v##T b) { return OPW_MASK(a > b); } \
    OPW_INLINE vi32 opw_ge_##T(v##T a, v##T b) { return OPW_MASK(a >= b); }
OPW_DTYPES(OPW_DEFINE_SELECT)

/* `a > b ? a : b` is one vmaxps and gives b when either is NaN; only a NaN in a needs the second selection. */
#define OPW_DEFINE_FLOAT_ORDER(T, element, integer, bytes) \
    OPW_INLINE v##T opw_max_##T(v##T a, v##T b) { \
        v##T larger = OPW_BLEND(T, integer, a > b, a, b); \
        return OPW_BLEND(T, integer, a != a, a, larger); \
    } \
    OPW_INLINE v##T opw_min_##T(v##T a, v##T b) { \
        v##T smaller = OPW_BLEND(T, integer, a < b, a, b); \
        return OPW_BLEND(T, integer, a != a, a, smaller); \
    } \
    OPW_INLINE v##T opw_copysign_##T(v##T size, v##T sign) { \
        return OPW_BLEND(T, integer, opw_splat_##T((element)-0.0), sign, size); \
    } \
    OPW_INLINE v##T opw_abs_##T(v##T a) { return opw_copysign_##T(a, (v##T){0}); } \
    OPW_INLINE v##T opw_sign_##T(v##T a) { \
        v##T unit = opw_copysign_##T(opw_splat_##T(1), a); \
        return OPW_BLEND(T, integer, (integer)(a < 0) | (integer)(a > 0), unit, a); \
    } \
    OPW_INLINE vi32 opw_isnan_##T(v##T a) { return OPW_MASK(a != a); } \
    OPW_INLINE vi32 opw_isinf_##T(v##T a) { return OPW_MASK(opw_abs_##T(a) == (element)__builtin_inf()); }
OPW_FLOAT_DTYPES(OPW_DEFINE_FLOAT_ORDER)

#define OPW_DEFINE_INTEGER_ORDER(T, element, integer, bytes) \
    OPW_INLINE v##T opw_max_##T(v##T a, v##T b) { return OPW_BLEND(T, integer, a > b, a, b); } \
    OPW_INLINE v##T opw_min_##T(v##T a, v##T b) { return OPW_BLEND(T, integer, a < b, a, b); }
OPW_INTEGER_DTYPES(OPW_DEFINE_INTEGER_ORDER)
#define OPW_DEFINE_SIGNED(T, element, integer, bytes) \
    OPW_INLINE v##T opw_abs_##T(v##T a) { return OPW_BLEND(T, integer, a < 0, -a, a); } \
    OPW_INLINE v##T opw_sign_##T(v##T a) { return (v##T)((integer)(a < 0) - (integer)(a > 0)); }
OPW_SIGNED_DTYPES(OPW_DEFINE_SIGNED)
#define OPW_DEFINE_UNSIGNED(T, element, integer, bytes) \
    OPW_INLINE v##T opw_abs_##T(v##T a) { return a; } \
    OPW_INLINE v##T opw_sign_##T(v##T a) { return (v##T) - (integer)(a != 0); }
OPW_UNSIGNED_DTYPES(OPW_DEFINE_UNSIGNED)

#define OPW_ADD(T, a, b) ((a) + (b))
#define OPW_MUL(T, a, b) ((a) * (b))
#define OPW_MIN(T, a, b) opw_min_##T(a, b)
#define OPW_MAX(T, a, b) opw_max_##T(a, b)
#define OPW_DEFINE_TREE(kind, T, element, OP) \
    OPW_INLINE element opw_reduce_##kind##_##T(v##T v) { \
        if (OPW_LANES > 8) v = OP(T, v, OPW_ROTATE(v, 8)); \
        if (OPW_LANES > 4) v = OP(T, v, OPW_ROTATE(v, 4)); \
        v = OP(T, v, OPW_ROTATE(v, 2)); \
        v = OP(T, v, OPW_ROTATE(v, 1)); \
        return v[0]; \
    }
#define OPW_DEFINE_REDUCE(T, element, integer, bytes) \
    OPW_DEFINE_TREE(add, T, element, OPW_ADD) \
    OPW_DEFINE_TREE(mul, T, element, OPW_MUL) \
    OPW_DEFINE_TREE(min, T, element, OPW_MIN) \
    OPW_DEFINE_TREE(max, T, element, OPW_MAX)
OPW_DTYPES(OPW_DEFINE_REDUCE)

/* ------------------------------------------------------------------------------------------------------------ casts */

/* A float becomes a narrow integer through a wider one, so that it wraps instead of being undefined. */
#define OPW_DEFINE_CAST(FROM, TO, VIA) \
    OPW_INLINE v##TO opw_convert_##FROM##_##TO(v##FROM v) { \
        return __builtin_convertvector(__builtin_convertvector(v, VIA), v##TO); \
    }
#define OPW_DEFINE_CAST_ALL(T, element, integer, bytes) \
    OPW_DEFINE_CAST(T, f32, vf32) OPW_DEFINE_CAST(T, f64, vf64) OPW_DEFINE_CAST(T, i32, vi32) \
    OPW_DEFINE_CAST(T, i64, vi64) OPW_DEFINE_CAST(T, u64, vu64) OPW_DEFINE_CAST(T, u32, vi64) \
    OPW_DEFINE_CAST(T, i8, vi32) OPW_DEFINE_CAST(T, i16, vi32) \
    OPW_DEFINE_CAST(T, u8, vi32) OPW_DEFINE_CAST(T, u16, vi32)
OPW_DTYPES(OPW_DEFINE_CAST_ALL)
#define OPW_DEFINE_CAST_BOOL(T, element, integer, bytes) \
    OPW_INLINE vi32 opw_convert_##T##_b8(v##T v) { return OPW_MASK(v != 0); } \
    OPW_INLINE v##T opw_convert_b8_##T(vi32 mask) { return __builtin_convertvector(mask & 1, v##T); }
OPW_DTYPES(OPW_DEFINE_CAST_BOOL)
OPW_INLINE vi32 opw_convert_b8_b8(vi32 mask) { return mask; }

/* Integers as bytes that saturate: opw_narrow_i32_u8 of a vector; opw_store_narrow_2_u8 and opw_store_narrow_4_u8 store
 * those of vectors side by side. Two vectors are packed to 16 bits, four to bytes, each time with saturation and within
 * 16 bytes of a register, whose words of four bytes a permutation brings into order. */
#if defined(OPW_AVX512)
OPW_INLINE vu8 opw_narrow_i32_u8(vi32 v) {
    return (vu8)_mm512_cvtusepi32_epi8(_mm512_max_epi32((__m512i)v, _mm512_setzero_si512()));
}
OPW_INLINE vi8 opw_narrow_i32_i8(vi32 v) { return (vi8)_mm512_cvtsepi32_epi8((__m512i)v); }
#define OPW_DEFINE_NARROW(T, element, how) \
    OPW_INLINE void opw_store_narrow_2_##T(element *p, vi32 a, vi32 b) { \
        __m512i words = _mm512_packs_epi32((__m512i)a, (__m512i)b); \
        __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); \
        __m512i bytes = _mm512_permutexvar_epi32(order, how(words, words)); \
        _mm256_storeu_si256((__m256i_u *)p, _mm512_castsi512_si256(bytes)); \
    } \
    OPW_INLINE void opw_store_narrow_4_##T(element *p, vi32 a, vi32 b, vi32 c, vi32 d) { \
        __m512i low = _mm512_packs_epi32((__m512i)a, (__m512i)b), high = _mm512_packs_epi32((__m512i)c, (__m512i)d); \
        __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); \
        _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, how(low, high))); \
    }
OPW_DEFINE_NARROW(u8, uint8_t, _mm512_packus_epi16)
OPW_DEFINE_NARROW(i8, int8_t, _mm512_packs_epi16)
#else
OPW_INLINE vu8 opw_narrow_i32_u8(vi32 v) {
    v = opw_min_i32(opw_max_i32(v, opw_splat_i32(0)), opw_splat_i32(255));
    return __builtin_convertvector(v, vu8);
}
OPW_INLINE vi8 opw_narrow_i32_i8(vi32 v) {
    v = opw_min_i32(opw_max_i32(v, opw_splat_i32(-128)), opw_splat_i32(127));
    return __builtin_convertvector(v, vi8);
}
#if defined(OPW_AVX2)
#define OPW_DEFINE_NARROW(T, element, how) \
    OPW_INLINE void opw_store_narrow_2_##T(element *p, vi32 a, vi32 b) { \
        __m256i words = _mm256_packs_epi32((__m256i)a, (__m256i)b), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); \
        __m256i bytes = _mm256_permutevar8x32_epi32(how(words, words), order); \
        _mm_storeu_si128((__m128i_u *)p, _mm256_castsi256_si128(bytes)); \
    } \
    OPW_INLINE void opw_store_narrow_4_##T(element *p, vi32 a, vi32 b, vi32 c, vi32 d) { \
        __m256i low = _mm256_packs_epi32((__m256i)a, (__m256i)b), high = _mm256_packs_epi32((__m256i)c, (__m256i)d); \
        __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); \
        _mm256_storeu_si256((__m256i_u *)p, _mm256_permutevar8x32_epi32(how(low, high), order)); \
    }
OPW_DEFINE_NARROW(u8, uint8_t, _mm256_packus_epi16)
OPW_DEFINE_NARROW(i8, int8_t, _mm256_packs_epi16)
#else
#define OPW_DEFINE_NARROW(T, element) \
    OPW_INLINE void opw_store_narrow_2_##T(element *p, vi32 a, vi32 b) { \
        opw_store_##T(p, opw_narrow_i32_##T(a)); \
        opw_store_##T(p + OPW_LANES, opw_narrow_i32_##T(b)); \
    } \
    OPW_INLINE void opw_store_narrow_4_##T(element *p, vi32 a, vi32 b, vi32 c, vi32 d) { \
        opw_store_narrow_2_##T(p, a, b); \
        opw_store_narrow_2_##T(p + 2 * OPW_LANES, c, d); \
    }
OPW_DEFINE_NARROW(u8, uint8_t)
OPW_DEFINE_NARROW(i8, int8_t)
#endif
#endif

/* ------------------------------------------------------------- dtypes that registers hold as another: b8 f16 bf16 */

OPW_INLINE vi32 opw_splat_b8(int32_t truth) { return opw_splat_i32(truth ? -1 : 0); }
OPW_INLINE vi32 opw_from_bits_b8(vu8 bytes) { return OPW_MASK(bytes != 0); }
OPW_INLINE vu8 opw_to_bits_b8(vi32 mask) { return __builtin_convertvector(mask & 1, vu8); }
OPW_INLINE vi32 opw_select_b8(vi32 mask, vi32 a, vi32 b) { return opw_select_i32(mask, a, b); }
OPW_INLINE vi32 opw_eq_b8(vi32 a, vi32 b) { return ~(a ^ b); }
OPW_INLINE vi32 opw_ne_b8(vi32 a, vi32 b) { return a ^ b; }
OPW_INLINE int32_t opw_reduce_or_b8(vi32 mask) { return opw_reduce_min_i32(mask) != 0; }
OPW_INLINE int32_t opw_reduce_and_b8(vi32 mask) { return opw_reduce_max_i32(mask) != 0; }

/* Half precision is the 16 bits of an element; rounding is to nearest even, and a NaN stays a NaN. */
typedef _Float16 opw_float16 __attribute__((vector_size(OPW_LANES * 2)));
OPW_INLINE vf32 opw_from_bits_f16(vu16 bits) { return __builtin_convertvector((opw_float16)bits, vf32); }
OPW_INLINE vu16 opw_to_bits_f16(vf32 v) { return (vu16)__builtin_convertvector(v, opw_float16); }
OPW_INLINE vf32 opw_from_bits_bf16(vu16 bits) { return (vf32)(__builtin_convertvector(bits, vu32) << 16); }
OPW_INLINE vu16 opw_to_bits_bf16(vf32 v) {
    vu32 bits = (vu32)v;
    vu32 nearest = opw_select_u32(opw_isnan_f32(v), bits | 0x400000, bits + 0x7fff + ((bits >> 16) & 1));
    return __builtin_convertvector(nearest >> 16, vu16);
}

#define OPW_DEFINE_STORED(T, V, U, element, FROM, TO) \
    OPW_INLINE V opw_load_##T(const element *p) { return FROM(opw_load_##U(p)); } \
    OPW_INLINE void opw_store_##T(element *p, V v) { opw_store_##U(p, TO(v)); } \
    OPW_INLINE V opw_load_strided_##T(const element *p, int64_t s) { return FROM(opw_load_strided_##U(p, s)); } \
    OPW_INLINE void opw_store_strided_##T(element *p, V v, int64_t s) { opw_store_strided_##U(p, TO(v), s); } \
    OPW_INLINE V opw_gather_##T(const element *p, vi64 index) { return FROM(opw_gather_##U(p, index)); } \
    OPW_INLINE V opw_load_partial_##T(const element *p, int64_t n) { return FROM(opw_load_partial_##U(p, n)); } \
    OPW_INLINE void opw_store_partial_##T(element *p, V v, int64_t n) { opw_store_partial_##U(p, TO(v), n); } \
    OPW_INLINE V opw_load_strided_partial_##T(const element *p, int64_t s, int64_t n) { \
        return FROM(opw_load_strided_partial_##U(p, s, n)); \
    } \
    OPW_INLINE void opw_store_strided_partial_##T(element *p, V v, int64_t s, int64_t n) { \
        opw_store_strided_partial_##U(p, TO(v), s, n); \
    } \
    OPW_INLINE V opw_gather_partial_##T(const element *p, vi64 index, int64_t n) { \
        return FROM(opw_gather_partial_##U(p, index, n)); \
    }
OPW_DEFINE_STORED(b8, vi32, u8, uint8_t, opw_from_bits_b8, opw_to_bits_b8)
OPW_DEFINE_STORED(f16, vf32, u16, uint16_t, opw_from_bits_f16, opw_to_bits_f16)
OPW_DEFINE_STORED(bf16, vf32, u16, uint16_t, opw_from_bits_bf16, opw_to_bits_bf16)
OPW_DEFINE_LOAD_SQUARE(b8, i32, uint8_t)
OPW_DEFINE_LOAD_SQUARE(f16, f32, uint16_t)
OPW_DEFINE_LOAD_SQUARE(bf16, f32, uint16_t)

#endif
