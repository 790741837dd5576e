/* Mathematics on vectors: every function is opw_NAME_DTYPE(v...) -> v.
 *
 * float32 functions of the hot path are written here and call nothing: exp log log1p tanh erf sigmoid softplus gelu
 * gelu_tanh sqrt rsqrt reciprocal sin cos floor ceil round trunc. Largest errors against float64 over sweeps of the
 * whole range (tests/unit/runtime_math), in units in the last place: exp 0.87, log 0.84, log1p 1.4, tanh 4.7, erf 2.3,
 * sigmoid 2.3, softplus 1.8, sin and cos 1.5. Infinities, NaN, zeros and subnormal numbers give what libm gives. The
 * rare ones (pow, asin, fmod, ...) and most of float64 go to libm lane by lane.
 *
 * Polynomials are minimax fits by the Remez exchange, computed for this file in 40 digits; each names its function, its
 * interval and its error, so that it can be fitted again. a * b + c stands in one expression where it should become one
 * fused operation. Results are right either way; without it, exp errs by 1.2 and tanh by 5.1.
 */
#ifndef OPWELD_MATH_H
#define OPWELD_MATH_H

#include <math.h>

#include "opweld_vector.h"

/* ----------------------------------------------------------------------------------- instructions of the machine */

/* Of x: the AVX-512 expression, the AVX2 expression, the scalar function. */
#if defined(OPW_AVX512)
#define OPW_HARDWARE_F32(name, wide, narrow, scalar) \
    OPW_INLINE vf32 opw_##name##_f32(vf32 v) { __m512 x = (__m512)v; return (vf32)wide; }
#elif defined(OPW_AVX2)
#define OPW_HARDWARE_F32(name, wide, narrow, scalar) \
    OPW_INLINE vf32 opw_##name##_f32(vf32 v) { __m256 x = (__m256)v; return (vf32)narrow; }
#else
#define OPW_HARDWARE_F32(name, wide, narrow, scalar) \
    OPW_INLINE vf32 opw_##name##_f32(vf32 v) { \
        for (int i = 0; i < OPW_LANES; i++) v[i] = scalar##f(v[i]); \
        return v; \
    }
#endif
#define OPW_HARDWARE(name, wide, narrow, scalar) \
    OPW_HARDWARE_F32(name, wide, narrow, scalar) \
    OPW_INLINE vf64 opw_##name##_f64(vf64 v) { \
        for (int i = 0; i < OPW_LANES; i++) v[i] = scalar(v[i]); \
        return v; \
    }
OPW_HARDWARE(sqrt, _mm512_sqrt_ps(x), _mm256_sqrt_ps(x), __builtin_sqrt)
OPW_HARDWARE(floor, _mm512_roundscale_ps(x, 9), _mm256_round_ps(x, 9), __builtin_floor)
OPW_HARDWARE(ceil, _mm512_roundscale_ps(x, 10), _mm256_round_ps(x, 10), __builtin_ceil)
OPW_HARDWARE(trunc, _mm512_roundscale_ps(x, 11), _mm256_round_ps(x, 11), __builtin_trunc)
OPW_HARDWARE(round, _mm512_roundscale_ps(x, 8), _mm256_round_ps(x, 8), __builtin_rint) /* half to even */

OPW_INLINE vf32 opw_reciprocal_f32(vf32 v) { return 1.0f / v; }
OPW_INLINE vf64 opw_reciprocal_f64(vf64 v) { return 1.0 / v; }
OPW_INLINE vf32 opw_rsqrt_f32(vf32 v) { return 1.0f / opw_sqrt_f32(v); }
OPW_INLINE vf64 opw_rsqrt_f64(vf64 v) { return 1.0 / opw_sqrt_f64(v); }

/* a / b within 1 unit in the last place, for 2^-100 < b < 2^100: a division of 16 lanes costs 16 cycles, this 4. */
OPW_INLINE vf32 opw_quotient_f32(vf32 a, vf32 b) {
#if defined(OPW_AVX512)
    vf32 r = (vf32)_mm512_rcp14_ps((__m512)b);
    r = r + r * (1.0f - b * r);
    vf32 q = a * r;
    return q + r * (a - b * q);
#else
    return a / b;
#endif
}

/* x / c for a constant 2^-60 < |c| < 2^60 and r = 1 / c: the quotient by r, corrected by the exact remainder, which rounds
 * like a division (Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990) as long as nothing
 * is subnormal. Where the remainder has no meaning, for infinities, the plain quotient stays. */
OPW_INLINE vf32 opw_div_finite_by_f32(vf32 x, float c, float r) {
    vf32 q = x * r;
    vf32 remainder = x - q * c;
    return q + remainder * r;
}
OPW_INLINE vf32 opw_div_by_f32(vf32 x, float c, float r) {
    vf32 corrected = opw_div_finite_by_f32(x, c, r);
    return OPW_BLEND(f32, vi32, corrected == corrected, corrected, x * r);
}

/* The nearest integer, the even one of two: what cannot be one is what a conversion without rounding makes of it. */
OPW_INLINE vi32 opw_nearest_f32_i32(vf32 x) {
#if defined(OPW_AVX512)
    return (vi32)_mm512_cvtps_epi32((__m512)x);
#elif defined(OPW_AVX2)
    return (vi32)_mm256_cvtps_epi32((__m256)x);
#else
    return __builtin_convertvector(opw_round_f32(x), vi32);
#endif
}

/* p * 2^n for whole numbers n in -254..300, rounded once where the result is subnormal; 0 for -254. */
OPW_INLINE vf32 opw_scale_f32(vf32 p, vf32 n) {
#if defined(OPW_AVX512)
    return (vf32)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    vi32 whole = __builtin_convertvector(n, vi32);
    vi32 part = whole >> 1;
    return p * (vf32)((part + 127) << 23) * (vf32)((whole - part + 127) << 23);
#endif
}

/* The nearest whole number, for |v| < 2^22: adding 1.5 * 2^23 pushes the fraction out of the significand. */
OPW_INLINE vf32 opw_nearest_f32(vf32 v) {
#if defined(OPW_AVX512) || defined(OPW_AVX2)
    return opw_round_f32(v);
#else
    return (v + 0x1.8p23f) - 0x1.8p23f;
#endif
}

/* ------------------------------------------------------------------------------------------------ exponentials */

/* e^x for x <= 89: x = n ln 2 + r, |r| <= ln 2 / 2, e^x = 2^n e^r. ln 2 is split in a part of 15 bits, whose product
 * with n is exact, and the rest. e^r = 1 + r + r^2 P(r), relative error 2^-28.3.
 *
 * From -104 down e^x rounds to 0. Some processors take a hundred times as long for a product that underflows, and a mask
 * makes one of every element that it rules out: those are masked here, or clamped to where 2^n is 0 (see opw_scale_f32),
 * which needs no register. A NaN is on neither side and stays. */
OPW_INLINE vf32 opw_exp_below_f32(vf32 x) {
#if !defined(OPW_AVX512)
    x = opw_max_f32(opw_splat_f32(-176.0f), x);
#endif
    vf32 n = opw_nearest_f32(x * 0x1.715476p+0f);
    vf32 r = x - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    vf32 p = 0x1.6a23d2p-10f * r + 0x1.123a2p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
#if defined(OPW_AVX512)
    __mmask16 some = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-104.0f), _CMP_NLE_UQ);
    return (vf32)_mm512_maskz_scalef_ps(some, (__m512)p, (__m512)n);
#else
    return opw_scale_f32(p, n);
#endif
}

/* Beyond 89, e^x rounds to infinity, and so does e^89. */
OPW_INLINE vf32 opw_exp_f32(vf32 x) { return opw_exp_below_f32(opw_min_f32(opw_splat_f32(89.0f), x)); }

/* 1 / (1 + e^-x), through e^-|x| so that nothing overflows. */
OPW_INLINE vf32 opw_sigmoid_f32(vf32 x) {
    vf32 small = opw_exp_below_f32(-opw_abs_f32(x));
    vf32 numerator = opw_select_f32(x < 0, small, opw_splat_f32(1));
    return opw_quotient_f32(numerator, small + 1.0f);
}

/* tanh x = x P(x^2) / Q(x^2) up to 9.02, from where it rounds to 1; relative error 2^-25.5
 * (by Lawson's iteration, in float64). */
OPW_INLINE vf32 opw_tanh_f32(vf32 x) {
    vf32 t = opw_min_f32(opw_splat_f32(9.02f), opw_abs_f32(x));
    vf32 u = t * t;
    vf32 p = 0x1.c9a232p-27f * u + 0x1.5954cep-16f;
    vf32 q = 0x1.a0b758p-21f * u + 0x1.58417ep-12f;
    p = p * u + 0x1.c9f812p-9f;
    q = q * u + 0x1.a7df04p-6f;
    p = p * u + 0x1.120438p-3f;
    q = q * u + 0x1.de5766p-2f;
    p = p * u + 1.0f;
    q = q * u + 1.0f;
    vf32 y = opw_min_f32(opw_splat_f32(1), opw_quotient_f32(t * p, q));
    return opw_copysign_f32(y, x);
}

#if defined(OPW_AVX512) || defined(OPW_AVX2)
/* erf x = |x| P(|x| - i h) with h = 17/32 and i the nearest to |x| / h, up to 3.93, from where it rounds to 1: a polynomial
 * for each of 8 intervals, whose coefficients a permutation picks out of a row; relative error 2^-24.2 below h / 2, where
 * P(0) = 2 / sqrt(pi) lies between two numbers, and 2^-25 beyond (by Lawson's iteration, coefficients rounded one after
 * the other). Half the instructions of two polynomials and an exponential, of which one is selected. */
static const float opw_erf_rows[7][16] __attribute__((aligned(64), unused)) = {
#define OPW_TWICE(...) {__VA_ARGS__, __VA_ARGS__}, /* a vector has 16 lanes or 8, the number of an interval 3 bits */
    OPW_TWICE(-0x1.00d87cp-5f, 0x1.0ddd3cp-9f, 0x1.0ffcb4p-6f, -0x1.73ddbap-11f,
              -0x1.d6d10ap-9f, -0x1.163bf6p-12f, -0x1.67efb8p-11f, 0x1.9b211p-11f)
    OPW_TWICE(0, -0x1.8ecbccp-5f, -0x1.ac16dcp-8f, 0x1.14d55p-6f,
              0x1.8890c2p-8f, -0x1.a79e7ep-12f, -0x1.955cc8p-11f, -0x1.7be8dcp-12f)
    OPW_TWICE(0x1.d054d4p-4f, 0x1.92953p-6f, -0x1.e94618p-5f, -0x1.09c2a2p-5f,
              -0x1.6ed81ap-15f, 0x1.44d734p-8f, 0x1.85253ap-9f, 0x1.5c90cp-10f)
    OPW_TWICE(0, 0x1.5d05fap-3f, 0x1.c7e9fp-4f, 0x1.4a3452p-9f,
              -0x1.ae76a2p-6f, -0x1.27fa7p-6f, -0x1.3a093ap-7f, -0x1.5686e8p-8f)
    OPW_TWICE(-0x1.812b1p-2f, -0x1.b676bcp-3f, 0x1.1c9164p-5f, 0x1.df5506p-4f,
              0x1.6bfb92p-4f, 0x1.abef26p-5f, 0x1.f913dp-6f, 0x1.3e991p-6f)
    OPW_TWICE(0, -0x1.5a6e3ap-2f, -0x1.b2cde8p-2f, -0x1.5036p-2f,
              -0x1.b8706p-3f, -0x1.21767ep-3f, -0x1.9315aep-4f, -0x1.282f8ap-4f)
    OPW_TWICE(0x1.20dd76p+0f, 0x1.07d824p+0f, 0x1.a1d1fp-1f, 0x1.397ad4p-1f,
              0x1.e09a7ap-2f, 0x1.81708p-2f, 0x1.4140b8p-2f, 0x1.135c7ep-2f)
#undef OPW_TWICE
};
OPW_INLINE vf32 opw_erf_pick(int row, vf32 interval) {
#if defined(OPW_AVX512)
    return (vf32)_mm512_permutexvar_ps((__m512i)interval, _mm512_load_ps(opw_erf_rows[row]));
#else
    return (vf32)_mm256_permutevar8x32_ps(_mm256_load_ps(opw_erf_rows[row]), (__m256i)interval);
#endif
}
OPW_INLINE vf32 opw_erf_f32(vf32 x) {
    vf32 t = opw_min_f32(opw_splat_f32(3.93f), opw_abs_f32(x));
    vf32 i = t * 0x1.e1e1e2p+0f + 0x1.8p23f; /* the number in the lowest bits, see opw_nearest_f32 */
    vf32 s = t - (i - 0x1.8p23f) * 0x1.1p-1f;
    vf32 p = opw_erf_pick(0, i) * s + opw_erf_pick(1, i);
    for (int row = 2; row < 7; row++) p = p * s + opw_erf_pick(row, i);
    /* The product of the last interval's end may round to the number below 1. */
    vf32 y = opw_select_f32(t >= 3.93f, opw_splat_f32(1.0f), opw_min_f32(opw_splat_f32(1.0f), t * p));
    return opw_copysign_f32(y, x);
}
#else
/* erf x = x + x P(x^2) below 0.875, relative error 2^-26.8; above, 1 - 2^-Q(x) up to 3.93, from where it rounds to 1,
 * absolute error 2^-29. 2^-q = 2^n 2^r with |r| <= 1/2, relative error 2^-23.7 of what is at most 0.22. */
OPW_INLINE vf32 opw_erf_f32(vf32 x) {
    vf32 t = opw_min_f32(opw_splat_f32(3.93f), opw_abs_f32(x));
    vf32 u = x * x;
    vf32 p = -0x1.453abp-11f * u + 0x1.49c9fep-8f;
    p = p * u + -0x1.b6f38ap-6f;
    p = p * u + 0x1.ce211ep-4f;
    p = p * u + -0x1.81270cp-2f;
    p = p * u + 0x1.06eba6p-3f;
    vf32 near = p * x + x;
    vf32 q = 0x1.2e676p-12f * t + -0x1.236596p-8f;
    q = q * t + 0x1.0882dp-5f;
    q = q * t + -0x1.340582p-3f;
    q = q * t + -0x1.d664d8p-1f;
    q = q * t + -0x1.a09034p+0f;
    q = q * t + -0x1.b4581ap-13f;
    vf32 n = opw_nearest_f32(q);
    vf32 r = q - n;
    vf32 e = 0x1.5c08f4p-10f * r + 0x1.3d0c54p-7f;
    e = e * r + 0x1.c6b6e4p-5f;
    e = e * r + 0x1.ebf918p-3f;
    e = e * r + 0x1.62e428p-1f;
    e = e * r + 0x1.000002p+0f;
    vf32 far = opw_copysign_f32(1.0f - opw_scale_f32(e, n), x);
    return opw_select_f32(t < 0.875f, near, far);
}
#endif

/* ---------------------------------------------------------------------------------------------------- logarithms */

/* log u = e ln 2 + log m with u = 2^e m, sqrt(1/2) <= m < sqrt(2): writes e and m. */
OPW_INLINE vi32 opw_log_split_f32(vf32 u, vf32 *m) {
    vi32 subnormal = u < 0x1p-126f;
    vi32 bits = (vi32)opw_select_f32(subnormal, u * 0x1p23f, u) + (0x3f800000 - 0x3f3504f3);
    *m = (vf32)((bits & 0x7fffff) + 0x3f3504f3);
    return (bits >> 23) - 127 - (subnormal & 23);
}

/* log(1 + f) = f - f^2 / 2 + f^3 P(f), relative error 2^-27.3; plus e ln 2. */
OPW_INLINE vf32 opw_log_join_f32(vi32 exponent, vf32 f) {
    vf32 e = __builtin_convertvector(exponent, vf32);
    vf32 h = f * f;
    vf32 p = -0x1.38b7bp-4f * f + 0x1.055bf2p-3f;
    p = p * f + -0x1.0d8508p-3f;
    p = p * f + 0x1.22da0p-3f;
    p = p * f + -0x1.547248p-3f;
    p = p * f + 0x1.99a00ap-3f;
    p = p * f + -0x1.000226p-2f;
    p = p * f + 0x1.555554p-2f;
    p = p * f + -0.5f;
    vf32 low = p * h + e * 0x1.7f7d1cp-20f;
    return e * 0x1.62e4p-1f + (f + low);
}

/* y where 0 < u < infinity, else what the logarithm of u is there. */
OPW_INLINE vf32 opw_log_limits_f32(vf32 u, vf32 y) {
    vf32 limit = opw_select_f32(u == 0, opw_splat_f32(-__builtin_inff()), opw_splat_f32(__builtin_nanf("")));
    limit = opw_select_f32(u > 0, u, limit);
    return opw_select_f32((u > 0) & (u < __builtin_inff()), y, limit);
}

OPW_INLINE vf32 opw_log_f32(vf32 x) {
    vf32 m;
    vi32 e = opw_log_split_f32(x, &m);
    return opw_log_limits_f32(x, opw_log_join_f32(e, m - 1.0f));
}

/* 1 + x = u + c without error (Knuth's two-sum); c joins f at the scale of m. Where e > 126, c is far below f. */
OPW_INLINE vf32 opw_log1p_f32(vf32 x) {
    vf32 u = 1.0f + x;
    vf32 x_in_u = u - 1.0f;
    vf32 c = (1.0f - (u - x_in_u)) + (x - x_in_u);
    vf32 m;
    vi32 e = opw_log_split_f32(u, &m);
    vf32 unit = (vf32)(opw_max_i32((vi32){0}, 127 - e) << 23);
    vf32 y = opw_log_limits_f32(u, opw_log_join_f32(e, (m - 1.0f) + c * unit));
    return opw_select_f32(x == 0, x, y); /* -0 */
}

/* log(1 + e^x) */
OPW_INLINE vf32 opw_softplus_f32(vf32 x) {
    return opw_max_f32((vf32){0}, x) + opw_log1p_f32(opw_exp_below_f32(-opw_abs_f32(x)));
}

/* ------------------------------------------------------------------------------------------------ trigonometry */

/* The lanes that `mask` names, through libm. */
#define OPW_BY_LANE(v, mask, function) \
    for (int i = 0; i < OPW_LANES; i++) { \
        if ((mask)[i]) (v)[i] = function((v)[i]); \
    }

/* x = n pi/2 + r, |r| <= pi/4, for |x| <= 1e6, where n times the first 33 bits of pi/2 is exact in float64; sin and cos
 * of r by polynomials in r^2 (relative errors 2^-28 and 2^-33), chosen and signed by n modulo 4; `quarter` is 0 for
 * sin, 1 for cos. Larger |x| go to libm. */
OPW_INLINE vf32 opw_sin_core_f32(vf32 x, int64_t quarter) {
    vf64 wide = __builtin_convertvector(x, vf64);
    vf64 shifted = wide * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    vf64 n = shifted - 0x1.8p52;
    vf64 rest = wide - n * 0x1.921fb544p+0;
    rest = rest - n * 0x1.0b4611a626331p-34;
    vi32 turn = __builtin_convertvector((vi64)shifted + quarter, vi32);
    vf32 r = __builtin_convertvector(rest, vf32);
    vf32 u = r * r;
    vf32 s = -0x1.994e5cp-13f * u + 0x1.11076p-7f;
    s = s * u + -0x1.555546p-3f;
    s = (s * u) * r + r;
    vf32 c = 0x1.9a020ap-16f * u + -0x1.6c0c8ap-10f;
    c = c * u + 0x1.55554ap-5f;
    c = c * u + -0.5f;
    c = c * u + 1.0f;
    vf32 y = opw_select_f32((turn & 1) != 0, c, s);
    return (vf32)((vi32)y ^ ((turn & 2) << 30));
}
OPW_INLINE vf32 opw_sin_f32(vf32 x) {
    vf32 y = opw_sin_core_f32(x, 0);
    vi32 large = opw_abs_f32(x) > 1e6f;
    y = opw_select_f32((x == 0) | large, x, y); /* -0 */
    if (opw_reduce_or_b8(large)) OPW_BY_LANE(y, large, sinf)
    return y;
}
OPW_INLINE vf32 opw_cos_f32(vf32 x) {
    vi32 large = opw_abs_f32(x) > 1e6f;
    vf32 y = opw_select_f32(large, x, opw_sin_core_f32(x, 1));
    if (opw_reduce_or_b8(large)) OPW_BY_LANE(y, large, cosf)
    return y;
}

/* ---------------------------------------------------------------------------------------------------- through libm */

#define OPW_DEFINE_BY_LANE(name, T, function) \
    OPW_INLINE v##T opw_##name##_##T(v##T v) { \
        for (int i = 0; i < OPW_LANES; i++) v[i] = function(v[i]); \
        return v; \
    }
#define OPW_DEFINE_BY_LANE_BOTH(name) OPW_DEFINE_BY_LANE(name, f32, name##f) OPW_DEFINE_BY_LANE(name, f64, name)
OPW_DEFINE_BY_LANE_BOTH(expm1)
OPW_DEFINE_BY_LANE_BOTH(tan)
OPW_DEFINE_BY_LANE_BOTH(asin)
OPW_DEFINE_BY_LANE_BOTH(acos)
OPW_DEFINE_BY_LANE_BOTH(atan)
OPW_DEFINE_BY_LANE_BOTH(sinh)
OPW_DEFINE_BY_LANE_BOTH(cosh)
OPW_DEFINE_BY_LANE_BOTH(asinh)
OPW_DEFINE_BY_LANE_BOTH(acosh)
OPW_DEFINE_BY_LANE_BOTH(atanh)
OPW_DEFINE_BY_LANE(exp, f64, exp)
OPW_DEFINE_BY_LANE(log, f64, log)
OPW_DEFINE_BY_LANE(log1p, f64, log1p)
OPW_DEFINE_BY_LANE(tanh, f64, tanh)
OPW_DEFINE_BY_LANE(erf, f64, erf)
OPW_DEFINE_BY_LANE(sin, f64, sin)
OPW_DEFINE_BY_LANE(cos, f64, cos)
OPW_INLINE vf64 opw_sigmoid_f64(vf64 x) {
    vf64 small = opw_exp_f64(-opw_abs_f64(x));
    return opw_select_f64(OPW_MASK(x < 0), small, opw_splat_f64(1)) / (small + 1.0);
}
OPW_INLINE vf64 opw_softplus_f64(vf64 x) {
    return opw_max_f64((vf64){0}, x) + opw_log1p_f64(opw_exp_f64(-opw_abs_f64(x)));
}

#define OPW_DEFINE_BINARY_BY_LANE(name, T, function) \
    OPW_INLINE v##T opw_##name##_##T(v##T a, v##T b) { \
        for (int i = 0; i < OPW_LANES; i++) a[i] = function(a[i], b[i]); \
        return a; \
    }
OPW_DEFINE_BINARY_BY_LANE(pow, f32, powf)
OPW_DEFINE_BINARY_BY_LANE(pow, f64, pow)
OPW_DEFINE_BINARY_BY_LANE(atan2, f32, atan2f)
OPW_DEFINE_BINARY_BY_LANE(atan2, f64, atan2)
OPW_DEFINE_BINARY_BY_LANE(fmod, f32, fmodf)
OPW_DEFINE_BINARY_BY_LANE(fmod, f64, fmod)

/* The remainder with the sign of the divisor. */
#define OPW_DEFINE_FLOAT_MOD(T, element, integer, bytes) \
    OPW_INLINE v##T opw_mod_##T(v##T a, v##T b) { \
        v##T r = opw_fmod_##T(a, b); \
        integer other = (integer)(r != 0) & ((integer)(r < 0) ^ (integer)(b < 0)); \
        r = OPW_BLEND(T, integer, other, r + b, r); \
        return OPW_BLEND(T, integer, r == 0, opw_copysign_##T(r, b), r); \
    }
OPW_FLOAT_DTYPES(OPW_DEFINE_FLOAT_MOD)

/* x (1 + erf(x / sqrt 2)) / 2, and its approximation through tanh. */
#define OPW_DEFINE_GELU(T, element, integer, bytes) \
    OPW_INLINE v##T opw_gelu_##T(v##T x) { \
        v##T half = x * (element)0.5; \
        return half * opw_erf_##T(x * (element)0.70710678118654752440) + half; \
    } \
    OPW_INLINE v##T opw_gelu_tanh_##T(v##T x) { \
        v##T half = x * (element)0.5; \
        v##T inner = (x * x) * (element)0.035677408136300124 + (element)0.7978845608028654; \
        return half * opw_tanh_##T(x * inner) + half; \
    }
OPW_FLOAT_DTYPES(OPW_DEFINE_GELU)

/* -------------------------------------------------------------------------------------------------------- integers */

/* Quotients truncate; x / 0 is 0 here, the least number / -1 is itself. The scalar functions also set *error (where
 * given) to a positive code on a zero divisor. 8 and 16 bits divide in float32, 32 bits in float64, both exactly: a
 * quotient that is not whole is further from the next whole number than their rounding. So do 64 bits that fit 53. */
#define OPW_DEFINE_SCALAR_DIV(T, element, integer, bytes) \
    OPW_INLINE element opw_scalar_div_##T(element a, element b, int64_t *error) { \
        if (b == 0) { \
            if (error) *error = 2; /* OPW_DIVISION_BY_ZERO */ \
            return 0; \
        } \
        return (element)-1 < 0 && b == (element)-1 ? (element)(0 - (uint64_t)a) : (element)(a / b); \
    }
OPW_INTEGER_DTYPES(OPW_DEFINE_SCALAR_DIV)

#define OPW_DEFINE_NARROW_DIV(T, F, WHOLE) \
    OPW_INLINE v##T opw_div_##T(v##T a, v##T b) { \
        vi32 zero = OPW_MASK(b == 0); \
        F divisor = __builtin_convertvector(b - __builtin_convertvector(zero, v##T), F); \
        F quotient = __builtin_convertvector(a, F) / divisor; \
        v##T q = __builtin_convertvector(__builtin_convertvector(quotient, WHOLE), v##T); \
        return opw_select_##T(zero, (v##T){0}, q); \
    }
OPW_DEFINE_NARROW_DIV(i8, vf32, vi32)
OPW_DEFINE_NARROW_DIV(u8, vf32, vi32)
OPW_DEFINE_NARROW_DIV(i16, vf32, vi32)
OPW_DEFINE_NARROW_DIV(u16, vf32, vi32)
OPW_DEFINE_NARROW_DIV(i32, vf64, vi64)
OPW_DEFINE_NARROW_DIV(u32, vf64, vi64)

OPW_INLINE vi64 opw_div_i64(vi64 a, vi64 b) {
    vi64 wide = (opw_abs_i64(a) | opw_abs_i64(b)) >> 53;
    if (opw_reduce_or_b8(OPW_MASK(wide != 0))) {
        for (int i = 0; i < OPW_LANES; i++) a[i] = opw_scalar_div_i64(a[i], b[i], 0);
        return a;
    }
    vf64 divisor = __builtin_convertvector(b - (vi64)(b == 0), vf64);
    vi64 q = __builtin_convertvector(__builtin_convertvector(a, vf64) / divisor, vi64);
    return q & (vi64)(b != 0);
}
OPW_INLINE vu64 opw_div_u64(vu64 a, vu64 b) {
    for (int i = 0; i < OPW_LANES; i++) a[i] = opw_scalar_div_u64(a[i], b[i], 0);
    return a;
}

/* fmod has the sign of the dividend, mod that of the divisor; both are 0 where the divisor is. */
#define OPW_DEFINE_INTEGER_MOD(T, element, integer, bytes) \
    OPW_INLINE v##T opw_fmod_##T(v##T a, v##T b) { return (a - opw_div_##T(a, b) * b) & (v##T)(b != 0); } \
    OPW_INLINE v##T opw_mod_##T(v##T a, v##T b) { \
        v##T r = opw_fmod_##T(a, b); \
        v##T other = (v##T)((integer)(r != 0) & ((integer)(r < 0) ^ (integer)(b < 0))); \
        return r + (b & other); \
    } \
    OPW_INLINE v##T opw_floordiv_##T(v##T a, v##T b) { \
        v##T r = opw_fmod_##T(a, b); \
        return opw_div_##T(a, b) + (v##T)((integer)(r != 0) & ((integer)(r < 0) ^ (integer)(b < 0))); \
    } \
    OPW_INLINE element opw_scalar_fmod_##T(element a, element b, int64_t *error) { \
        element quotient = opw_scalar_div_##T(a, b, error); \
        return b == 0 ? 0 : (element)((uint64_t)a - (uint64_t)quotient * (uint64_t)b); \
    } \
    OPW_INLINE element opw_scalar_mod_##T(element a, element b, int64_t *error) { \
        element r = opw_scalar_fmod_##T(a, b, error); \
        return (element)(r != 0 && (r < 0) != (b < 0) ? r + b : r); \
    } \
    OPW_INLINE element opw_scalar_floordiv_##T(element a, element b, int64_t *error) { \
        element r = opw_scalar_fmod_##T(a, b, 0); \
        return (element)(opw_scalar_div_##T(a, b, error) - (r != 0 && (r < 0) != (b < 0))); \
    } \
    OPW_INLINE element opw_scalar_pow_##T(element a, element b) { \
        if (b < 0) return a == 1 ? 1 : a == (element)-1 ? (element)(b & 1 ? -1 : 1) : 0; \
        uint64_t power = 1, square = (uint64_t)a; \
        for (uint64_t rest = (uint64_t)b; rest; rest >>= 1, square *= square) power *= rest & 1 ? square : 1; \
        return (element)power; \
    } \
    OPW_DEFINE_BINARY_BY_LANE(pow, T, opw_scalar_pow_##T) \
    OPW_INLINE v##T opw_shl_##T(v##T a, v##T b) { /* 0 beyond the width */ \
        v##T count = b & (8 * bytes - 1); \
        return (a << count) & (v##T)(b == count); \
    } \
    OPW_INLINE v##T opw_shr_##T(v##T a, v##T b) { /* 0, or -1 for negative numbers, beyond the width */ \
        v##T count = b & (8 * bytes - 1); \
        v##T beyond = (v##T)(a < 0); \
        return OPW_BLEND(T, integer, b == count, a >> count, beyond); \
    } \
    OPW_INLINE v##T opw_floor_##T(v##T a) { return a; } \
    OPW_INLINE v##T opw_ceil_##T(v##T a) { return a; } \
    OPW_INLINE v##T opw_round_##T(v##T a) { return a; }
OPW_INTEGER_DTYPES(OPW_DEFINE_INTEGER_MOD)

/* ---------------------------------------------------------------------------------------- scalar minimum, maximum */

#define OPW_DEFINE_SCALAR_ORDER(T, element, integer, bytes) \
    OPW_INLINE element opw_scalar_max_##T(element a, element b) { return a != a ? a : a > b ? a : b; } \
    OPW_INLINE element opw_scalar_min_##T(element a, element b) { return a != a ? a : a < b ? a : b; }
OPW_DTYPES(OPW_DEFINE_SCALAR_ORDER)

#endif
