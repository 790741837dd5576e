/* Products of rows rounded to 8 bits by matrices of integers in blocks: the functions `round_rows` and `rounded_*` of
 * tensor/rounded.py, which says what they compute and how operands lie.
 *
 * The sum of a group of 32 products is an integer, and exact. So a matrix unit that takes 16 rows at once, dot products
 * of bytes that take one, and what widens bytes have the same sums; what is added to a result, group by group, is the
 * one function `opw_rounded_add`. A row's result does not depend on how many rows are beside it. */
#ifndef OPWELD_ROUNDED_H
#define OPWELD_ROUNDED_H

#include "opweld_dot.h"
#include "opweld_kernel.h"
#include "opweld_matrix.h"

enum {
    OPW_ROUNDED_GROUP = 32,
    OPW_ROUNDED_PANEL = 16,
    OPW_ROUNDED_WORDS = OPW_ROUNDED_GROUP / 4,
    OPW_ROUNDED_BYTES = OPW_ROUNDED_GROUP * OPW_ROUNDED_PANEL, /* of a group of a panel, a code in a byte */
    OPW_ROUNDED_ROWS = 8                                       /* of a tile without a matrix unit */
};

typedef struct {
    const int8_t *codes;   /* [rows, size] */
    const float *steps;    /* [rows, groups]: x is code * step */
    const float *sums;     /* [rows, groups]: of x as it is rounded */
    const int32_t *totals; /* [rows, groups]: of codes */
    int64_t size, groups;
} opw_rounded_rows;

typedef struct {
    const uint8_t *codes;
    const void *scales, *minimums;
    int64_t each; /* groups that share a scale */
    int32_t zero;
    int bits, half;
} opw_rounded_matrix;

/* Numbers of columns [column, column + OPW_LANES) of a panel. */
OPW_INLINE vf32 opw_rounded_numbers(const void *numbers, int64_t at, int half) {
    return half ? opw_from_bits_f16(opw_load_u16((const uint16_t *)numbers + at)) : opw_load_f32((const float *)numbers + at);
}

/* A result with a group added: the sum of products of codes, times the scales of weights and of the row; the minimums of
 * weights times the sum of the row. */
OPW_INLINE vf32 opw_rounded_add(vf32 result, vi32 products, vf32 scale, float step, vf32 least, float sum, int has_least) {
    result = __builtin_convertvector(products, vf32) * scale * step + result;
    return has_least ? least * sum + result : result;
}

/* The codes of a group of a panel, word by word of four neighbours of a column. */
OPW_INLINE void opw_rounded_words(const opw_rounded_matrix *own, int64_t group, int64_t column, vi32 words[OPW_ROUNDED_WORDS]) {
    const uint8_t *from = own->codes + group * (own->bits == 4 ? OPW_ROUNDED_BYTES / 2 : OPW_ROUNDED_BYTES) + 4 * column;
    if (own->bits == 4) {
        _Pragma("clang loop unroll(full)") for (int w = 0; w < OPW_ROUNDED_WORDS / 2; w++) {
            vu32 both = (vu32)opw_load_i32((const int32_t *)(from + 4 * OPW_ROUNDED_PANEL * w));
            words[w] = (vi32)(both & 0x0f0f0f0f);
            words[w + OPW_ROUNDED_WORDS / 2] = (vi32)(both >> 4 & 0x0f0f0f0f);
        }
    } else {
        _Pragma("clang loop unroll(full)") for (int w = 0; w < OPW_ROUNDED_WORDS; w++)
            words[w] = opw_load_i32((const int32_t *)(from + 4 * OPW_ROUNDED_PANEL * w));
    }
}

/* Results of rows [row, row + rows) and of OPW_LANES columns of a panel, of which `left` are there. `block` is the first
 * scale of the panel, `group` its first group. */
OPW_INLINE void opw_rounded_tile(const opw_rounded_matrix *own, const opw_rounded_rows *x, int rows, int64_t row,
                                 int64_t group, int64_t block, int64_t column, int64_t left, float *to, int64_t pitch) {
    vf32 results[OPW_ROUNDED_ROWS] = {0};
    for (int64_t g = 0; g < x->groups; g++) {
        vi32 words[OPW_ROUNDED_WORDS];
        opw_rounded_words(own, group + g, column, words);
        int64_t at = (block + g / own->each) * OPW_ROUNDED_PANEL + column;
        vf32 scale = opw_rounded_numbers(own->scales, at, own->half), least = {0};
        if (own->minimums) least = opw_rounded_numbers(own->minimums, at, own->half);
        _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) {
            int64_t place = (row + r) * x->groups + g;
            const int8_t *codes = x->codes + place * OPW_ROUNDED_GROUP;
            vi32 products = opw_splat_i32(-own->zero * x->totals[place]);
            _Pragma("clang loop unroll(full)") for (int w = 0; w < OPW_ROUNDED_WORDS; w++) {
                int32_t word;
                memcpy(&word, codes + 4 * w, 4);
                products = opw_dot4_add_i32(products, words[w], opw_splat_i32(word));
            }
            results[r] = opw_rounded_add(results[r], products, scale, x->steps[place], least, x->sums[place],
                                         own->minimums != NULL);
        }
    }
    _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) {
        if (left >= OPW_LANES) opw_store_f32(to + (row + r) * pitch, results[r]);
        else opw_store_partial_f32(to + (row + r) * pitch, results[r], left);
    }
}

#if defined(OPW_AVX512) && defined(__AMX_INT8__)
#define OPW_ROUNDED_UNIT 1

/* The codes of a panel as a matrix unit reads them. */
OPW_INLINE void opw_rounded_unpack(const opw_rounded_matrix *own, int64_t group, int64_t groups, uint8_t *words) {
    for (int64_t g = 0; g < groups; g++) {
        vi32 found[OPW_ROUNDED_WORDS];
        opw_rounded_words(own, group + g, 0, found);
        for (int w = 0; w < OPW_ROUNDED_WORDS; w++)
            opw_store_i32((int32_t *)(words + g * OPW_ROUNDED_BYTES + 4 * OPW_ROUNDED_PANEL * w), found[w]);
    }
}

/* Adds a group's products, of 16 rows and a panel, to results. */
OPW_INLINE void opw_rounded_sums(const opw_rounded_matrix *own, const opw_rounded_rows *x, int64_t row, int64_t g,
                                 int64_t block, const int32_t *products, vf32 results[OPW_MATRIX_ROWS]) {
    int64_t at = (block + g / own->each) * OPW_ROUNDED_PANEL, place = row * x->groups + g;
    vf32 scale = opw_rounded_numbers(own->scales, at, own->half), least = {0};
    if (own->minimums) least = opw_rounded_numbers(own->minimums, at, own->half);
    _Pragma("clang loop unroll(full)") for (int r = 0; r < OPW_MATRIX_ROWS; r++, place += x->groups) {
        vi32 found = opw_load_i32(products + r * OPW_ROUNDED_PANEL);
        if (own->zero) found -= opw_splat_i32(own->zero * x->totals[place]);
        results[r] =
            opw_rounded_add(results[r], found, scale, x->steps[place], least, x->sums[place], own->minimums != NULL);
    }
}

/* A matrix unit's sum of group g goes to `products`: registers of even and of odd groups take turns, so that vectors add
 * one while the unit makes the next. */
#define OPW_ROUNDED_PRODUCTS(m, SUM, X, g, products)                                                                   \
    opw_matrix_zero(m, SUM);                                                                                           \
    opw_matrix_load(m, X, from + (g) * OPW_ROUNDED_GROUP, x->size / 4);                                                \
    opw_matrix_load(m, 4, words + (g) * OPW_ROUNDED_BYTES, OPW_ROUNDED_PANEL);                                         \
    opw_matrix_dot4_swapped(m, SUM, X, 4);                                                                             \
    opw_matrix_store(m, SUM, products, OPW_ROUNDED_PANEL);

/* Results of 16 rows and a panel, by a matrix unit whose shape is that of two such sums. */
OPW_INLINE void opw_rounded_unit(opw_matrix *m, const opw_rounded_matrix *own, const opw_rounded_rows *x, int64_t row,
                                 const uint8_t *words, int64_t block, int64_t left, float *to, int64_t pitch) {
    _Alignas(64) int32_t even[OPW_MATRIX_ROWS * OPW_ROUNDED_PANEL], odd[OPW_MATRIX_ROWS * OPW_ROUNDED_PANEL];
    vf32 results[OPW_MATRIX_ROWS] = {0};
    const int8_t *from = x->codes + row * x->size;
    (void)m;
    OPW_ROUNDED_PRODUCTS(m, 0, 2, 0, even)
    int64_t g = 0;
    for (; g + 2 <= x->groups; g += 2) {
        OPW_ROUNDED_PRODUCTS(m, 1, 3, g + 1, odd)
        opw_rounded_sums(own, x, row, g, block, even, results);
        if (g + 2 < x->groups) {
            OPW_ROUNDED_PRODUCTS(m, 0, 2, g + 2, even)
        }
        opw_rounded_sums(own, x, row, g + 1, block, odd, results);
    }
    if (g < x->groups) opw_rounded_sums(own, x, row, g, block, even, results);
    _Pragma("clang loop unroll(full)") for (int r = 0; r < OPW_MATRIX_ROWS; r++) {
        if (left >= OPW_LANES) opw_store_f32(to + (row + r) * pitch, results[r]);
        else opw_store_partial_f32(to + (row + r) * pitch, results[r], left);
    }
}
#endif

/* Results of all rows and of a panel, of which `left` columns are there; `words`: room for its codes. */
OPW_INLINE void opw_rounded_panel(const opw_rounded_matrix *own, const opw_rounded_rows *x, int64_t rows, int64_t panel,
                                  int64_t left, float *to, int64_t pitch, uint8_t *words) {
    int64_t row = 0, group = panel * x->groups, block = panel * (x->groups / own->each);
    (void)words;
#ifdef OPW_ROUNDED_UNIT
    if (rows >= OPW_MATRIX_ROWS) {
        OPW_MATRIX unit = opw_matrix_start();
        opw_matrix_shape(&unit, 2, 1, 2 * OPW_MATRIX_ROWS, OPW_ROUNDED_WORDS);
        opw_rounded_unpack(own, group, x->groups, words);
        for (; row + OPW_MATRIX_ROWS <= rows; row += OPW_MATRIX_ROWS)
            opw_rounded_unit(&unit, own, x, row, words, block, left, to, pitch);
    }
#endif
    for (int64_t taken; row < rows; row += taken) {
        int64_t many = rows - row;
        taken = many >= 8 ? 8 : many >= 4 ? 4 : many >= 2 ? 2 : 1;
        for (int64_t column = 0; column < OPW_ROUNDED_PANEL && column < left; column += OPW_LANES) {
#define OPW_ROUNDED_CASE(ROWS)                                                                                         \
    case ROWS: opw_rounded_tile(own, x, ROWS, row, group, block, column, left - column, to + column, pitch); break;
            switch (taken) {
                OPW_ROUNDED_CASE(1)
                OPW_ROUNDED_CASE(2)
                OPW_ROUNDED_CASE(4)
                OPW_ROUNDED_CASE(8)
            }
#undef OPW_ROUNDED_CASE
        }
    }
}

/* tensor/rounded.py: `rounded_*`. `minimums` are `scales` again where there are none, which `has_least` says. */
#define OPW_DEFINE_ROUNDED(NAME, BITS, NUMBER, HALF)                                                                   \
    static __attribute__((unused)) void NAME##_i64(                                                                    \
        const int64_t *item, const int8_t *x, const float *steps, const float *sums, const int32_t *totals,            \
        const uint8_t *codes, const NUMBER *scales, const NUMBER *minimums, float *to, uint8_t *words, int64_t rows,   \
        int64_t out, int64_t size, int64_t each, int64_t zero, int64_t has_least, int64_t *error) {                    \
        (void)error;                                                                                                   \
        opw_rounded_rows from = {x, steps, sums, totals, size, size / OPW_ROUNDED_GROUP};                              \
        opw_rounded_matrix own = {codes, scales, has_least ? minimums : NULL, each, (int32_t)zero, BITS, HALF};        \
        for (int64_t panel = item[0]; panel < item[0] + item[1]; panel++) {                                            \
            int64_t column = panel * OPW_ROUNDED_PANEL;                                                                \
            opw_rounded_panel(&own, &from, rows, panel, out - column, to + column, out, words);                        \
        }                                                                                                              \
    }
OPW_DEFINE_ROUNDED(rounded_u4_f32, 4, float, 0)
OPW_DEFINE_ROUNDED(rounded_u4_f16, 4, uint16_t, 1)
OPW_DEFINE_ROUNDED(rounded_u8_f32, 8, float, 0)
OPW_DEFINE_ROUNDED(rounded_u8_f16, 8, uint16_t, 1)

/* tensor/rounded.py: `round_rows`. A group that holds an infinity or a NaN has a step that is one. */
static __attribute__((unused)) void round_rows_f32(const float *x, int8_t *codes, float *steps, float *sums,
                                                   int32_t *totals, int64_t size, int64_t *error) {
    (void)error;
    for (int64_t g = 0; g < size / OPW_ROUNDED_GROUP; g++, x += OPW_ROUNDED_GROUP, codes += OPW_ROUNDED_GROUP) {
        int32_t bits[OPW_ROUNDED_GROUP], largest = 0, total = 0;
        memcpy(bits, x, sizeof bits);
        for (int i = 0; i < OPW_ROUNDED_GROUP; i++) {
            int32_t magnitude = bits[i] & 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
        float reach;
        memcpy(&reach, &largest, sizeof reach);
        int finite = largest < 0x7f800000;
        float inverse = finite && reach > 0x1p-100f ? 127.0f / reach : 0.0f;
        for (int i = 0; i < OPW_ROUNDED_GROUP; i++) {
            int32_t code = finite ? (int32_t)__builtin_rintf(x[i] * inverse) : 0;
            codes[i] = (int8_t)code;
            total += code;
        }
        steps[g] = finite ? reach / 127.0f : __builtin_nanf("");
        totals[g] = total;
        sums[g] = steps[g] * (float)total;
    }
}

#endif
