/* Numbers of 8 bits and fewer: decoding elements and encoding numbers.
 *
 * A code is the low bits of a byte, in memory and in registers (vu8). Only conversions interpret it:
 *   convert_FROM_f32(codes)   convert_f32_TO(v)    float8, float4; f8e8m0 is a power of two without a sign
 *   convert_FROM_i8(codes)    convert_i8_TO(v)     i4 i2, and u4 u2 by u8: integers wrap
 * Floats round to nearest even (f8e8m0: to nearest, halves up), as ml_dtypes does. Beyond the greatest number is what
 * the format has there: infinity, else NaN, else the greatest number. A NaN that a format has not becomes zero.
 */
#ifndef OPWELD_FORMATS_H
#define OPWELD_FORMATS_H

#include "opweld_vector.h"

/* A float format of a sign bit, an exponent with this bias and m bits of the significand. A code without its sign bit is
 * a magnitude: in order the finite ones up to `greatest`, then `beyond`; `nan` is the code of a NaN and `is_nan` tells
 * one. `infinity` is the magnitude of one; `unsigned_zero` says that zero has no sign.
 *
 * Normal numbers have the bits of a float32 moved by 23 - m, with another bias. Adding 2^23 times the least number to a
 * subnormal one leaves its magnitude, rounded, in the low bits of the sum. */
#define OPW_DEFINE_FORMAT(T, m, bias, sign, greatest, beyond, infinity, nan, is_nan, unsigned_zero) \
    OPW_INLINE vf32 opw_convert_##T##_f32(vu8 codes) { \
        vi32 code = __builtin_convertvector(codes, vi32) & (2 * (sign) - 1); \
        vi32 magnitude = code & ((sign) - 1); \
        vf32 normal = (vf32)((magnitude << (23 - (m))) + ((127 - (bias)) << 23)); \
        vf32 subnormal = __builtin_convertvector(magnitude, vf32) * (2.0f / (1 << (m)) / (1 << (bias))); \
        vf32 v = opw_select_f32(magnitude < (1 << (m)), subnormal, normal); \
        v = opw_select_f32(magnitude == (infinity), opw_splat_f32(__builtin_inff()), v); \
        v = opw_select_f32(is_nan, opw_splat_f32(__builtin_nanf("")), v); \
        return (vf32)((vu32)v | ((vu32)(code & (sign)) * (0x80000000u / (sign)))); \
    } \
    OPW_INLINE vu8 opw_convert_f32_##T(vf32 v) { \
        vu32 size = (vu32)v & 0x7fffffffu; \
        vu32 nearest = size + ((1u << (22 - (m))) - 1) + (size >> (23 - (m)) & 1); \
        vi32 normal = (vi32)(nearest >> (23 - (m))) - ((127 - (bias)) << (m)); \
        vi32 subnormal = (vi32)((vf32)size + 16777216.0f / (1 << (m)) / (1 << (bias))) - ((151 - (m) - (bias)) << 23); \
        vi32 magnitude = opw_select_i32((vi32)size < (128 - (bias)) << 23, subnormal, normal); \
        magnitude = opw_select_i32(magnitude > (greatest), opw_splat_i32(beyond), magnitude); \
        magnitude = opw_select_i32((vi32)size > 0x7f800000, opw_splat_i32(nan), magnitude); \
        vi32 negative = (vi32)((vu32)v >> 31) * (sign); \
        if (unsigned_zero) negative &= (magnitude & ((sign) - 1)) != 0; \
        return __builtin_convertvector(magnitude ^ negative, vu8); \
    }
#define OPW_NEVER (-1)
OPW_DEFINE_FORMAT(f8e4m3fn, 3, 7, 0x80, 0x7e, 0x7f, OPW_NEVER, 0x7f, magnitude == 0x7f, 0)
OPW_DEFINE_FORMAT(f8e4m3fnuz, 3, 8, 0x80, 0x7f, 0x80, OPW_NEVER, 0x80, code == 0x80, 1)
OPW_DEFINE_FORMAT(f8e5m2, 2, 15, 0x80, 0x7b, 0x7c, 0x7c, 0x7e, magnitude > 0x7c, 0)
OPW_DEFINE_FORMAT(f8e5m2fnuz, 2, 16, 0x80, 0x7f, 0x80, OPW_NEVER, 0x80, code == 0x80, 1)
OPW_DEFINE_FORMAT(f4e2m1, 1, 1, 0x8, 0x7, 0x7, OPW_NEVER, 0x8, (vi32){0}, 0)

/* Code c is 2^(c - 127); 2^-127 is the float32 of bits 0x400000, and 255 is NaN. What is not above zero is NaN. */
OPW_INLINE vf32 opw_convert_f8e8m0_f32(vu8 codes) {
    vi32 code = __builtin_convertvector(codes, vi32);
    vf32 power = (vf32)opw_select_i32(code == 0, opw_splat_i32(0x400000), code << 23);
    return opw_select_f32(code == 255, opw_splat_f32(__builtin_nanf("")), power);
}
OPW_INLINE vu8 opw_convert_f32_f8e8m0(vf32 v) {
    vi32 bits = (vi32)v;
    vi32 number = (bits > 0) & (bits <= 0x7f800000);
    vi32 code = ((bits & number) + 0x3fffff - (bits > 0x7fffff)) >> 23;
    return __builtin_convertvector(opw_select_i32(number, code, opw_splat_i32(255)), vu8);
}

#define OPW_DEFINE_SMALL_INTEGERS(bits) \
    OPW_INLINE vi8 opw_convert_i##bits##_i8(vu8 codes) { return (vi8)(codes << (8 - bits)) >> (8 - bits); } \
    OPW_INLINE vu8 opw_convert_i8_i##bits(vi8 v) { return (vu8)v & ((1 << bits) - 1); } \
    OPW_INLINE vu8 opw_convert_u##bits##_u8(vu8 codes) { return codes & ((1 << bits) - 1); } \
    OPW_INLINE vu8 opw_convert_u8_u##bits(vu8 v) { return v & ((1 << bits) - 1); }
OPW_DEFINE_SMALL_INTEGERS(4)
OPW_DEFINE_SMALL_INTEGERS(2)

/* float64 as a float32 that is rounded once more: towards zero, with the last bit set where anything was cut off, so
 * that the second rounding is as good as one of the whole number. */
OPW_INLINE vf32 opw_convert_f64_odd(vf64 v) {
    vf32 nearest = __builtin_convertvector(v, vf32);
    vf64 wide = __builtin_convertvector(nearest, vf64);
    vi32 inexact = OPW_MASK(wide != v), outward = OPW_MASK(opw_abs_f64(wide) > opw_abs_f64(v));
    return (vf32)(((vi32)nearest + outward) | (inexact & 1));
}

#endif
