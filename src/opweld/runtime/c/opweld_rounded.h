/* Products of rows rounded to 8 bits by matrices of integers in blocks: the functions `round_rows`, `rounded_*`
 * and `rounded_row_*` of tensor/rounded.py, which says what they compute and how operands lie.
 *
 * The sum of a group of 256 products, scales and minimums of weights included, is an integer of 32 bits, and exact. So a
 * matrix unit that takes 16 rows at once, dot products of bytes that take one, and what widens bytes have the same sums:
 * the unit multiplies weights of 16 bits, in two planes of bytes, the others codes, whose sums they scale block by block.
 * What is added to a result, group by group, is `opw_rounded_add`. A row's result does not depend on how many rows are
 * beside it. */
#ifndef OPWELD_ROUNDED_H
#define OPWELD_ROUNDED_H

#include "opweld_dot.h"
#include "opweld_kernel.h"
#include "opweld_matrix.h"

enum {
    OPW_ROUNDED_GROUP = 256, /* elements of a row that share a step; the last ones may be fewer */
    OPW_ROUNDED_LINE = 64,   /* elements of a row in a matrix unit's register */
    OPW_ROUNDED_PART = 32,   /* elements that have a total: of a block of weights, all or some */
    OPW_ROUNDED_PARTS = OPW_ROUNDED_GROUP / OPW_ROUNDED_PART,
    OPW_ROUNDED_PANEL = 16,
    OPW_ROUNDED_WORDS = OPW_ROUNDED_PART / 4,
    OPW_ROUNDED_BYTES = OPW_ROUNDED_PART * OPW_ROUNDED_PANEL, /* of a part of a panel, a code in a byte */
    OPW_ROUNDED_PLANE = OPW_ROUNDED_LINE * OPW_ROUNDED_PANEL, /* of a line of a panel, a byte of each weight */
    OPW_ROUNDED_ROWS = 8 /* of a tile without a matrix unit */
};

#define OPW_ROUNDED_GROUPS(size) (((size) + OPW_ROUNDED_GROUP - 1) / OPW_ROUNDED_GROUP)

typedef struct {
    const int8_t *codes;   /* [rows, size] */
    const float *steps;    /* [rows, groups]: x is code * step * 2^15 */
    const int32_t *totals; /* [rows, parts]: of codes */
    int64_t size, groups, parts;
} opw_rounded_rows;

typedef struct {
    const uint8_t *codes;
    const float *units;     /* [panels, 16] */
    const int16_t *numbers; /* [panels, blocks, 16]: scales; or pairs of them with minimums */
    int64_t each;           /* parts that share a scale */
    int32_t zero;
    int bits, has_least;
} opw_rounded_matrix;

/* The end of group g, in lines or parts of `each` elements, of a row of `size`. */
OPW_INLINE int64_t opw_rounded_end(int64_t g, int64_t size, int64_t each) {
    int64_t end = (g + 1) * OPW_ROUNDED_GROUP;
    return (end < size ? end : size) / each;
}

/* Scales of columns [column, column + OPW_LANES) of a block in the low halves of words, minimums in the high ones. */
OPW_INLINE vi32 opw_rounded_numbers(const opw_rounded_matrix *own, int64_t block, int64_t column) {
    int64_t at = block * OPW_ROUNDED_PANEL + column;
    if (own->has_least) return opw_load_i32((const int32_t *)(own->numbers + 2 * at));
    return __builtin_convertvector(opw_load_u16((const uint16_t *)own->numbers + at), vi32);
}

/* A sum with that of a part added: of codes less their zero times scales, and of x times minimums. Sums of codes of 4 bits
 * are integers of 16 bits, as totals are. */
OPW_INLINE vi32 opw_rounded_scaled(const opw_rounded_matrix *own, vi32 sum, vi32 products, vi32 numbers, int32_t total) {
    if (own->bits == 4) {
        if (own->has_least) products = (products & 0xffff) | opw_splat_i32((int32_t)((uint32_t)total << 16));
        return opw_dot2i_add_i32(sum, products, numbers);
    }
    sum += products * (numbers << 16 >> 16);
    return own->has_least ? sum + (numbers >> 16) * total : sum;
}

/* A result with the sum of a group added. */
OPW_INLINE vf32 opw_rounded_add(vf32 result, vi32 sum, float step) {
    return __builtin_convertvector(sum, vf32) * step + result;
}

/* The codes of a part of a panel, word by word of four neighbours of a column. */
OPW_INLINE void opw_rounded_words(const opw_rounded_matrix *own, int64_t part, int64_t column, vi32 words[OPW_ROUNDED_WORDS]) {
    const uint8_t *from = own->codes + part * (own->bits == 4 ? OPW_ROUNDED_BYTES / 2 : OPW_ROUNDED_BYTES) + 4 * column;
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

/* Results, times the units of their columns, of which `left` are there. */
OPW_INLINE void opw_rounded_store(const opw_rounded_matrix *own, int64_t panel, int64_t column, const vf32 *results, int rows,
                                  int64_t left, float *to, int64_t pitch) {
    vf32 unit = opw_load_f32(own->units + panel * OPW_ROUNDED_PANEL + column);
    _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) {
        if (left >= OPW_LANES) opw_store_f32(to + r * pitch, results[r] * unit);
        else opw_store_partial_f32(to + r * pitch, results[r] * unit, left);
    }
}

/* Results of rows [row, row + rows) and of OPW_LANES columns of a panel, of which `left` are there. */
OPW_INLINE void opw_rounded_tile(const opw_rounded_matrix *own, const opw_rounded_rows *x, int rows, int64_t row,
                                 int64_t panel, int64_t column, int64_t left, float *to, int64_t pitch) {
    int64_t blocks = x->parts / own->each;
    vf32 results[OPW_ROUNDED_ROWS] = {0};
    for (int64_t g = 0; g < x->groups; g++) {
        vi32 sums[OPW_ROUNDED_ROWS] = {0};
        for (int64_t p = g * OPW_ROUNDED_PARTS, end = opw_rounded_end(g, x->size, OPW_ROUNDED_PART); p < end; p++) {
            vi32 words[OPW_ROUNDED_WORDS], numbers = opw_rounded_numbers(own, panel * blocks + p / own->each, column);
            opw_rounded_words(own, panel * x->parts + p, column, words);
            _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++) {
                const int8_t *codes = x->codes + (row + r) * x->size + p * OPW_ROUNDED_PART;
                int32_t total = x->totals[(row + r) * x->parts + p];
                vi32 products = opw_splat_i32(-own->zero * total);
                _Pragma("clang loop unroll(full)") for (int w = 0; w < OPW_ROUNDED_WORDS; w++) {
                    int32_t word;
                    memcpy(&word, codes + 4 * w, 4);
                    products = opw_dot4_add_i32(products, words[w], opw_splat_i32(word));
                }
                sums[r] = opw_rounded_scaled(own, sums[r], products, numbers, total);
            }
        }
        _Pragma("clang loop unroll(full)") for (int r = 0; r < rows; r++)
            results[r] = opw_rounded_add(results[r], sums[r], x->steps[(row + r) * x->groups + g]);
    }
    opw_rounded_store(own, panel, column, results, rows, left, to + row * pitch + column, pitch);
}

#if defined(OPW_AVX512) && defined(__AMX_INT8__)
#define OPW_ROUNDED_UNIT 1

/* Fewer rows than these take less time without the unit. */
enum { OPW_ROUNDED_LEAST = 7 };

typedef int16_t opw_rounded_halves __attribute__((vector_size(4 * OPW_LANES)));

/* The weights of a panel as a matrix unit reads them: by lines, high bytes before low ones. */
OPW_INLINE void opw_rounded_unpack(const opw_rounded_matrix *own, const opw_rounded_rows *x, int64_t panel, uint8_t *planes) {
    int64_t blocks = x->parts / own->each;
    for (int64_t p = 0; p < x->parts; p++) {
        vi32 words[OPW_ROUNDED_WORDS];
        vu32 numbers = (vu32)opw_rounded_numbers(own, panel * blocks + p / own->each, 0);
        opw_rounded_halves scales = (opw_rounded_halves)((numbers & 0xffff) | numbers << 16);
        opw_rounded_halves least = (opw_rounded_halves)((numbers & 0xffff0000) | numbers >> 16);
        least -= scales * (int16_t)own->zero;
        opw_rounded_words(own, panel * x->parts + p, 0, words);
        int64_t line = p * OPW_ROUNDED_PART / OPW_ROUNDED_LINE, rest = p * OPW_ROUNDED_PART % OPW_ROUNDED_LINE;
        uint8_t *high = planes + line * 2 * OPW_ROUNDED_PLANE + rest * OPW_ROUNDED_PANEL;
        for (int w = 0; w < OPW_ROUNDED_WORDS; w++, high += 4 * OPW_ROUNDED_PANEL) {
            vu32 word = (vu32)words[w];
            vu32 even = (vu32)((opw_rounded_halves)(word & 0x00ff00ff) * scales + least);
            vu32 odd = (vu32)((opw_rounded_halves)(word >> 8 & 0x00ff00ff) * scales + least);
            opw_store_i32((int32_t *)high, (vi32)((even >> 8 & 0x00ff00ff) | (odd & 0xff00ff00)));
            opw_store_i32((int32_t *)(high + OPW_ROUNDED_PLANE), (vi32)((even & 0x00ff00ff) | (odd & 0x00ff00ff) << 8));
        }
    }
}

/* Sums of high bytes and of low ones, of 16 rows and a panel. */
typedef int32_t opw_rounded_sums[2][OPW_MATRIX_ROWS * OPW_ROUNDED_PANEL];

/* Adds group g's sums to results. */
OPW_INLINE void opw_rounded_gather(const opw_rounded_rows *x, int64_t row, int64_t g, const opw_rounded_sums sums,
                                   float *results) {
    const float *steps = x->steps + row * x->groups + g;
    _Pragma("clang loop unroll(full)") for (int r = 0; r < OPW_MATRIX_ROWS; r++, steps += x->groups) {
        float *result = results + r * OPW_ROUNDED_PANEL;
        vi32 high = opw_load_i32(sums[0] + r * OPW_ROUNDED_PANEL), low = opw_load_i32(sums[1] + r * OPW_ROUNDED_PANEL);
        opw_store_f32(result, opw_rounded_add(opw_load_f32(result), (high << 8) + low, *steps));
    }
}

/* Sums of group g of 16 rows, or of twice as many, whose weights are read once. */
#define OPW_ROUNDED_MULTIPLY(m, TWICE, g, sums)                                                                        \
    opw_matrix_zero(m, 0);                                                                                             \
    opw_matrix_zero(m, 1);                                                                                             \
    if (TWICE) {                                                                                                       \
        opw_matrix_zero(m, 2);                                                                                         \
        opw_matrix_zero(m, 3);                                                                                         \
    }                                                                                                                  \
    for (int64_t line = (g) * OPW_ROUNDED_GROUP / OPW_ROUNDED_LINE,                                                    \
                 end = opw_rounded_end(g, x->size, OPW_ROUNDED_LINE);                                                  \
         line < end; line++) {                                                                                         \
        const int8_t *codes = from + line * OPW_ROUNDED_LINE;                                                          \
        const uint8_t *high = planes + 2 * line * OPW_ROUNDED_PLANE;                                                   \
        opw_matrix_load(m, 4, codes, x->size / 4);                                                                     \
        opw_matrix_load(m, 6, high, OPW_ROUNDED_PANEL);                                                                \
        opw_matrix_dot4_signed(m, 0, 4, 6);                                                                            \
        opw_matrix_load(m, 7, high + OPW_ROUNDED_PLANE, OPW_ROUNDED_PANEL);                                            \
        opw_matrix_dot4_swapped(m, 1, 4, 7);                                                                           \
        if (TWICE) {                                                                                                   \
            opw_matrix_load(m, 5, codes + OPW_MATRIX_ROWS * x->size, x->size / 4);                                     \
            opw_matrix_dot4_signed(m, 2, 5, 6);                                                                        \
            opw_matrix_dot4_swapped(m, 3, 5, 7);                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    opw_matrix_store(m, 0, (sums)[0][0], OPW_ROUNDED_PANEL);                                                           \
    opw_matrix_store(m, 1, (sums)[0][1], OPW_ROUNDED_PANEL);                                                           \
    if (TWICE) {                                                                                                       \
        opw_matrix_store(m, 2, (sums)[1][0], OPW_ROUNDED_PANEL);                                                       \
        opw_matrix_store(m, 3, (sums)[1][1], OPW_ROUNDED_PANEL);                                                       \
    }

/* Results of 16 rows (`many` 1), or of 32 (2), from `row` on and a panel, by a matrix unit whose shape is that of four
 * sums. They wait in memory: 32 vectors are all registers that there are. */
OPW_INLINE void opw_rounded_unit(opw_matrix *m, const opw_rounded_matrix *own, const opw_rounded_rows *x, int many, int64_t row,
                                 const uint8_t *planes, int64_t panel, int64_t left, float *to, int64_t pitch) {
    _Alignas(64) opw_rounded_sums sums[2];
    _Alignas(64) float results[2][OPW_MATRIX_ROWS * OPW_ROUNDED_PANEL] = {0};
    const int8_t *from = x->codes + row * x->size;
    (void)m;
    for (int64_t g = 0; g < x->groups; g++) {
        OPW_ROUNDED_MULTIPLY(m, many > 1, g, sums)
        for (int n = 0; n < many; n++) opw_rounded_gather(x, row + n * OPW_MATRIX_ROWS, g, sums[n], results[n]);
    }
    for (int n = 0; n < many; n++)
        for (int r = 0; r < OPW_MATRIX_ROWS; r++) {
            vf32 result = opw_load_f32(results[n] + r * OPW_ROUNDED_PANEL);
            opw_rounded_store(own, panel, 0, &result, 1, left, to + (row + n * OPW_MATRIX_ROWS + r) * pitch, pitch);
        }
}
#endif

/* Results of all rows and of a panel, of which `left` columns are there; `planes`: room for its weights. */
OPW_INLINE void opw_rounded_panel(const opw_rounded_matrix *own, const opw_rounded_rows *x, int64_t rows, int64_t panel,
                                  int64_t left, float *to, int64_t pitch, uint8_t *planes) {
    int64_t row = 0;
    (void)planes;
#ifdef OPW_ROUNDED_UNIT
    if (rows >= OPW_MATRIX_ROWS) {
        OPW_MATRIX unit = opw_matrix_start();
        opw_matrix_shape(&unit, 2, 2, 2 * OPW_MATRIX_ROWS, OPW_MATRIX_ROWS);
        opw_rounded_unpack(own, x, panel, planes);
        for (; rows - row >= 2 * OPW_MATRIX_ROWS; row += 2 * OPW_MATRIX_ROWS)
            opw_rounded_unit(&unit, own, x, 2, row, planes, panel, left, to, pitch);
        /* The last rows may be computed twice: they have the same results again. */
        while (rows - row >= OPW_ROUNDED_LEAST) {
            int64_t first = row + OPW_MATRIX_ROWS <= rows ? row : rows - OPW_MATRIX_ROWS;
            opw_rounded_unit(&unit, own, x, 1, first, planes, panel, left, to, pitch);
            row = first + OPW_MATRIX_ROWS;
        }
    }
#endif
    for (int64_t taken; row < rows; row += taken) {
        int64_t many = rows - row;
        taken = many >= 8 ? 8 : many >= 4 ? 4 : many >= 2 ? 2 : 1;
        for (int64_t column = 0; column < OPW_ROUNDED_PANEL && column < left; column += OPW_LANES) {
#define OPW_ROUNDED_CASE(ROWS)                                                                                         \
    case ROWS: opw_rounded_tile(own, x, ROWS, row, panel, column, left - column, to, pitch); break;
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

/* tensor/rounded.py: `rounded_*`. */
#define OPW_DEFINE_ROUNDED(NAME, BITS)                                                                                 \
    static __attribute__((unused)) void NAME##_i64(                                                                    \
        const int64_t *item, const int8_t *x, const float *steps, const int32_t *totals, const uint8_t *codes,         \
        const float *units, const int16_t *numbers, float *to, uint8_t *planes, int64_t rows, int64_t out, int64_t size, \
        int64_t each, int64_t zero, int64_t has_least, int64_t *error) {                                               \
        (void)error;                                                                                                   \
        opw_rounded_rows from = {x, steps, totals, size, OPW_ROUNDED_GROUPS(size), size / OPW_ROUNDED_PART};           \
        opw_rounded_matrix own = {codes, units, numbers, each, (int32_t)zero, BITS, has_least != 0};                   \
        for (int64_t panel = item[0]; panel < item[0] + item[1]; panel++) {                                            \
            int64_t column = panel * OPW_ROUNDED_PANEL;                                                                \
            opw_rounded_panel(&own, &from, rows, panel, out - column, to + column, out, planes);                       \
        }                                                                                                              \
    }
OPW_DEFINE_ROUNDED(rounded_u4, 4)
OPW_DEFINE_ROUNDED(rounded_u8, 8)

/* tensor/rounded.py: `rounded_row_*`. */
#define OPW_DEFINE_ROUNDED_ROW(NAME, BITS)                                                                             \
    static __attribute__((unused)) void NAME##_i64(                                                                    \
        const int64_t *row, const uint8_t *codes, const float *scales, const float *minimums, float *to, int64_t out,  \
        int64_t size, int64_t each, int64_t added, int64_t has_least, int64_t *error) {                                \
        if (*row < 0 || *row >= out) {                                                                                 \
            *error = OPW_BAD_INDEX;                                                                                    \
            return;                                                                                                    \
        }                                                                                                              \
        int64_t panel = *row / OPW_ROUNDED_PANEL, column = *row % OPW_ROUNDED_PANEL, parts = size / OPW_ROUNDED_PART;  \
        for (int64_t p = 0; p < parts; p++) {                                                                          \
            const uint8_t *from = codes + (panel * parts + p) * (OPW_ROUNDED_BYTES * BITS / 8) + 4 * column;           \
            int64_t block = *row * (parts / each) + p / each;                                                          \
            float scale = scales[block], least = has_least ? minimums[block] : 0.0f;                                   \
            for (int w = 0; w < OPW_ROUNDED_WORDS; w++)                                                                \
                for (int i = 0; i < 4; i++) {                                                                          \
                    int at = (BITS == 4 ? w % (OPW_ROUNDED_WORDS / 2) : w) * 4 * OPW_ROUNDED_PANEL + i;                \
                    int32_t code = BITS == 4 ? from[at] >> w / (OPW_ROUNDED_WORDS / 2) * 4 & 15 : from[at];            \
                    *to++ = (float)(code - (int32_t)added) * scale + least;                                            \
                }                                                                                                      \
        }                                                                                                              \
    }
OPW_DEFINE_ROUNDED_ROW(rounded_row_u4, 4)
OPW_DEFINE_ROUNDED_ROW(rounded_row_u8, 8)

/* tensor/rounded.py: `round_rows`. A group that holds an infinity or a NaN has a step that is one. */
static __attribute__((unused)) void round_rows_f32(const float *x, int8_t *codes, float *steps, int32_t *totals,
                                                   int64_t size, int64_t *error) {
    (void)error;
    for (int64_t g = 0; g < OPW_ROUNDED_GROUPS(size); g++) {
        int64_t parts = opw_rounded_end(g, size, OPW_ROUNDED_PART) - g * OPW_ROUNDED_PARTS;
        int32_t largest = 0;
        for (int64_t p = 0; p < parts; p++) {
            int32_t bits[OPW_ROUNDED_PART];
            memcpy(bits, x + p * OPW_ROUNDED_PART, sizeof bits);
            for (int i = 0; i < OPW_ROUNDED_PART; i++) {
                int32_t magnitude = bits[i] & 0x7fffffff;
                largest = magnitude > largest ? magnitude : largest;
            }
        }
        float reach;
        memcpy(&reach, &largest, sizeof reach);
        int finite = largest < 0x7f800000;
        float inverse = finite && reach > 0x1p-100f ? 127.0f / reach : 0.0f;
        steps[g] = finite ? reach / 127.0f * 0x1p-15f : __builtin_nanf("");
        for (int64_t p = 0; p < parts; p++, x += OPW_ROUNDED_PART, codes += OPW_ROUNDED_PART) {
            int32_t total = 0;
            for (int i = 0; i < OPW_ROUNDED_PART; i++) {
                int32_t code = finite ? (int32_t)__builtin_rintf(x[i] * inverse) : 0;
                codes[i] = (int8_t)code;
                total += code;
            }
            *totals++ = total;
        }
    }
}

#endif
