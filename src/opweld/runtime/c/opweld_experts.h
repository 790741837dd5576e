/* Products of a mixture of experts, by the functions `group_pairs` and `experts_*` of tensor/experts.py, which says what
 * they compute: each row of x by the matrix of its expert alone, so that an expert that nobody chose is not read.
 *
 * A call computes a few columns of one expert, for all rows that chose it: rows are taken four at a time, and so are
 * columns, so that a weight is decoded once for four rows. Each sum is of the same products in the same order, whatever
 * is computed beside it: a row's result does not depend on how many rows its expert has. */
#ifndef OPWELD_EXPERTS_H
#define OPWELD_EXPERTS_H

#include "opweld_kernel.h"

#define OPW_EXPERT_ROWS 4
#define OPW_EXPERT_COLUMNS 4
#define OPW_EXPERT_GROUP 32

enum { OPW_EXPERT_F32, OPW_EXPERT_U4, OPW_EXPERT_U8, OPW_EXPERT_I8 };

typedef struct {
    const void *codes, *scales, *minimums;
    int64_t size, block;
    int kind, half;
} opw_expert_matrix;

OPW_INLINE vf32 opw_expert_floats(const float *p, int64_t left) {
    return left == OPW_LANES ? opw_load_f32(p) : opw_load_partial_f32(p, left);
}

/* Weights [k, k + left) of a row of codes, where `left` is OPW_LANES but at the end of a row of floats. A group of 32 codes
 * of four bits is 16 bytes, whose low halves come first. */
OPW_INLINE vf32 opw_expert_codes(const opw_expert_matrix *own, int64_t row, int64_t k, int64_t left) {
    int64_t start = row * own->size;
    switch (own->kind) {
    case OPW_EXPERT_F32: return opw_expert_floats((const float *)own->codes + start + k, left);
    case OPW_EXPERT_I8: return __builtin_convertvector(opw_load_i8((const int8_t *)own->codes + start + k), vf32);
    case OPW_EXPERT_U8: return __builtin_convertvector(opw_load_u8((const uint8_t *)own->codes + start + k), vf32);
    default: {
        int64_t in = k % OPW_EXPERT_GROUP, half = OPW_EXPERT_GROUP / 2;
        vu8 both = opw_load_u8((const uint8_t *)own->codes + (start + k - in) / 2 + in % half);
        return __builtin_convertvector(in < half ? both & 15 : both >> 4, vf32);
    }
    }
}

/* The number of a block in all lanes. */
OPW_INLINE vf32 opw_expert_number(const void *numbers, int64_t at, int half) {
    return half ? opw_splat_f16(((const uint16_t *)numbers)[at]) : opw_splat_f32(((const float *)numbers)[at]);
}

/* Adds the products of a vector of the rows x by one of the matrix's rows [row, row + columns). */
OPW_INLINE void opw_expert_step(const opw_expert_matrix *own, int rows, int columns, const float *const *x, int64_t row,
                                int64_t k, int64_t left, const vf32 *scale, const vf32 *least,
                                vf32 sums[OPW_EXPERT_ROWS][OPW_EXPERT_COLUMNS]) {
    vf32 element[OPW_EXPERT_ROWS];
    _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) element[r] = opw_expert_floats(x[r] + k, left);
    _Pragma("clang loop unroll(full)") for (int c = 0; c < columns; c++) {
        vf32 weight = opw_expert_codes(own, row + c, k, left);
        if (own->kind != OPW_EXPERT_F32) weight = weight * scale[c] + least[c];
        _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) sums[r][c] = element[r] * weight + sums[r][c];
    }
}

OPW_INLINE void opw_expert_tile(const opw_expert_matrix *own, int rows, int columns, const float *const *x, int64_t row,
                                float *const *into) {
    vf32 sums[OPW_EXPERT_ROWS][OPW_EXPERT_COLUMNS] = {0}, scale[OPW_EXPERT_COLUMNS] = {0},
                                  least[OPW_EXPERT_COLUMNS] = {0};
    int64_t blocks = own->size / own->block;
    for (int64_t b = 0; b < blocks; b++) {
        if (own->kind != OPW_EXPERT_F32)
            _Pragma("clang loop unroll(full)") for (int c = 0; c < columns; c++) {
                scale[c] = opw_expert_number(own->scales, (row + c) * blocks + b, own->half);
                if (own->minimums) least[c] = opw_expert_number(own->minimums, (row + c) * blocks + b, own->half);
            }
        int64_t k = b * own->block, end = k + own->block;
        for (; k + OPW_LANES <= end; k += OPW_LANES)
            opw_expert_step(own, rows, columns, x, row, k, OPW_LANES, scale, least, sums);
        if (k < end) opw_expert_step(own, rows, columns, x, row, k, end - k, scale, least, sums);
    }
    _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++)
        _Pragma("clang loop unroll(full)") for (int c = 0; c < columns; c++)
            into[r][c] = opw_reduce_add_f32(sums[r][c]);
}

/* Columns [first, first + count) of the expert's pairs `order`; x has a row for `share` pairs. */
OPW_INLINE void opw_expert_columns(const opw_expert_matrix *own, const float *x, const int64_t *order, int64_t pairs,
                                   int64_t share, int64_t matrix, int64_t out, int64_t first, int64_t count, float *to) {
    for (int64_t c = first, columns; c < first + count; c += columns) {
        columns = first + count - c < OPW_EXPERT_COLUMNS ? 1 : OPW_EXPERT_COLUMNS;
        for (int64_t p = 0; p < pairs; p += OPW_EXPERT_ROWS) {
            int rows = (int)(pairs - p < OPW_EXPERT_ROWS ? pairs - p : OPW_EXPERT_ROWS);
            const float *from[OPW_EXPERT_ROWS];
            float *into[OPW_EXPERT_ROWS];
            for (int r = 0; r < rows; r++) {
                from[r] = x + order[p + r] / share * own->size;
                into[r] = to + order[p + r] * out + c;
            }
            int64_t row = matrix * out + c;
#define OPW_EXPERT_CASE(ROWS)                                                                                          \
    case ROWS:                                                                                                         \
        if (columns == 1) opw_expert_tile(own, ROWS, 1, from, row, into);                                              \
        else opw_expert_tile(own, ROWS, OPW_EXPERT_COLUMNS, from, row, into);                                          \
        break;
            switch (rows) {
                OPW_EXPERT_CASE(1)
                OPW_EXPERT_CASE(2)
                OPW_EXPERT_CASE(3)
                OPW_EXPERT_CASE(4)
            }
#undef OPW_EXPERT_CASE
        }
    }
}

/* tensor/experts.py: `experts_*`. `minimums` are `scales` again where there are none, which `has_least` says. */
#define OPW_DEFINE_EXPERTS(NAME, CODE, KIND, NUMBER, HALF)                                                             \
    static __attribute__((unused)) void NAME##_i64(                                                                    \
        const int64_t *item, const float *x, const int64_t *order, const int64_t *starts, const CODE *codes,           \
        const NUMBER *scales, const NUMBER *minimums, float *to, int64_t pairs, int64_t rows, int64_t experts,         \
        int64_t out, int64_t size, int64_t block, int64_t has_least, int64_t *error) {                                 \
        int64_t expert = item[0], first = item[1], count = item[2], share = rows > 0 ? pairs / rows : 0;               \
        bool right = share >= 1 && share * rows == pairs && expert >= 0 && expert < experts && first >= 0 && count >= 1 && first <= out - count;\
        int64_t begin = right ? starts[expert] : 0, end = right ? starts[expert + 1] : 0;                              \
        right = right && begin >= 0 && begin <= end && end <= pairs;                                                   \
        for (int64_t p = begin; right && p < end; p++) right = order[p] >= 0 && order[p] < pairs;                      \
        if (!right) {                                                                                                  \
            *error = OPW_BAD_INDEX;                                                                                    \
            return;                                                                                                    \
        }                                                                                                              \
        opw_expert_matrix own = {codes, scales, has_least ? minimums : NULL, size, block, KIND, HALF};                 \
        opw_expert_columns(&own, x, order + begin, end - begin, share, expert, out, first, count, to);                 \
    }
OPW_DEFINE_EXPERTS(experts_f32, float, OPW_EXPERT_F32, float, 0)
OPW_DEFINE_EXPERTS(experts_u4_f32, uint8_t, OPW_EXPERT_U4, float, 0)
OPW_DEFINE_EXPERTS(experts_u4_f16, uint8_t, OPW_EXPERT_U4, uint16_t, 1)
OPW_DEFINE_EXPERTS(experts_u8_f32, uint8_t, OPW_EXPERT_U8, float, 0)
OPW_DEFINE_EXPERTS(experts_u8_f16, uint8_t, OPW_EXPERT_U8, uint16_t, 1)
OPW_DEFINE_EXPERTS(experts_i8_f32, int8_t, OPW_EXPERT_I8, float, 0)
OPW_DEFINE_EXPERTS(experts_i8_f16, int8_t, OPW_EXPERT_I8, uint16_t, 1)

/* tensor/experts.py: `group_pairs`. */
static __attribute__((unused)) void group_pairs_i64(const int64_t *chosen, int64_t *order, int64_t *starts, int64_t pairs,
                                                    int64_t experts, int64_t *error) {
    memset(starts, 0, (size_t)(experts + 1) * sizeof *starts);
    for (int64_t p = 0; p < pairs; p++) {
        if (chosen[p] < 0 || chosen[p] >= experts) {
            *error = OPW_BAD_INDEX;
            return;
        }
        starts[chosen[p]]++;
    }
    for (int64_t e = 0, before = 0; e < experts; e++) {
        before += starts[e];
        starts[e] = before;
    }
    starts[experts] = pairs;
    for (int64_t p = pairs - 1; p >= 0; p--) order[--starts[chosen[p]]] = p;
}

#endif
