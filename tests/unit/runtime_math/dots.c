/* Dot products of words, and bytes that saturate, which are other instructions on other processors: whole vectors. */
#include "opweld_kernel.h"

#define EXPORT __attribute__((visibility("default"))) void

EXPORT lanes(int64_t *out) { *out = OPW_LANES; }

EXPORT dot4_add(int32_t *sum, const int32_t *x, const int32_t *y, int64_t n) {
    for (int64_t i = 0; i + OPW_LANES <= n; i += OPW_LANES)
        opw_store_i32(sum + i, opw_dot4_add_i32(opw_load_i32(sum + i), opw_load_i32(x + i), opw_load_i32(y + i)));
}

EXPORT dot2_add(float *sum, const int32_t *x, const int32_t *y, int64_t n) {
    for (int64_t i = 0; i + OPW_LANES <= n; i += OPW_LANES)
        opw_store_f32(sum + i, opw_dot2_add_i32(opw_load_f32(sum + i), opw_load_i32(x + i), opw_load_i32(y + i)));
}

EXPORT dot2i_add(int32_t *sum, const int32_t *x, const int32_t *y, int64_t n) {
    for (int64_t i = 0; i + OPW_LANES <= n; i += OPW_LANES)
        opw_store_i32(sum + i, opw_dot2i_add_i32(opw_load_i32(sum + i), opw_load_i32(x + i), opw_load_i32(y + i)));
}

EXPORT dot4s_add(int32_t *sum, const int32_t *x, const int32_t *y, int64_t n) {
    for (int64_t i = 0; i + OPW_LANES <= n; i += OPW_LANES)
        opw_store_i32(sum + i, opw_dot4s_add_i32(opw_load_i32(sum + i), opw_load_i32(x + i), opw_load_i32(y + i)));
}

#define NARROW(T, element) \
    EXPORT narrow_1_##T(element *y, const int32_t *x, int64_t n) { \
        for (int64_t i = 0; i + OPW_LANES <= n; i += OPW_LANES) \
            opw_store_##T(y + i, opw_narrow_i32_##T(opw_load_i32(x + i))); \
    } \
    EXPORT narrow_2_##T(element *y, const int32_t *x, int64_t n) { \
        for (int64_t i = 0; i + 2 * OPW_LANES <= n; i += 2 * OPW_LANES) \
            opw_store_narrow_2_##T(y + i, opw_load_i32(x + i), opw_load_i32(x + i + OPW_LANES)); \
    } \
    EXPORT narrow_4_##T(element *y, const int32_t *x, int64_t n) { \
        for (int64_t i = 0; i + 4 * OPW_LANES <= n; i += 4 * OPW_LANES) \
            opw_store_narrow_4_##T(y + i, opw_load_i32(x + i), opw_load_i32(x + i + OPW_LANES), \
                                   opw_load_i32(x + i + 2 * OPW_LANES), opw_load_i32(x + i + 3 * OPW_LANES)); \
    }
NARROW(u8, uint8_t)
NARROW(i8, int8_t)

#define HALF(op) \
    EXPORT op##_add_half(int32_t *sum, const int32_t *x, const int32_t *y, int64_t n) { \
        for (int64_t i = 0; i + OPW_LANES <= n; i += OPW_LANES) \
            opw_store_i32( \
                sum + i, opw_##op##_add_half_i32(opw_load_i32(sum + i), opw_load_i32(x + i), opw_load_i32(y + i))); \
    }
HALF(dot4)
HALF(dot4s)
HALF(dot2i)

EXPORT multiply_add_half(float *sum, const float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i + OPW_LANES <= n; i += OPW_LANES)
        opw_store_f32(
            sum + i, opw_multiply_add_half_f32(opw_load_f32(sum + i), opw_load_f32(x + i), opw_load_f32(y + i)));
}

/* Lanes of a number that the compiler knows, moved as a shorter register. */
#define PART(T, element, lanes) \
    EXPORT part_##lanes##_##T(element *y, const element *x, int64_t n) { \
        for (int64_t i = 0; i < n; i += 16) \
            opw_store_partial_##T(y + i, opw_load_partial_##T(x + i, lanes) + opw_load_partial_##T(x + i, lanes), lanes); \
    }
#define PARTS(T, element) PART(T, element, 1) PART(T, element, 2) PART(T, element, 3) PART(T, element, 4)
PARTS(u8, uint8_t)
PARTS(i16, int16_t)
PARTS(f32, float)
PARTS(i64, int64_t)
#if OPW_LANES > 8
PART(u8, uint8_t, 8)
PART(f32, float, 8)
#endif
