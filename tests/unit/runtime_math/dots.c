/* Dot products of words, which are other instructions on other processors: of whole vectors. */
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
