/* Every function of the vector headers, applied to arrays: whole vectors, then the rest as a partial vector. */
#include <stddef.h>

#include "opweld_kernel.h"

#define EXPORT __attribute__((visibility("default"))) void

EXPORT lanes(int64_t *out) { *out = OPW_LANES; }

#define UNARY(name, T, element) \
    EXPORT name##_##T(element *y, const element *x, int64_t n) { \
        int64_t i = 0; \
        for (; i + OPW_LANES <= n; i += OPW_LANES) opw_store_##T(y + i, opw_##name##_##T(opw_load_##T(x + i))); \
        opw_store_partial_##T(y + i, opw_##name##_##T(opw_load_partial_##T(x + i, n - i)), n - i); \
    }
#define BINARY(name, T, element) \
    EXPORT name##_##T(element *z, const element *x, const element *y, int64_t n) { \
        int64_t i = 0; \
        for (; i + OPW_LANES <= n; i += OPW_LANES) \
            opw_store_##T(z + i, opw_##name##_##T(opw_load_##T(x + i), opw_load_##T(y + i))); \
        opw_store_partial_##T( \
            z + i, opw_##name##_##T(opw_load_partial_##T(x + i, n - i), opw_load_partial_##T(y + i, n - i)), n - i); \
    }
#define COMPARE(name, T, element) \
    EXPORT name##_##T(uint8_t *z, const element *x, const element *y, int64_t n) { \
        int64_t i = 0; \
        for (; i + OPW_LANES <= n; i += OPW_LANES) \
            opw_store_b8(z + i, opw_##name##_##T(opw_load_##T(x + i), opw_load_##T(y + i))); \
        opw_store_partial_b8( \
            z + i, opw_##name##_##T(opw_load_partial_##T(x + i, n - i), opw_load_partial_##T(y + i, n - i)), n - i); \
    }
#define REDUCE(kind, T, element) \
    EXPORT reduce_##kind##_##T(element *y, const element *x) { *y = opw_reduce_##kind##_##T(opw_load_##T(x)); }

/* ------------------------------------------------------------------------------------------------------ functions */

#define FLOAT_UNARY(T, element, integer, bytes) \
    UNARY(exp, T, element) UNARY(log, T, element) UNARY(log1p, T, element) UNARY(expm1, T, element) \
    UNARY(tanh, T, element) UNARY(erf, T, element) UNARY(sigmoid, T, element) UNARY(softplus, T, element) \
    UNARY(gelu, T, element) UNARY(gelu_tanh, T, element) UNARY(sqrt, T, element) UNARY(rsqrt, T, element) \
    UNARY(reciprocal, T, element) UNARY(sin, T, element) UNARY(cos, T, element) UNARY(tan, T, element) \
    UNARY(asin, T, element) UNARY(acos, T, element) UNARY(atan, T, element) UNARY(sinh, T, element) \
    UNARY(cosh, T, element) UNARY(asinh, T, element) UNARY(acosh, T, element) UNARY(atanh, T, element) \
    UNARY(floor, T, element) UNARY(ceil, T, element) UNARY(round, T, element) UNARY(trunc, T, element) \
    BINARY(pow, T, element) BINARY(atan2, T, element) BINARY(fmod, T, element) BINARY(mod, T, element) \
    BINARY(copysign, T, element) \
    EXPORT isnan_##T(uint8_t *y, const element *x, int64_t n) { \
        opw_store_partial_b8(y, opw_isnan_##T(opw_load_partial_##T(x, n)), n); \
    } \
    EXPORT isinf_##T(uint8_t *y, const element *x, int64_t n) { \
        opw_store_partial_b8(y, opw_isinf_##T(opw_load_partial_##T(x, n)), n); \
    }
OPW_FLOAT_DTYPES(FLOAT_UNARY)
UNARY(exp_below, f32, float)
BINARY(quotient, f32, float)
/* x / y where all of y is one constant. */
EXPORT div_by_f32(float *z, const float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += OPW_LANES) {
        int64_t count = n - i < OPW_LANES ? n - i : OPW_LANES;
        opw_store_partial_f32(z + i, opw_div_by_f32(opw_load_partial_f32(x + i, count), *y, 1.0f / *y), count);
    }
}

#define INTEGER(T, element, integer, bytes) \
    BINARY(div, T, element) BINARY(mod, T, element) BINARY(fmod, T, element) BINARY(floordiv, T, element) \
    BINARY(pow, T, element) BINARY(shl, T, element) BINARY(shr, T, element) \
    EXPORT scalar_div_##T(element *z, const element *x, const element *y, int64_t n, int64_t *error) { \
        for (int64_t i = 0; i < n; i++) z[i] = opw_scalar_div_##T(x[i], y[i], error); \
    } \
    EXPORT scalar_mod_##T(element *z, const element *x, const element *y, int64_t n, int64_t *error) { \
        for (int64_t i = 0; i < n; i++) z[i] = opw_scalar_mod_##T(x[i], y[i], error); \
    } \
    EXPORT scalar_floordiv_##T(element *z, const element *x, const element *y, int64_t n, int64_t *error) { \
        for (int64_t i = 0; i < n; i++) z[i] = opw_scalar_floordiv_##T(x[i], y[i], error); \
    }
OPW_INTEGER_DTYPES(INTEGER)

#define ANY_DTYPE(T, element, integer, bytes) \
    UNARY(abs, T, element) UNARY(sign, T, element) BINARY(min, T, element) BINARY(max, T, element) \
    COMPARE(eq, T, element) COMPARE(ne, T, element) COMPARE(lt, T, element) \
    COMPARE(le, T, element) COMPARE(gt, T, element) COMPARE(ge, T, element) \
    REDUCE(add, T, element) REDUCE(mul, T, element) REDUCE(min, T, element) REDUCE(max, T, element) \
    EXPORT select_##T(element *z, const uint8_t *mask, const element *x, const element *y) { \
        opw_store_##T(z, opw_select_##T(opw_load_b8(mask), opw_load_##T(x), opw_load_##T(y))); \
    } \
    EXPORT splat_##T(element *z, const element *x) { opw_store_##T(z, opw_splat_##T(*x)); } \
    EXPORT scalar_max_##T(element *z, const element *x, const element *y, int64_t n) { \
        for (int64_t i = 0; i < n; i++) z[i] = opw_scalar_max_##T(x[i], y[i]); \
    } \
    EXPORT scalar_min_##T(element *z, const element *x, const element *y, int64_t n) { \
        for (int64_t i = 0; i < n; i++) z[i] = opw_scalar_min_##T(x[i], y[i]); \
    } \
    EXPORT scatter_##T(element *y, const element *x, const int64_t *index) { \
        opw_scatter_##T(y, opw_load_##T(x), opw_load_i64(index)); \
    } \
    EXPORT scatter_partial_##T(element *y, const element *x, const int64_t *index, int64_t n) { \
        opw_scatter_partial_##T(y, opw_load_##T(x), opw_load_i64(index), n); \
    }
OPW_DTYPES(ANY_DTYPE)

EXPORT reduce_or_b8(int32_t *y, const uint8_t *x) { *y = opw_reduce_or_b8(opw_load_b8(x)); }
EXPORT reduce_and_b8(int32_t *y, const uint8_t *x) { *y = opw_reduce_and_b8(opw_load_b8(x)); }
EXPORT first_lanes(uint8_t *y, int64_t n) { opw_store_b8(y, opw_first_lanes(n)); }

/* --------------------------------------------------------------------------------------------------------- memory */

/* The statement with a stride `s` that compilers know where it is one of those for which code differs then. */
#define OF_STRIDE(stride, statement) \
    switch (stride) { \
    case -1: { enum { s = -1 }; statement; } break; \
    case 2: { enum { s = 2 }; statement; } break; \
    case 3: { enum { s = 3 }; statement; } break; \
    case 4: { enum { s = 4 }; statement; } break; \
    default: { int64_t s = stride; statement; } \
    }
/* The lanes that a partial load leaves out must be zero, so everything loaded is stored in full. */
#define MEMORY(T, element, V, REGISTER) \
    EXPORT load_##T(REGISTER *y, const element *x) { *(opw_memory_##V *)y = opw_load_##T(x); } \
    EXPORT load_partial_##T(REGISTER *y, const element *x, int64_t n) { \
        *(opw_memory_##V *)y = opw_load_partial_##T(x, n); \
    } \
    EXPORT load_strided_##T(REGISTER *y, const element *x, int64_t stride) { \
        OF_STRIDE(stride, *(opw_memory_##V *)y = opw_load_strided_##T(x, s)) \
    } \
    EXPORT load_strided_partial_##T(REGISTER *y, const element *x, int64_t stride, int64_t n) { \
        OF_STRIDE(stride, *(opw_memory_##V *)y = opw_load_strided_partial_##T(x, s, n)) \
    } \
    EXPORT load_strided_masked_##T(REGISTER *y, const element *x, int64_t stride, const uint8_t *mask) { \
        OF_STRIDE(stride, *(opw_memory_##V *)y = opw_load_strided_masked_##T(x, s, opw_load_b8(mask))) \
    } \
    EXPORT gather_##T(REGISTER *y, const element *x, const int64_t *index) { \
        *(opw_memory_##V *)y = opw_gather_##T(x, opw_load_i64(index)); \
    } \
    EXPORT gather_partial_##T(REGISTER *y, const element *x, const int64_t *index, int64_t n) { \
        *(opw_memory_##V *)y = opw_gather_partial_##T(x, opw_load_i64(index), n); \
    } \
    EXPORT store_##T(element *y, const REGISTER *x) { opw_store_##T(y, *(const opw_memory_##V *)x); } \
    EXPORT store_partial_##T(element *y, const REGISTER *x, int64_t n) { \
        opw_store_partial_##T(y, *(const opw_memory_##V *)x, n); \
    } \
    EXPORT store_strided_##T(element *y, const REGISTER *x, int64_t stride) { \
        OF_STRIDE(stride, opw_store_strided_##T(y, *(const opw_memory_##V *)x, s)) \
    } \
    EXPORT store_strided_partial_##T(element *y, const REGISTER *x, int64_t stride, int64_t n) { \
        OF_STRIDE(stride, opw_store_strided_partial_##T(y, *(const opw_memory_##V *)x, s, n)) \
    } \
    EXPORT store_strided_masked_##T(element *y, const REGISTER *x, int64_t stride, const uint8_t *mask) { \
        OF_STRIDE(stride, opw_store_strided_masked_##T(y, *(const opw_memory_##V *)x, s, opw_load_b8(mask))) \
    }
#define SQUARE(T, R, element) \
    EXPORT load_square_##T(element *y, const element *x, int64_t stride) { \
        opw_square_##R square = opw_load_square_##T(x, stride); \
        for (int i = 0; i < OPW_LANES; i++) opw_store_##T(y + i * OPW_LANES, square.row[i]); \
    }
SQUARE(f32, f32, float)
SQUARE(i32, i32, int32_t)
SQUARE(u32, u32, uint32_t)
SQUARE(b8, i32, uint8_t)
SQUARE(f16, f32, uint16_t)
SQUARE(bf16, f32, uint16_t)
#define PLAIN_MEMORY(T, element, integer, bytes) MEMORY(T, element, T, element)
OPW_DTYPES(PLAIN_MEMORY)
MEMORY(b8, uint8_t, i32, int32_t)
MEMORY(f16, uint16_t, f32, float)
MEMORY(bf16, uint16_t, f32, float)

/* ---------------------------------------------------------------------------------------------------- conversions */

#define CONVERT(FROM, from, TO, to) \
    EXPORT convert_##FROM##_##TO(to *y, const from *x, int64_t n) { \
        int64_t i = 0; \
        for (; i + OPW_LANES <= n; i += OPW_LANES) \
            opw_store_##TO(y + i, opw_convert_##FROM##_##TO(opw_load_##FROM(x + i))); \
        opw_store_partial_##TO(y + i, opw_convert_##FROM##_##TO(opw_load_partial_##FROM(x + i, n - i)), n - i); \
    }
#define CONVERT_FROM(T, element, integer, bytes) \
    CONVERT(T, element, f32, float) CONVERT(T, element, f64, double) CONVERT(T, element, b8, uint8_t) \
    CONVERT(T, element, i8, int8_t) CONVERT(T, element, i16, int16_t) CONVERT(T, element, i32, int32_t) \
    CONVERT(T, element, i64, int64_t) CONVERT(T, element, u8, uint8_t) CONVERT(T, element, u16, uint16_t) \
    CONVERT(T, element, u32, uint32_t) CONVERT(T, element, u64, uint64_t)
OPW_DTYPES(CONVERT_FROM)
CONVERT_FROM(b8, uint8_t, vi8, 1)

/* How many lanes a compiler sees, as in code for known sizes. */
#define NARROWED(from, element, to, narrow) \
    EXPORT narrowed_##from##_##to##_1(narrow *y, const element *x) { \
        opw_store_partial_##to(y, opw_convert_##from##_##to(opw_load_##from(x)), 1); \
    } \
    EXPORT narrowed_##from##_##to##_3(narrow *y, const element *x) { \
        opw_store_partial_##to(y, opw_convert_##from##_##to(opw_load_##from(x)), 3); \
    }
NARROWED(f32, float, u8, uint8_t)
NARROWED(f32, float, i8, int8_t)
NARROWED(f32, float, i16, int16_t)
NARROWED(i32, int32_t, i8, int8_t)
NARROWED(i32, int32_t, u16, uint16_t)
NARROWED(i64, int64_t, i8, int8_t)
NARROWED(i64, int64_t, i32, int32_t)
NARROWED(f64, double, f32, float)

/* -------------------------------------------------------------------------------------------------------- formats */

#define CODES(T, wide, element) \
    EXPORT convert_##T##_##wide(element *y, const uint8_t *x, int64_t n) { \
        for (int64_t i = 0; i < n; i += OPW_LANES) { \
            int64_t count = n - i < OPW_LANES ? n - i : OPW_LANES; \
            opw_store_partial_##wide(y + i, opw_convert_##T##_##wide(opw_load_partial_u8(x + i, count)), count); \
        } \
    } \
    EXPORT convert_##wide##_##T(uint8_t *y, const element *x, int64_t n) { \
        for (int64_t i = 0; i < n; i += OPW_LANES) { \
            int64_t count = n - i < OPW_LANES ? n - i : OPW_LANES; \
            opw_store_partial_u8(y + i, opw_convert_##wide##_##T(opw_load_partial_##wide(x + i, count)), count); \
        } \
    }
CODES(f8e4m3fn, f32, float)
CODES(f8e4m3fnuz, f32, float)
CODES(f8e5m2, f32, float)
CODES(f8e5m2fnuz, f32, float)
CODES(f8e8m0, f32, float)
CODES(f4e2m1, f32, float)
CODES(i4, i8, int8_t)
CODES(i2, i8, int8_t)
CODES(u4, u8, uint8_t)
CODES(u2, u8, uint8_t)
EXPORT convert_f64_odd(float *y, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i += OPW_LANES) {
        int64_t count = n - i < OPW_LANES ? n - i : OPW_LANES;
        opw_store_partial_f32(y + i, opw_convert_f64_odd(opw_load_partial_f64(x + i, count)), count);
    }
}
